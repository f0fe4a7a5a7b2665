"""A supervisor of stand-in workers, with its admin listener on a Unix socket. Arguments: folder, number of workers, grace in seconds."""

import asyncio
import sys
from pathlib import Path

from gateway.admin import make_admin, start_admin
from gateway.config import UnixListener
from gateway.observe import configure
from gateway.supervisor import Backoff, Fleet

FOLDER = Path(sys.argv[1])


async def main() -> int:
    home = FOLDER / "private"
    home.mkdir()
    fleet = Fleet(
        (sys.executable, "-m", "tests.supervisor.stand_in", str(FOLDER)),
        int(sys.argv[2]),
        home,
        grace=float(sys.argv[3]),
        first=("--first",),
        backoff=Backoff(first=0.02, longest=0.2, reset_after=30.0),
    )
    runner = await start_admin(UnixListener(str(FOLDER / "admin.sock")), make_admin(fleet.ports))
    try:
        return await fleet.run()
    finally:
        await runner.cleanup()


configure("info")
sys.exit(asyncio.run(main()))
