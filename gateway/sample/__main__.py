"""`python -m gateway.sample`: serve the sample payments API until SIGINT or SIGTERM."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from aiohttp import web

from gateway.sample.app import build
from gateway.sample.ledger import Ledger, load


async def serve(ledger: Ledger, host: str, port: int) -> None:
    """Serve until told to stop; says on stdout where, once connections are accepted."""
    runner = web.AppRunner(build(ledger), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        address = runner.addresses[0]
        print(f"sample payments API on http://{address[0]}:{address[1]}", flush=True)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
    finally:
        await runner.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gateway.sample", description="A sample payments API that deduplicates nothing.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for any (default: %(default)s)")
    parser.add_argument("--state", type=Path, help="a JSON file that keeps the books over restarts")
    options = parser.parse_args()
    try:
        asyncio.run(serve(load(options.state), options.host, options.port))
    except (OSError, ValueError) as error:
        print(f"sample payments API: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
