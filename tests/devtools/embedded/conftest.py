"""Data folders of the embedded servers' tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services import remove_data


@pytest.fixture
def closed_data(tmp_path: Path) -> Iterator[Path]:
    """A data folder below one that only its owner may enter, removed at the end."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    folder = closed / "data"
    folder.mkdir()
    yield folder
    remove_data(closed)
