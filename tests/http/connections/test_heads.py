"""Heads: how long they may take and how large they may be. Counted to the byte, whatever is before and behind them."""

import asyncio

import pytest

from gateway.http.limits import ClientLimits
from gateway.http.request import Request
from gateway.http.response import WireResponse
from gateway.http.unfinished import EAGER, PARSED
from tests.http.connections.house import House, answers, echo, get, request, until

QUICK = ClientLimits(header_timeout=0.3, idle_timeout=30)
SMALL = ClientLimits(header_timeout=30, idle_timeout=30, max_header_size=1000, max_headers=20)


def sized(size: int, method: str = "GET", *lines: str) -> bytes:
    """A head of exactly `size` bytes."""
    empty = request(method, "/sized", *lines, "X-Fill: ")
    return request(method, "/sized", *lines, "X-Fill: " + "x" * (size - len(empty)))


# ---- time


async def test_a_connection_that_never_says_anything_is_closed_silently() -> None:
    """There is no request to be answered (RFC 9112 section 9.5)."""
    async with House(QUICK) as house, house.peer() as peer:
        assert await peer.rest() == b""
    assert not house.refused


@pytest.mark.parametrize("before", [b"", b"\r\n"], ids=["at once", "after an empty line"])
async def test_a_head_that_does_not_get_whole_is_408(before: bytes) -> None:
    """The answer is in our format and the connection is closed (RFC 9110 section 15.5.9)."""
    async with House(QUICK) as house, house.peer() as peer:
        await peer.send(before + b"GET / HTTP/1.1\r\nHost")
        answer = await peer.answer()
    assert (answer.status, answer.problem, answer.field("connection")) == (408, "request-timeout", b"close")
    assert house.refused == {"header_timeout": 1}
    assert not house.seen


async def test_trickling_gains_no_time() -> None:
    """Bytes that keep coming do not put the end off (RFC 9110 section 15.5.9)."""
    async with House(QUICK) as house, house.peer() as peer:
        receiving = asyncio.ensure_future(peer.answer())
        started = asyncio.get_running_loop().time()
        for byte in get("/", "X-Fill: " + "x" * 10_000):
            if receiving.done():
                break
            await peer.send(bytes([byte]))
            await asyncio.sleep(0.01)
        assert (await receiving).status == 408
        assert asyncio.get_running_loop().time() - started < 10


@pytest.mark.parametrize("together", [True, False])
async def test_the_next_head_has_its_own_time(together: bool) -> None:
    """Also if its first byte came along with the request before it (RFC 9112 section 9.3.2)."""
    async with House(QUICK) as house, house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 8", body=b"a\r\n\r\nbcd") + (b"G" if together else b""))
        if not together:
            await peer.until(b"bcd")
            await asyncio.sleep(0.5)  # an idle connection is not one with a slow head
            await peer.send(b"G")
        found = await answers(await peer.rest())
    assert [answer.status for answer in found] == ([200, 408] if together else [408])
    assert house.refused == {"header_timeout": 1}


async def test_a_request_may_take_longer_than_its_head() -> None:
    """The time of the head ends with the head."""
    async with House(QUICK) as house, house.peer() as peer:
        await peer.send(request("POST", "/1", "Content-Length: 2", "Connection: close"))
        await asyncio.sleep(0.5)
        await peer.send(b"ok")
        assert (await peer.answer()).body == b"POST /1 ok"


async def test_an_idle_connection_is_closed_silently() -> None:
    """After `idle_timeout` from the last answer (RFC 9112 section 9.5)."""
    async with House(ClientLimits(header_timeout=30, idle_timeout=0.2)) as house, house.peer() as peer:
        await peer.send(get("/1"))
        await peer.until(b"GET /1 ")
        await asyncio.sleep(0.1)
        await peer.send(get("/2"))
        await peer.until(b"GET /2 ")
        assert await peer.rest() == b""
    assert not house.refused


# ---- size


@pytest.mark.parametrize("cuts", [10_000, 1, 300])
@pytest.mark.parametrize("body", [b"", b"x" * 5_000])
async def test_a_head_of_the_greatest_size_is_taken(cuts: int, body: bytes) -> None:
    """The limit is inclusive, and the body does not count."""
    raw = sized(1000, "POST", f"Content-Length: {len(body)}", "Connection: close") + body
    async with House(SMALL) as house, house.peer() as peer:
        for at in range(0, len(raw), cuts):
            await peer.send(raw[at : at + cuts])
            await asyncio.sleep(0)
        assert (await peer.answer()).status == 200


@pytest.mark.parametrize("cuts", [10_000, 1, 300])
@pytest.mark.parametrize("before", ["", "GET", "POST", "chunked"])
async def test_a_head_of_one_byte_more_is_431(cuts: int, before: str) -> None:
    """Whatever came before it on the connection, and however it comes (RFC 6585 section 5)."""
    first = {
        "": b"",
        "GET": get("/1"),
        "POST": request("POST", "/1", "Content-Length: 3000", body=b"\r\n\r\n" * 750),
        "chunked": request("POST", "/1", "Transfer-Encoding: chunked", body=b"bb8\r\n" + b"\r\n\r\n" * 750 + b"\r\n0\r\n\r\n"),
    }[before]
    raw = first + sized(1001, "POST", "Content-Length: 3000") + b"x" * 3000
    async with House(SMALL) as house, house.peer() as peer:
        for at in range(0, len(raw), cuts):
            await peer.send(raw[at : at + cuts])
            await asyncio.sleep(0)
        *earlier, last = await answers(await peer.rest())
    assert [answer.status for answer in earlier] == ([200] if before else [])
    assert (last.status, last.problem, last.field("connection")) == (431, "header-too-large", b"close")
    assert house.refused == {"header_too_large": 1}
    assert len(house.seen) == len(earlier)


