"""TLS is tested on both event loops that the gateway is used with."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import trustme
import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def stranger() -> trustme.CA:
    """An authority that nobody was told about."""
    return trustme.CA()
