"""Whatever bytes come: answers that are whole, nothing that fails, nothing left behind."""

import asyncio
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http.limits import ClientLimits
from tests.http.connections.house import House, answers, get, request

LIMITS = ClientLimits(header_timeout=30, idle_timeout=30, max_header_size=600, max_headers=12)
WELL_FORMED = [
    get("/g"),
    get("/u", "Connection: upgrade", "Upgrade: websocket"),
    get("/h", "Connection: upgrade", "Upgrade: h2c"),
    request("POST", "/l", "Content-Length: 5", body=b"a\r\n\r\n"),
    request("POST", "/c", "Transfer-Encoding: chunked", body=b"3;e=f\r\nabc\r\n0\r\nT: u\r\n\r\n"),
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
]
SCRAPS = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b":",
    b"\0",
    b"0\r\n\r\n",
    b"HTTP/1.1\r\n",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"X: " + b"x" * 700,
    b"a: b\r\n" * 13,
    b"\x16\x03\x01",
]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Requests with something put into them, taken out of them, or between them."""
    data = b""
    for raw in draw(st.lists(st.sampled_from(WELL_FORMED), max_size=4)):
        match draw(st.sampled_from(["whole", "whole", "scrap", "cut", "flip"])):
            case "whole":
                data += raw
            case "scrap":
                at = draw(st.integers(0, len(raw)))
                data += raw[:at] + draw(st.sampled_from(SCRAPS)) + raw[at:]
            case "cut":
                first, second = sorted(draw(st.tuples(st.integers(0, len(raw)), st.integers(0, len(raw)))))
                data += raw[:first] + raw[second:]
            case _:
                at = draw(st.integers(0, len(raw) - 1))
                data += raw[:at] + bytes([draw(st.integers(0, 255))]) + raw[at + 1 :]
    return data


async def ask(data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    """What a connection answers when `data` comes in pieces."""
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with House(LIMITS) as house:
        async with house.peer() as peer:
            edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
            for start, end in pairwise(edges):
                await peer.send(data[start:end])
                for _ in range(4):
                    await asyncio.sleep(0)
            peer.end()
            found = await answers(await peer.rest())
        await house.closed()
    assert not failures
    return [(answer.status, answer.body if answer.status == 200 else b"") for answer in found]


@settings(max_examples=150)
@given(streams(), st.lists(st.integers(0, 2000), max_size=4))
def test_any_bytes_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    """The same answers as in one piece: 200s, and at most one refusal, which is the last."""
    found = asyncio.run(ask(data, cuts))
    assert all(status == 200 for status, _ in found[:-1])
    assert all(status in {200, 400, 431} for status, _ in found[-1:])
    whole = asyncio.run(ask(data, []))
    assert [one for one in found if one[0] == 200] == [one for one in whole if one[0] == 200]


@settings(max_examples=100)
@given(st.binary(max_size=300), st.lists(st.integers(0, 2000), max_size=3))
def test_any_bytes_at_all(data: bytes, cuts: list[int]) -> None:
    """No noise is a request, and none is an error of ours."""
    assert asyncio.run(ask(data, cuts)) in ([], [(400, b"")], [(431, b"")])
