"""Bodies of requests: what their readers get."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.request import BodyLost
from gateway.http.request_body import NO_BODY, READ_BUFFER, IncomingBody, WholeBody


async def test_none_is_at_its_end() -> None:
    """Nothing is waited for."""
    assert (NO_BODY.exists, NO_BODY.complete, NO_BODY.at_end, NO_BODY.received) == (False, True, True, 0)
    assert NO_BODY.take() == await NO_BODY.read() == b""


async def test_a_whole_one_is_taken_at_once() -> None:
    """And then it is at its end."""
    for body in (WholeBody(b"abc"), WholeBody(b"abc")):
        assert (body.exists, body.complete, body.at_end, body.received) == (True, True, False, 3)
    assert body.take() == b"abc"
    assert body.at_end
    assert await body.read() == b""


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=12))
def test_what_comes_in_is_what_is_taken(steps: list[bytes | None]) -> None:
    """In order and once, wherever the reader steps in (None)."""
    body, taken = IncomingBody(lambda: None), b""
    for step in steps:
        if step is None:
            taken += body.take()
        else:
            body.feed(step)
    body.end()
    taken += body.take()
    assert taken == b"".join(step for step in steps if step)
    assert body.received == len(taken)
    assert body.at_end


async def test_a_reader_is_woken() -> None:
    """By a piece, and by the end."""
    body = IncomingBody(lambda: None)
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.feed(b"")
    await asyncio.sleep(0)
    assert not reading.done()
    body.feed(b"a")
    assert await reading == b"a"
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.end()
    assert await reading == b""


async def test_a_lost_one_says_so() -> None:
    """Also to one who waits, and what had come in is dropped: half a body is none. A whole one cannot be lost."""
    body = IncomingBody(lambda: None)
    reading = asyncio.ensure_future(body.read())
    await asyncio.sleep(0)
    body.lose("gone")
    with pytest.raises(BodyLost, match="gone"):
        await reading
    half, whole = IncomingBody(lambda: None), IncomingBody(lambda: None)
    for one in (half, whole):
        one.feed(b"abc")
    whole.end()
    for one in (half, whole):
        one.lose("gone")
    with pytest.raises(BodyLost):
        half.take()
    assert whole.take() == b"abc"


def test_who_takes_a_full_one_lets_the_client_go_on() -> None:
    """And only then."""
    told: list[bool] = []
    body = IncomingBody(lambda: told.append(body.full))
    body.feed(b"x" * (READ_BUFFER - 1))
    assert not body.full
    body.take()
    assert not told
    body.feed(b"x" * READ_BUFFER)
    assert body.full
    body.take()
    assert told == [False]


def test_a_discarded_one_is_only_counted() -> None:
    """However long it is, it holds nobody back."""
    body = IncomingBody(lambda: None)
    body.feed(b"x" * READ_BUFFER)
    body.discard()
    body.feed(b"x" * READ_BUFFER)
    assert not body.full
    assert body.received == 2 * READ_BUFFER
    assert body.take() == b""
