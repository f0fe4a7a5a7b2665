"""Fixtures of tests about configurations."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import load
from tests.config.broken import EXAMPLES

NOBODY = 65534


@pytest.fixture
def as_a_user() -> Iterator[Path]:
    """A folder of a user who may not do everything: the test runs as that user. Who is one already stays himself.

    The checkout may be below a folder that is root's alone, so what loading a configuration reads of it is read before.
    """
    load(EXAMPLES / "minimal.yaml", dict.fromkeys(("GATEWAY_POSTGRES_DSN", "GATEWAY_DIGEST_SECRET"), "postgresql://db/gateway"))
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder)
