"""The run of `scripts/upgrade`, short, and from this tree to itself."""

import os
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.forking import Forked, nursery
from tests.support.gateway import ROUTES, Setup
from tests.support.upstream import CountingUpstream
from tests.system.upgrade.rolling import roll, stay

HERE = Path(__file__).parents[3]


@pytest.fixture
def setup(empty_database: str, redis_db: str, upstream: CountingUpstream) -> Setup:
    return Setup(empty_database, upstream.port, redis_db, defaults="{lease: 10s}", timeouts="{first_byte: 10s, total: 20s}")


async def forked(tree: Path, arguments: list[str], output: BinaryIO) -> Forked:
    """Of this tree alone."""
    assert tree == HERE
    return await nursery().fork(arguments, output, os.environ)


@pytest.mark.timeout(300)
async def test_no_error_and_no_second_run(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Gateways are replaced one by one under traffic."""
    stages: list[str] = []
    outcome = await roll(setup, upstream, tmp_path, HERE, HERE, clients=4, seconds=0.3, tell=stages.append, run=forked)
    assert outcome.broken == []
    assert len(stages) == 6
    assert len(outcome.bodies) == len(upstream.runs) > 20


async def test_it_would_tell(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """Without a guard operations run more than once, with other answers."""
    unguarded = replace(setup, routes=ROUTES.replace("    idempotency: {principal: [{header: Authorization}]}\n", ""))
    outcome = await stay(unguarded, upstream, tmp_path, HERE, seconds=0.2)
    assert any("another answer" in story for story in outcome.broken)
    assert any("times" in story for story in outcome.broken)
