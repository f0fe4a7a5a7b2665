"""The channel between reading an upstream and writing to a client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.engine.answers import RelayCut
from gateway.engine.relay import Relay


class Reader:
    """A client's side: what it has got so far, and how its transfer ended."""

    def __init__(self, relay: Relay) -> None:
        self.got: list[bytes] = []
        self.arrived = asyncio.Condition()
        self.task = asyncio.create_task(self._read(relay))

    async def _read(self, relay: Relay) -> str:
        try:
            async for chunk in relay.chunks():
                async with self.arrived:
                    self.got.append(chunk)
                    self.arrived.notify_all()
        except RelayCut:
            return "cut"
        return "whole"

    async def has(self, count: int) -> list[bytes]:
        async with self.arrived, asyncio.timeout(10):
            await self.arrived.wait_for(lambda: len(self.got) >= count)
        return self.got

    async def ending(self) -> str:
        async with asyncio.timeout(10):
            return await self.task


@asynccontextmanager
async def reading(relay: Relay) -> AsyncIterator[Reader]:
    reader = Reader(relay)
    try:
        yield reader
    finally:
        reader.task.cancel()
        await asyncio.gather(reader.task, return_exceptions=True)


async def test_pieces_come_in_order() -> None:
    """What was pushed before and during the reading arrives whole and in order, then the transfer ends normally."""
    relay = Relay()
    relay.push(b"a")
    async with reading(relay) as reader:
        await reader.has(1)
        relay.push(b"b")
        relay.push(b"c")
        await reader.has(3)
        relay.push(b"d")
        relay.end()
        assert await reader.ending() == "whole"
        assert reader.got == [b"a", b"b", b"c", b"d"]


async def test_a_reader_waits() -> None:
    """Without a piece or an end the reader waits; the end alone wakes it."""
    relay = Relay()
    async with reading(relay) as reader:
        relay.push(b"")
        await asyncio.sleep(0)
        assert not reader.task.done()
        relay.end()
        assert await reader.ending() == "whole"
        assert reader.got == []


async def test_a_cut_is_never_a_normal_end() -> None:
    """After a cut the transfer ends with an error at once; what was buffered is dropped and later pieces and an end change nothing."""
    relay = Relay()
    relay.push(b"a")
    relay.cut()
    relay.push(b"b")
    relay.end()
    async with reading(relay) as reader:
        assert await reader.ending() == "cut"
        assert reader.got == []


async def test_a_cut_wakes_a_waiting_reader() -> None:
    """A reader that waits for the next piece learns of the cut."""
    relay = Relay()
    async with reading(relay) as reader:
        relay.push(b"a")
        await reader.has(1)
        relay.cut()
        assert await reader.ending() == "cut"
        assert reader.got == [b"a"]


async def test_an_end_leaves_the_rest_to_the_reader() -> None:
    """After the end the reader still gets all that is buffered, and the owner can see that there is nothing left to cut."""
    relay = Relay()
    relay.push(b"a")
    assert not relay.ended
    relay.end()
    assert relay.ended
    async with reading(relay) as reader:
        assert await reader.ending() == "whole"
        assert reader.got == [b"a"]


async def test_an_end_can_be_taken_back() -> None:
    """A settle that turns out stale cuts what has not gone out yet, also after the end was let go."""
    relay = Relay()
    relay.push(b"a")
    relay.end()
    relay.cut()
    async with reading(relay) as reader:
        assert await reader.ending() == "cut"
        assert reader.got == []


async def test_a_slow_client_is_cut() -> None:
    """Pushing never waits; a client that falls behind by more than the limit is cut and its memory freed."""
    relay = Relay(limit=10)
    relay.push(b"12345")
    relay.push(b"67890")
    relay.push(b"1")
    async with reading(relay) as reader:
        assert await reader.ending() == "cut"
        assert reader.got == []


async def test_a_client_that_keeps_up_is_not_cut() -> None:
    """The limit is on what is buffered, not on the whole: any amount passes a client that reads."""
    relay = Relay(limit=10)
    async with reading(relay) as reader:
        for index in range(50):
            relay.push(b"1234567890")
            await reader.has(index + 1)
        relay.end()
        assert await reader.ending() == "whole"


@pytest.mark.parametrize("size", [10, 11])
async def test_the_limit_itself_fits(size: int) -> None:
    """Exactly the limit may be buffered; one byte more cuts."""
    relay = Relay(limit=10)
    relay.push(b"x" * size)
    relay.end()
    async with reading(relay) as reader:
        assert await reader.ending() == ("whole" if size == 10 else "cut")