@pytest.mark.parametrize(
    "piece",
    [
        "GET /" + "x" * 2000,
        "GET / HTTP/1.1\r\nX: " + "x" * 2000,
        "GET / HTTP/1.1\r\n" + "X: y\r\n" * 20,
        "GET / HTTP/1.1\r\nX:" + " " * 2000,
    ],
)
async def test_a_head_without_end_is_431_at_the_limit(piece: str) -> None:
    """It is not waited for, so no more than the limit is ever held (RFC 6585 section 5)."""
    async with House(SMALL) as house, house.peer() as peer:
        await peer.send(piece.encode()[:1000].ljust(1000, b"x"))
        assert (await peer.answer()).status == 431


async def test_fields_are_counted() -> None:
    """`max_headers` of them are taken, not one more (RFC 6585 section 5)."""
    for more, status in ((18, 200), (19, 431)):  # and Host and Connection
        async with House(SMALL) as house, house.peer() as peer:
            await peer.send(get("/", "Connection: close", *["a: b"] * more))
            assert (await peer.answer()).status == status
        assert house.refused == ({} if status == 200 else {"header_too_large": 1})


async def test_empty_lines_are_not_a_head() -> None:
    """They are ignored before a request, however many (RFC 9112 section 2.2)."""
    async with House(SMALL) as house, house.peer() as peer:
        await peer.send(b"\r\n" * 5000)
        await peer.send(get("/1", "Connection: close"))
        assert (await peer.answer()).body == b"GET /1 "


@pytest.mark.parametrize("junk", [b"X: " + b"y" * 100 + b"\r\n", b"x" * 100])
async def test_trailers_are_bounded_like_a_head(junk: bytes) -> None:
    """So are extensions of chunks: neither is content, and both could go on for ever (RFC 9112 section 7.1.1)."""
    start = b"0\r\n" if junk.endswith(b"\n") else b"1;"
    async with House(SMALL) as house, house.peer() as peer:
        await peer.send(request("POST", "/1", "Transfer-Encoding: chunked"))
        await peer.send(start)
        for _ in range(10):
            await peer.send(junk)
            await asyncio.sleep(0.005)
        assert (await peer.answer()).status == 431
    assert house.gone == ["/1"]


# ---- memory


MANY_LINES = [f"X-{number}: " + "y" * 200 for number in range(200)]


async def test_a_long_head_that_is_not_whole_is_counted_until_its_connection_ends(house: House) -> None:
    """Byte for byte, but for its beginning, which every connection may have."""
    part = get("/1", *MANY_LINES)[:-2]
    async with house.peer() as peer, house.peer() as short:
        await short.send(part[:EAGER])
        await peer.send(part)
        await until(lambda: house.memory.held > len(part) - 2 * EAGER)
        assert house.memory.held <= len(part)
    await until(lambda: house.memory.held == 0)


async def test_a_long_head_is_counted_while_its_request_lasts(house: House) -> None:
    """As what it becomes: bytes, text and the objects around them."""
    held: list[int] = []
    raw = get("/1", *MANY_LINES)

    async def answering(request: Request) -> WireResponse:
        held.append(house.memory.held)
        return await echo(request)

    house.answering = answering
    async with house.peer() as peer:
        for target in (raw, get("/2")):
            await peer.send(target)
            await peer.until(b"GET /")
    assert held == [PARSED * len(raw), 0]
    await until(lambda: house.memory.held == 0)


async def test_a_long_head_is_not_taken_in_when_memory_is_full(house: House) -> None:
    """503, and the connection is closed; short ones are served as ever."""
    house.memory.take(house.memory.total)
    async with house.peer() as peer, house.peer() as short:
        await peer.send(get("/1", *MANY_LINES)[:-2])
        answer = await peer.answer()
        assert (answer.status, answer.problem, answer.field("retry-after")) == (503, "overloaded", b"1")
        await short.send(get("/2", "Connection: close"))
        assert (await short.answer()).body == b"GET /2 "
    assert house.refused == {"overloaded": 1}
    await until(lambda: house.memory.held == house.memory.total)


@pytest.mark.parametrize("step", [1000, EAGER - 1, EAGER, EAGER + 1, 30_000])
async def test_a_long_head_reads_the_same_however_it_comes(house: House, step: int) -> None:
    """Whole or in pieces, with a body and another request behind it; and what is wrong at its end is told."""
    raw = request("POST", "/1", *MANY_LINES, "Content-Length: 2", body=b"ok") + get("/2", *MANY_LINES, "Connection: close")
    async with house.peer() as peer:
        for start in range(0, len(raw), step):
            await peer.send(raw[start : start + step])
            await asyncio.sleep(0)
        assert [answer.body for answer in await answers(await peer.rest())] == [b"POST /1 ok", b"GET /2 "]
    async with house.peer() as peer:
        bad = get("/3", *MANY_LINES, "Bad Name: x")
        for start in range(0, len(bad), step):
            await peer.send(bad[start : start + step])
            await asyncio.sleep(0)
        assert (await peer.answer()).problem == "bad-request"
    await until(lambda: house.memory.held == 0)
