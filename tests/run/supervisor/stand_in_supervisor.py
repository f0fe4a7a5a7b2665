"""A supervisor of stand-in workers, with its admin listener on a Unix socket. Arguments: folder, number of workers, grace in seconds."""

import asyncio
import sys
from pathlib import Path

from gateway.config import UnixListener
from gateway.observe import configure
from gateway.operate.admin import make_admin, start_admin
from gateway.run.supervisor import Backoff, Fleet

FOLDER = Path(sys.argv[1])


class Text(str):
    """A configuration that is nothing but a word."""

    __slots__ = ()

    def pack(self) -> bytes:
        return self.encode()


class Words:
    """The file `word` holds the configuration; `bad` is none."""

    accepted = Text("first")

    def read(self) -> Text | list[str]:
        word = (FOLDER / "word").read_text() if (FOLDER / "word").exists() else "first"
        return ["the word is bad"] if word == "bad" else Text(word)

    def accept(self, candidate: Text) -> None:
        self.accepted = candidate


async def shown() -> object:
    return {"worker": 0}


async def main() -> int:
    home = FOLDER / "private"
    home.mkdir()
    fleet = Fleet(
        (sys.executable, "-m", "tests.run.supervisor.stand_in", str(FOLDER)),
        int(sys.argv[2]),
        home,
        Words(),
        grace=float(sys.argv[3]),
        first=("--first",),
        backoff=Backoff(first=0.02, longest=0.2, reset_after=30.0),
    )
    runner = await start_admin(UnixListener(str(FOLDER / "admin.sock")), make_admin(fleet.ports(shown)))
    try:
        return await fleet.run()
    finally:
        await runner.cleanup()


configure("info")
sys.exit(asyncio.run(main()))
