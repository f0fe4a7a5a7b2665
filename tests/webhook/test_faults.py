"""Losses in the middle: of a reply, of the sender, of the race again and again. No verdict is lost, and none is applied twice."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from gateway.core.model import Status
from tests.http.connections.house import until
from tests.support.client import Client
from tests.support.faults import FaultProxy, fault_proxy
from tests.webhook.conftest import OpenHall
from tests.webhook.house import PATH, Hall, event, stripe


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[FaultProxy]:
    """A fault proxy in front of the test's server."""
    at = urlsplit(database)
    assert at.hostname is not None
    assert at.port is not None
    async with fault_proxy(at.hostname, at.port) as proxy:
        yield proxy


@pytest.fixture
async def behind(open_hall: OpenHall, database: str, proxy: FaultProxy) -> Hall:
    """A hall whose store is behind the fault proxy."""
    at = urlsplit(database)
    return await open_hall(dsn=database.replace(f"{at.hostname}:{at.port}", f"127.0.0.1:{proxy.port}"))


async def test_a_verdict_whose_reply_is_lost_is_a_duplicate_when_it_comes_again(hall: Hall, behind: Hall, proxy: FaultProxy) -> None:
    """It was applied, once; the sender, who was told to come again, learns so."""
    lease = await hall.doubt()
    told = event("charge.succeeded", lease.key.key, data={"key": lease.key.key, "object": {"id": "ch_whose_reply_is_lost"}})
    proxy.drop_reply_to(b'{"id":"ch_whose_reply_is_lost"}')
    assert await behind.send(told) == (503, "store_unavailable")
    record = await hall.find(lease)
    assert record.status is Status.COMPLETED
    assert await behind.send(told) == (200, "duplicate")
    assert (await hall.find(lease)).version == record.version
    assert await hall.history(lease) == [("webhook", "executed")]


async def test_a_record_that_moves_is_looked_at_again(hall: Hall, behind: Hall, proxy: FaultProxy) -> None:
    """Somebody takes the record between the look and the verdict: the verdict is refused, and the next one fits."""
    lease = await hall.doubt()
    await moved_while_looking(hall, behind, proxy, lease.key.key, times=1, expected=(200, "applied"))
    assert (await hall.find(lease)).status is Status.COMPLETED
    assert behind.observer.stale == ["verdict"]


async def test_a_record_that_moves_all_the_time_is_for_the_next_delivery(hall: Hall, behind: Hall, proxy: FaultProxy) -> None:
    """After some rounds the sender is told to come again."""
    lease = await hall.doubt()
    await moved_while_looking(hall, behind, proxy, lease.key.key, times=3, expected=(503, "store_unavailable"))
    assert (await hall.find(lease)).status is Status.UNKNOWN
    assert await hall.history(lease) == []
    assert await behind.send(event("charge.succeeded", lease.key.key)) == (200, "applied")


async def moved_while_looking(hall: Hall, behind: Hall, proxy: FaultProxy, key: str, *, times: int, expected: tuple[int, str]) -> None:
    """Send an event; each of the first `times` that its record is found, somebody else moves it before anything is done."""
    asked = b"payments" + len(key).to_bytes(4, "big") + key.encode()  # the arguments of `find_captured` on the wire
    body = event("charge.succeeded", key)
    held = proxy.hold_reply_to(asked)
    async with await Client.connect(behind.house.port) as client:
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\n{stripe(body)}\r\nContent-Length: {len(body)}\r\n\r\n"
        await client.send(head.encode() + body)
        for left in range(times - 1, -1, -1):
            await held.reached.wait()
            await hall.execute("UPDATE gateway_records SET version = version + 1")
            moved, held = held, proxy.hold_reply_to(asked) if left else held
            moved.let_go()
        answer = await client.receive()
    assert (answer.status, answer.body.split(b'"')[3].decode()) == expected


async def test_an_event_is_applied_though_its_sender_hangs_up(hall: Hall) -> None:
    """Once it is here whole it counts, whoever waits for the answer."""
    lease = await hall.doubt()
    body = event("charge.succeeded", lease.key.key)
    async with await Client.connect(hall.house.port) as client:
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\n{stripe(body)}\r\nContent-Length: {len(body)}\r\n\r\n"
        await client.send(head.encode() + body)
        await until(lambda: hall.house.seen)
    await until(lambda: hall.observer.results == {"applied": 1})
    assert (await hall.find(lease)).status is Status.COMPLETED
