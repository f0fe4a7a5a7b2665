"""Data folders in which Postgres has run before: making its cluster takes more CPU than all else that a start of `dev` does."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.devtools.embedded import start_postgres
from tests.support.services import new_root, remove_data


@pytest.fixture(scope="session")
def used_before() -> Iterator[Path]:
    """One that is only copied."""
    folder = new_root()
    start_postgres(folder).stop()
    yield folder
    remove_data(folder)


@pytest.fixture
def used_folder(used_before: Path, data_folder: Path) -> Path:
    """One of the test's own; an empty one where the user of Postgres cannot enter temporary folders, and the cluster is elsewhere."""
    if not (used_before / "postgres").is_symlink():
        subprocess.run(["cp", "-a", f"{used_before}/.", str(data_folder)], check=True)
    return data_folder
