"""Names that stand for several addresses: the next one is tried when one takes no connection."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.ports import NotSent, NotSentReason
from gateway.upstream import HttpUpstream, UpstreamSettings
from gateway.upstream.connection import Connection
from gateway.upstream.dial import reach_first
from tests.upstream.ports import free_port, silent_port
from tests.upstream.stub import Stub, allow, call, request


class Nobody:
    """Owns the connections of these tests, and does not care."""

    def release(self, connection: Connection) -> None:
        pass

    def put_back(self, connection: Connection) -> None:
        pass

    def forget(self, connection: Connection) -> None:
        pass


async def reach(addresses: list[str], port: int, seconds: float) -> Connection:
    loop = asyncio.get_running_loop()
    return await reach_first(addresses, port, lambda: Connection(loop, Nobody()), loop.time() + seconds)


@pytest.fixture
async def listening() -> AsyncIterator[Stub]:
    """A stub on 127.0.0.1 with a port on which ::1 listens not, or silently."""
    async with Stub() as server:
        yield server


async def test_a_refusing_address_is_followed_by_the_next(listening: Stub) -> None:
    """Nothing listens on the first."""
    connection = await reach(["127.0.0.2", "127.0.0.1"], listening.port, 10)
    assert connection.sound
    connection.cut()


async def test_a_silent_address_leaves_time_for_the_next(listening: Stub) -> None:
    """It gets its share of the limit, not all of it."""
    with silent_port("127.0.0.2", listening.port):
        connection = await reach(["127.0.0.2", "127.0.0.1"], listening.port, 1.0)
    assert connection.sound
    connection.cut()


async def test_the_last_failure_is_the_one_that_is_told() -> None:
    """The limit holds over all addresses together."""
    port = free_port()
    with silent_port("127.0.0.2", port):
        for addresses, reason in (
            (["127.0.0.1", "127.0.0.2"], NotSentReason.CONNECT_TIMEOUT),
            (["127.0.0.2", "127.0.0.1"], NotSentReason.CONNECT_REFUSED),
        ):
            with pytest.raises(NotSent) as caught:
                await reach(addresses, port, 0.2)
            assert caught.value.reason is reason


def resolves(loop: asyncio.AbstractEventLoop, *addresses: str) -> None:
    """Let the loop's resolver know every name by these addresses."""

    async def getaddrinfo(_host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign,assignment]  # this loop only, for one test


async def test_a_name_with_a_dead_address_is_reached(listening: Stub) -> None:
    """The whole client, with a resolver of the test's own."""
    resolves(asyncio.get_running_loop(), "127.0.0.2", "127.0.0.2", "127.0.0.1")
    with silent_port("127.0.0.2", listening.port):
        client = HttpUpstream(UpstreamSettings(f"http://payments.test:{listening.port}", connect=1.0))
        assert await call(client) == (200, b"ok")
    assert listening.requests[0].startswith(b"POST / HTTP/1.1\r\nHost: stub\r\n")
    await client.close()


async def test_a_name_without_addresses_is_a_dns_error() -> None:
    """An empty answer is no address to try."""
    resolves(asyncio.get_running_loop())
    client = HttpUpstream(UpstreamSettings("http://payments.test:80"))
    with pytest.raises(NotSent) as caught:
        await client.send(request(), allow)
    assert caught.value.reason is NotSentReason.DNS
    assert client.open == 0


async def test_an_ipv6_address_needs_no_resolver() -> None:
    """In brackets, as in any URL."""
    with contextlib.closing(socket.socket(socket.AF_INET6)) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    async with Stub(host="::1") as stub:
        client = HttpUpstream(UpstreamSettings(f"http://[::1]:{stub.port}"))
        assert await call(client) == (200, b"ok")
        await client.close()
