"""How many client connections there may be, in all and from one address."""

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.http.connection import TURNED_AWAY
from gateway.http.limits import ClientLimits, Crowd, peer_address
from tests.http.connections.house import House, get, until

TWO = ClientLimits(header_timeout=30, idle_timeout=30, max_connections=2)
TWO_EACH = ClientLimits(header_timeout=30, idle_timeout=30, max_connections_per_address=2)


@pytest.mark.parametrize("limits", [TWO, TWO_EACH])
async def test_one_connection_too_many_is_told_so(limits: ClientLimits) -> None:
    """It gets 503 at once, whatever it sends, and is closed; when another ends there is room again (RFC 9110 section 15.6.4)."""
    async with House(limits) as house, house.peer() as first:
        async with house.peer() as second:
            for peer in (first, second):
                await peer.send(get("/1"))
                await peer.until(b"GET /1 ")
            async with house.peer() as third:
                await third.send(get("/3") + b"x" * 300_000)
                answer = await third.answer()
            assert (answer.status, answer.problem, answer.field("connection")) == (503, "too-many-connections", b"close")
            assert answer.field("retry-after") == b"1"
            assert answer.field("x-request-id")
            await first.send(get("/1"))
            await first.until(b"GET /1 ")
        await until(lambda: len(house.server.connections) == 1)
        async with house.peer() as fourth:
            await fourth.send(get("/4", "Connection: close"))
            assert (await fourth.answer()).status == 200
        assert house.refused == {"too_many_connections": 1}
        assert "GET /3" not in house.seen


async def test_trusted_addresses_are_not_counted_by_address() -> None:
    """Behind a trusted proxy are many clients."""
    async with House(TWO_EACH) as house:
        house.trusted.add("127.0.0.1")
        async with house.peer(), house.peer(), house.peer() as third:
            await third.send(get("/3", "Connection: close"))
            assert (await third.answer()).status == 200


async def test_unix_sockets_have_no_address(tmp_path: Path) -> None:
    """Only the total binds them."""
    async with House(TWO_EACH, path=tmp_path / "socket") as house, house.peer(), house.peer(), house.peer() as third:
        await third.send(get("/3", "Connection: close"))
        assert (await third.answer()).status == 200


async def test_other_limits_hold_for_new_connections() -> None:
    """A reload changes nothing for those that are open."""
    async with House() as house, house.peer() as first:
        await first.send(get("/1"))
        await first.until(b"GET /1 ")
        house.server.reconfigure(ClientLimits(max_connections=1, max_header_size=1000), lambda address: False)
        async with house.peer() as second:
            assert (await second.answer()).status == 503
        await first.send(get("/2", "X-Fill: " + "x" * 2000))
        await first.until(b"GET /2 ")


async def test_a_flood_is_neither_held_nor_logged_line_by_line(caplog: pytest.LogCaptureFixture) -> None:
    """At most so many are told why at a time; the log says it once in a while."""
    async with House(ClientLimits(max_connections=1)) as house, house.peer() as only:
        await only.send(get("/1"))
        await only.until(b"GET /1 ")
        with caplog.at_level(logging.INFO):
            streams = [await asyncio.open_connection("127.0.0.1", house.port) for _ in range(TURNED_AWAY + 20)]
            await until(lambda: house.refused["too_many_connections"] == TURNED_AWAY + 20)
            assert len(house.server.connections) <= TURNED_AWAY + 1
        assert len([record for record in caplog.records if "Turned away" in record.message]) == 1
        for _, writer in streams:
            writer.close()


@pytest.mark.parametrize(
    ("peername", "address"),
    [
        (("10.0.0.1", 80), "10.0.0.1"),
        (("::ffff:10.0.0.1", 80, 0, 0), "10.0.0.1"),
        (("2001:db8::1", 80, 0, 0), "2001:db8::1"),
        (("::ffff:0:1", 80, 0, 0), "::ffff:0:1"),
        ("", None),
        (None, None),
        (b"@abstract", None),
    ],
)
def test_an_ipv4_mapped_address_is_an_ipv4_address(peername: object, address: str | None) -> None:
    """RFC 4291 section 2.5.5.2. Unix sockets name no peer."""
    assert peer_address(peername) == address


def test_a_crowd_forgets_who_has_left() -> None:
    """No count of an address outlives its connections."""
    crowd = Crowd(TWO_EACH, lambda address: False)
    for _ in range(3):
        assert crowd.enter("a")
        assert crowd.enter("a")
        assert not crowd.enter("a")
        assert crowd.enter("b")
        crowd.leave("a", entered=False)
        for address in ("a", "b", "a"):
            crowd.leave(address, entered=True)
        assert (crowd.size, crowd.outside) == (0, 0)
    assert not crowd._by_address
