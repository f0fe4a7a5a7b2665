"""nginx and haproxy as hops, each with ports that differ in what they repeat."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.devtools.embedded.ports import free_port
from tests.system.interop.programs import listening, required

KINDS = ("nginx", "haproxy")
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a hop listens: `everything` repeats whatever it can, `connects` failed connects (the default), `nothing` nothing.

    Below /half/ one of two servers refuses connections, below /none/ the only one does; below /slow/ the wait for an answer is 2 s.
    `plain` is a hop without any setting.
    """

    everything: int
    connects: int
    nothing: int
    plain: int


def hop_ports() -> Ports:
    """Ports for a hop that is yet to start."""
    return Ports(free_port(), free_port(), free_port(), free_port())


@contextlib.asynccontextmanager
async def hop(kind: str, ports: Ports, following: int, folder: Path) -> AsyncIterator[None]:
    """A hop of this kind to `following`, a port of 127.0.0.1, that is gone at the end of the block."""
    template = next(FOLDER.glob(f"{kind}.*"))
    text = template.read_text()
    for name, value in {**asdict(ports), "next": following, "nobody": free_port(), "folder": folder}.items():
        text = text.replace(f"@{name}@", str(value))
    config = folder / template.name
    config.write_text(text)
    program = required(kind)
    argv = {"nginx": [program, "-p", str(folder), "-e", "stderr", "-c", str(config)], "haproxy": [program, "-db", "-f", str(config)]}[kind]
    async with listening(argv, list(asdict(ports).values()), folder / f"{kind}.log"):
        yield
