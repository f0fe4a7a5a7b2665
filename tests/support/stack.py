"""Fixtures: a counting upstream, and gateways in front of it on real Postgres and Redis."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway import Gateway, Setup, running
from tests.support.upstream import CountingUpstream


@pytest.fixture
async def upstream() -> AsyncIterator[CountingUpstream]:
    """An upstream that executes and answers 201 until told otherwise."""
    upstream = CountingUpstream()
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest.fixture
def setup(database: str, redis_db: str, upstream: CountingUpstream) -> Setup:
    """The usual setup: Postgres and Redis."""
    return Setup(database, upstream.port, redis_db)


@pytest.fixture
async def gateway(setup: Setup, tmp_path: Path) -> AsyncIterator[Gateway]:
    """One gateway in the usual setup."""
    async with running(setup, tmp_path) as gateway:
        yield gateway
