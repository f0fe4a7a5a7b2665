"""The listener's tests run on both event loops that it is used with."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.http.connections.house import House


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """A listener on a free port of 127.0.0.1, with a handler that tells what it was asked. No connection may be left at the end."""
    async with House() as house:
        yield house
