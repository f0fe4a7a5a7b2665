"""How long a client is waited for while its body comes, and while it takes its answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.body import Pace
from gateway.http.request import Request
from gateway.http.response import Patience, WireResponse, beginning, untaken, wire_response
from tests.http.connections.house import House, get, until

PIECES = st.lists(st.tuples(st.integers(0, 100_000), st.floats(0.0, 90.0)), max_size=30)


@given(PIECES, st.floats(0.1, 60.0), st.integers(1, 100_000))
def test_waiting_is_bounded_by_what_came(pieces: list[tuple[int, float]], silence: float, rate: int) -> None:
    """Never longer than `silence` at a time, and in all no longer than `silence` and what the bytes are worth."""
    pace, waited, size = Pace(silence, rate), 0.0, 0
    for came, seconds in pieces:
        assert pace.left <= silence
        wait = min(seconds, pace.left)
        waited += max(wait, 0.0)
        size += came
        pace.came(came, wait)
        if pace.left <= 0:
            break
    assert waited <= silence + size / rate + 1e-6


@given(PIECES, st.floats(0.1, 60.0))
def test_without_a_rate_only_silence_counts(pieces: list[tuple[int, float]], silence: float) -> None:
    """However little came."""
    pace = Pace(silence, 0)
    for came, seconds in pieces:
        pace.came(came, seconds)
    assert pace.left == silence


def test_a_steady_client_at_the_rate_may_take_for_ever() -> None:
    """240 bytes a second, in pieces."""
    pace = Pace(60.0, 240)
    for _ in range(1000):
        pace.came(2400, 10.0)
    assert pace.left > 40


class Endless:
    """A body without an end."""

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536


async def test_a_client_that_takes_too_little_is_cut(house: House) -> None:
    """Though it takes something each time: its reading would hold the answer, and what that comes from, for as long as it likes."""

    async def answering(request: Request) -> WireResponse:
        return WireResponse(200, beginning(200, b"OK", ()), Endless(), patience=Patience(send_timeout=0.2, min_rate=1 << 40))

    house.answering = answering
    async with house.peer(receive_buffer=4096) as peer:
        await peer.send(get("/1"))
        await peer.until(b"x")
        while not house.gone:
            await asyncio.sleep(0.02)  # it is slow: a fast one would take gigabytes before its waiting has added up
            with contextlib.suppress(ConnectionError):
                peer.raw.recv(1024)
    await until(lambda: not house.server.connections)
    assert house.gone == ["/1"]


async def test_what_the_kernel_holds_is_not_taken_yet(house: House) -> None:
    """A slow client is seen to take its answer long before the kernel wants more of it: it is not cut for what only the kernel does."""
    transports: list[asyncio.Transport] = []

    async def answering(request: Request) -> WireResponse:
        assert request.connection.transport is not None
        transports.append(request.connection.transport)
        return wire_response(200, b"OK", (), b"x" * 16_000_000)

    house.answering = answering
    async with house.peer(receive_buffer=65536) as peer:
        await peer.send(get("/1"))
        await peer.until(b"x")
        (transport,) = transports
        left = untaken(transport)
        waiting = transport.get_write_buffer_size()
        assert left > waiting > 0
        while untaken(transport) == left:
            await peer.some()
        assert untaken(transport) < left
        assert transport.get_write_buffer_size() == waiting
    await until(lambda: not house.server.connections)
    assert untaken(transport) == transport.get_write_buffer_size()
