"""The upstream client's tests run on both event loops that it is used with."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.upstream.stub import Stub


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """A scripted server on a free port of 127.0.0.1."""
    async with Stub() as server:
        yield server


@pytest.fixture
async def upstream(stub: Stub) -> AsyncIterator[HttpUpstream]:
    """The client for `stub`, with time limits that no passing test reaches. At the end no slot may be left in use."""
    client = HttpUpstream(UpstreamSettings(stub.url, keepalive=60))
    yield client
    await client.close()
    assert client.open == 0
