"""A Postgres whose clock can be set, by libfaketime in front of its C library."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.devtools.embedded import PostgresServer, start_postgres
from tests.support.services import missing, system_postgres


@dataclass(frozen=True, slots=True)
class SteppingPostgres:
    """`server` shows our host's time, and what `step` was last told."""

    server: PostgresServer
    offset: Path

    def step(self, seconds: float) -> None:
        """Set its clock so many seconds ahead of ours, for whatever it is asked next."""
        fresh = self.offset.with_suffix(".new")
        fresh.write_text(f"{seconds:+.3f}\n")
        fresh.chmod(0o644)
        fresh.replace(self.offset)


@contextmanager
def stepping_postgres(root: Path) -> Iterator[SteppingPostgres]:
    """Its data is in a folder under `root`; what it is told by is where its own user can read it. Stopped at the end."""
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
    if library is None:
        missing("libfaketime (the package faketime)")
    told = Path(tempfile.mkdtemp(prefix="idempotency-gateway-clock-"))
    told.chmod(0o755)
    offset = told / "offset"
    faked = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    offset.write_text("+0\n")
    offset.chmod(0o644)
    os.environ.update(faked)
    try:
        server = start_postgres(root / "postgres-stepping", binaries=system_postgres())
    finally:
        for name in faked:
            del os.environ[name]
    try:
        yield SteppingPostgres(server, offset)
    finally:
        server.stop()
        shutil.rmtree(told)
