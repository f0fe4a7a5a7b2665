"""`python -m gateway.devtools.sample`: serve the sample payments API until SIGINT or SIGTERM."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from aiohttp import web

from gateway.devtools.sample.app import build
from gateway.devtools.sample.events import Hook
from gateway.devtools.sample.ledger import load


async def serve(app: web.Application, host: str, port: int) -> None:
    """Serve until told to stop; says on stdout where, once connections are accepted."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
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
    parser = argparse.ArgumentParser(
        prog="python -m gateway.devtools.sample", description="A sample payments API that deduplicates nothing unless told to."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for any (default: %(default)s)")
    parser.add_argument("--state", type=Path, help="a JSON file that keeps the books over restarts")
    parser.add_argument("--deduplicate", action="store_true", help="execute once for each idempotency key, and answer the same again")
    parser.add_argument("--webhook-url", help="where events of executions are sent to")
    parser.add_argument("--webhook-secret", help="the secret that signs them, as Stripe signs (needed with --webhook-url)")
    options = parser.parse_args()
    if (options.webhook_url is None) != (options.webhook_secret is None):
        parser.error("--webhook-url and --webhook-secret come together")
    try:
        hook = None if options.webhook_url is None else Hook(options.webhook_url, options.webhook_secret.encode())
        app = build(load(options.state), deduplicate=options.deduplicate, hook=hook)
        asyncio.run(serve(app, options.host, options.port))
    except (OSError, ValueError) as error:
        print(f"sample payments API: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
