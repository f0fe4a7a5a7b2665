"""What an upstream may get wrong: never stored, never run again, never a short answer that looks whole."""

import asyncio
import contextlib

import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.peer import ask, ask_or_cut, connect, guarded, request, slug, until
from tests.http.wire.stub import CREATED, DATE, FIN, KEEP, RESET, Turn, reply
from tests.support.client import Answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMUGGLED = b"HTTP/1.1 200 Smuggled\r\nContent-Length: 8\r\n\r\nsmuggled"


def ok(*lines: bytes, body: bytes = b"", status_line: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join((status_line, DATE, *lines, b"", body))


def chunked(body: bytes) -> bytes:
    return ok(b"Transfer-Encoding: chunked", body=body)


BROKEN: dict[str, tuple[bytes, str]] = {
    "9112-6.3 length and chunked": (ok(b"Content-Length: 3", b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n"), KEEP),
    "9112-6.3 chunked and length": (ok(b"Transfer-Encoding: chunked", b"Content-Length: 3", body=b"3\r\nabc\r\n0\r\n\r\n"), KEEP),
    "9112-6.3 two lengths": (ok(b"Content-Length: 3", b"Content-Length: 4", body=b"abcd"), KEEP),
    "9112-6.3 length with a plus": (ok(b"Content-Length: +3", body=b"abc"), KEEP),
    "9112-6.3 negative length": (ok(b"Content-Length: -3", body=b"abc"), FIN),
    "9112-6.3 length in hex": (ok(b"Content-Length: 0x3", body=b"abc"), KEEP),
    "9112-6.3 overlong length": (ok(b"Content-Length: 99999999999999999999999", body=b"abc"), FIN),
    "9112-6.3 two lengths in a list": (ok(b"Content-Length: 3, 4", body=b"abc"), FIN),
    "9112-6.1 another coding": (ok(b"Transfer-Encoding: gzip, chunked", body=b"3\r\nabc\r\n0\r\n\r\n"), KEEP),
    "9112-6.1 an unknown coding": (ok(b"Transfer-Encoding: xchunked", body=b"3\r\nabc\r\n0\r\n\r\n"), FIN),
    "9112-6.1 chunked twice": (ok(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n"), KEEP),
    "9112-6.1 chunked in HTTP/1.0": (
        ok(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\n\r\n", status_line=b"HTTP/1.0 200 OK"),
        FIN,
    ),
    "9112-7.1 chunk size is no number": (chunked(b"xyz\r\nabc\r\n0\r\n\r\n"), KEEP),
    "9112-7.1 chunk size in 0x": (chunked(b"0x3\r\nabc\r\n0\r\n\r\n"), KEEP),
    "9112-7.1 overlong chunk size": (chunked(b"10000000000000003\r\nabc\r\n0\r\n\r\n"), KEEP),
    "9112-7.1 chunk longer than its size": (chunked(b"3\r\nabcd\r\n0\r\n\r\n"), KEEP),
    "9112-7.1 bare LF": (chunked(b"3\nabc\n0\n\n"), KEEP),
    "9112-8 short length, FIN": (ok(b"Content-Length: 10", body=b"abc"), FIN),
    "9112-8 short length, RST": (ok(b"Content-Length: 10", body=b"abc"), RESET),
    "9112-8 no last chunk": (chunked(b"3\r\nabc\r\n"), FIN),
    "9112-8 half a chunk": (chunked(b"a\r\nabc"), FIN),
    "9112-8 half a last chunk": (chunked(b"3\r\nabc\r\n0\r\n"), FIN),
    "9112-8 no last chunk, RST": (chunked(b"3\r\nabc\r\n"), RESET),
    "9112-8 until close, RST": (ok(body=b"abc"), RESET),
    "9112-8 half a head": (b"HTTP/1.1 200 OK\r\nContent-Len", FIN),
    "9112-8 only a status line": (b"HTTP/1.1 200 OK\r\n", FIN),
    "9112-8 nothing, FIN": (b"", FIN),
    "9112-8 nothing, RST": (b"", RESET),
    "9112-8 only 100": (b"HTTP/1.1 100 Continue\r\n\r\n", FIN),
    "9110-15.2.2 101 unasked": (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n" + SMUGGLED, KEEP),
    "9112-2.3 HTTP/2.0": (CREATED.replace(b"HTTP/1.1", b"HTTP/2.0"), KEEP),
    "9112-2.3 HTTP/0.9": (CREATED.replace(b"HTTP/1.1", b"HTTP/0.9"), KEEP),
    "9112-4 garbage": (b"garbage\r\n\r\n", KEEP),
    "9112-4 a body alone": (b'{"id":"pay_1"}', FIN),
    "9112-4 another protocol": (b"ICY 200 OK\r\n\r\n", FIN),
    "9112-4 TLS": (b"\x15\x03\x01\x00\x02\x02\x16", FIN),
    "9112-4 a short status": (CREATED.replace(b"201", b"20"), KEEP),
    "9112-4 a long status": (CREATED.replace(b"201", b"2010"), KEEP),
    "9112-4 status in letters": (CREATED.replace(b"201", b"abc"), KEEP),
    "9110-15 status 099": (CREATED.replace(b"201", b"099"), KEEP),
    "9112-5 no colon": (ok(b"X-A", b"Content-Length: 0"), KEEP),
    "9112-2.2 a head without end": (b"HTTP/1.1 200 OK\r\n" + b"X-A: %b\r\n" % (b"a" * 1000) * 400, FIN),
}
"""RFC 9112 section 6.3: a proxy answers 502 and closes the connection to the upstream."""


@pytest.mark.parametrize("name", BROKEN)
async def test_a_guarded_request_is_in_doubt_after_a_broken_answer(wire: Wire, name: str) -> None:
    """RFC 9112 6.3, 8: 502 outcome-unknown, a record that says `unknown`, a retry that is told so, and one run."""
    raw, then = BROKEN[name]
    case = slug(f"guarded {name}")
    wire.stub.scripts[case] = reply(raw, then)
    answer = await ask(wire.port, guarded(case))
    assert (answer.status, answer.problem) == (502, "outcome-unknown")
    await _stays_unknown(wire, case)


async def _stays_unknown(wire: Wire, case: bytes, target: bytes = b"/v1/pay") -> None:
    wire.stub.scripts[case] = reply(CREATED)
    record = await wire.record(case)
    assert record is not None
    assert record[0] == "unknown"
    again = await ask(wire.port, guarded(case, target=target))
    assert (again.status, again.problem) == (409, "outcome-unknown")
    assert len(wire.stub.of(case)) == 1
    broken = wire.stub.one(case).connection
    await wire.stub.until(lambda: broken not in wire.stub.open)


@pytest.mark.parametrize("name", BROKEN)
async def test_a_streaming_request_is_in_doubt_after_a_broken_answer(wire: Wire, name: str) -> None:
    """RFC 9112 8: what is being relayed already is cut, what is not is 502; the record says `unknown` either way."""
    raw, then = BROKEN[name]
    case = slug(f"stream {name}")
    wire.stub.scripts[case] = reply(raw, then)
    answer = await ask_or_cut(wire.port, guarded(case, target=b"/v1/stream"))
    assert answer is None or (answer.status, answer.problem) == (502, "outcome-unknown")
    await _stays_unknown(wire, case, b"/v1/stream")


@pytest.mark.parametrize("name", BROKEN)
async def test_an_unguarded_client_never_takes_a_broken_answer_for_whole(wire: Wire, name: str) -> None:
    """RFC 9112 6.3, 8: 502 upstream-failed, or a transfer that is cut; the peer's connection is given up, and POSTs are not repeated."""
    raw, then = BROKEN[name]
    case = slug(f"plain {name}")
    wire.stub.scripts[case] = reply(raw, then)
    answer = await ask_or_cut(wire.port, request(case, method=b"POST", body=b"{}"))
    assert answer is None or (answer.status, answer.problem) == (502, "upstream-failed")
    broken = wire.stub.one(case).connection
    await wire.stub.until(lambda: broken not in wire.stub.open)
    assert (await ask(wire.port, request(case + b"-next"))).status == 201


BIG = b"x" * 200_000
CUT = {
    "9112-8 short length": (ok(b"Content-Length: 300000", body=BIG), FIN),
    "9112-8 no last chunk": (chunked(b"%x\r\n%b\r\n" % (len(BIG), BIG)), FIN),
    "9112-8 until close, RST": (ok(body=BIG), RESET),
    "9112-7.1 broken chunk": (chunked(b"%x\r\n%b\r\nxyz" % (len(BIG), BIG)), KEEP),
}


@pytest.mark.parametrize("target", [b"/plain", b"/v1/stream", b"/v1/small"])
@pytest.mark.parametrize("old", [False, True], ids=["1.1", "1.0"])
@pytest.mark.parametrize("name", CUT)
async def test_a_relayed_answer_that_breaks_is_cut(wire: Wire, name: str, target: bytes, old: bool) -> None:
    """RFC 9112 8: once bytes have left, only a cut says that they are not all: no last chunk, and no clean end for HTTP/1.0."""
    raw, then = CUT[name]
    case = slug(f"cut {name} {target!r} {old}")
    wire.stub.scripts[case] = reply(raw, then)
    message = request(case) if target == b"/plain" else guarded(case, target=target)
    answer = await ask_or_cut(wire.port, message.replace(b"HTTP/1.1", b"HTTP/1.0", 1) if old else message)
    assert answer is None or answer.status == 502
    if target != b"/plain":
        await _stays_unknown(wire, case, target)


async def test_an_upstream_that_says_nothing_is_a_timeout(wire: Wire) -> None:
    """RFC 9110 15.6.5: 504, `unknown` on a guarded route; a body that stops in the middle likewise."""

    async def silent(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await turn.left()

    async def stops(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await turn.say(ok(b"Content-Length: 10", body=b"abc"))
        await turn.left()

    async def one(case: bytes) -> tuple[Answer | None, Answer | None]:
        return await asyncio.gather(ask_or_cut(wire.port, guarded(case)), ask_or_cut(wire.port, request(case + b"-plain")))

    for case, script in ((b"silent", silent), (b"stops", stops)):
        wire.stub.scripts[case] = wire.stub.scripts[case + b"-plain"] = script
    for guard, plain in await asyncio.gather(one(b"silent"), one(b"stops")):
        assert guard is not None
        assert (guard.status, guard.problem) == (504, "outcome-unknown")
        assert plain is None or (plain.status, plain.problem) == (504, "upstream-failed")
    await _stays_unknown(wire, b"silent")
    await _stays_unknown(wire, b"stops")


CROOKED: dict[str, tuple[bytes, bytes | None, bytes | None]] = {
    "9112-2.2 bare LF": (CREATED.replace(b"\r\n", b"\n"), None, b"created"),
    "9112-5.1 blank before a colon": (ok(b"X-A : a", b"Content-Length : 2", body=b"ok"), b"a", b"ok"),
    "9112-5.2 folded line": (ok(b"X-A: a\r\n b", b"Content-Length: 2", body=b"ok"), b"a b", b"ok"),
    "9110-5.5 control characters": (ok(b"X-A: a\x00b\rc\x1bd", b"Content-Length: 2", body=b"ok"), b"a b c d", b"ok"),
    "9112-4 control character in the reason": (ok(b"Content-Length: 2", body=b"ok", status_line=b"HTTP/1.1 200 O\x00K"), None, b"ok"),
    "9110-8.6 two equal lengths": (ok(b"Content-Length: 2", b"Content-Length: 2", body=b"ok"), None, b"ok"),
    "9112-7.1.1 spaces behind a chunk size": (chunked(b"2   \r\nok\r\n0 \r\n\r\n"), None, b"ok"),
}


@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay", b"/v1/stream"])
@pytest.mark.parametrize("name", CROOKED)
async def test_an_answer_that_can_be_read_in_one_way_only_is_taken(wire: Wire, name: str, target: bytes) -> None:
    """RFC 9112 2.2, 5.1, 5.2, RFC 9110 5.5, 8.6: put right, passed on and kept like any other: the operation ran."""
    raw, value, body = CROOKED[name]
    case = slug(f"{name} {target!r}")
    wire.stub.scripts[case] = reply(raw)
    message = request(case) if target == b"/plain" else guarded(case, target=target)
    for _ in range(2):
        answer = await ask(wire.port, message)
        assert (answer.status // 100, answer.body, answer.field("x-a")) == (2, body, value)
        assert sum(name.lower() == b"content-length" for name, _ in answer.fields) <= 1
    assert len(wire.stub.of(case)) == (2 if target == b"/plain" else 1)


EXTRA = {
    "9112-9.2 behind a length": (CREATED + SMUGGLED, 201, b"created"),
    "9112-9.2 behind a last chunk": (chunked(b"2\r\nok\r\n0\r\n\r\n") + SMUGGLED, 200, b"ok"),
    "9112-6.3 behind a 204": (ok(status_line=b"HTTP/1.1 204 No Content") + SMUGGLED, 204, b""),
    "9112-6.3 in a 204": (ok(b"Content-Length: 5", body=b"hello", status_line=b"HTTP/1.1 204 No Content"), 204, b""),
    "9112-6.3 behind a 304": (ok(b"Content-Length: 5", body=b"hello", status_line=b"HTTP/1.1 304 Not Modified"), 304, b""),
}


@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay", b"/v1/stream"])
@pytest.mark.parametrize("name", EXTRA)
async def test_bytes_behind_an_answer_are_nobodys(wire: Wire, name: str, target: bytes) -> None:
    """RFC 9112 9.2: a clean answer, or doubt; the connection is given up and the next request gets an answer of its own."""
    raw, status, body = EXTRA[name]
    case = slug(f"{name} {target!r}")
    wire.stub.scripts[case] = reply(raw)
    answer = await ask_or_cut(wire.port, request(case) if target == b"/plain" else guarded(case, target=target))
    assert answer is None or (answer.status, answer.body) == (status, body) or answer.status == 502
    extra = wire.stub.one(case).connection
    await wire.stub.until(lambda: extra not in wire.stub.open)
    following = await ask(wire.port, request(case + b"-next"))
    assert (following.status, following.body) == (201, b"created")


async def test_head_answers_with_a_body_are_cut_behind_the_head(wire: Wire) -> None:
    """RFC 9110 9.3.2: what an upstream sends behind the head of a HEAD answer is nobody's."""
    wire.stub.scripts[b"head-body"] = reply(ok(b"Content-Length: 8", body=b"smuggled"))
    async with await connect(wire.port) as client:
        answer = await ask(client, request(b"head-body", method=b"HEAD"), head_only=True)
        assert (answer.status, answer.field("content-length")) == (200, b"8")
        assert (await ask(client, request(b"head-body-next"))).body == b"created"


LINKS = b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>; rel=preload\r\nX-odd: caf\xe9\r\n\r\n"
HINTS = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + LINKS


async def test_interim_answers_precede_the_one_that_counts(wire: Wire) -> None:
    """RFC 9110 15.2: the record holds the final answer, not an interim one; a retry gets that alone."""
    wire.stub.scripts[b"hints"] = reply(HINTS + CREATED)
    first, again = [await ask(wire.port, guarded(b"hints")) for _ in range(2)]
    assert (first.status, first.body) == (again.status, again.body) == (201, b"created")
    assert again.field("link") is None
    assert wire.stub.runs[b"hints"] == 1


async def test_interim_answers_are_forwarded(wire: Wire) -> None:
    """RFC 9110 15.2: a proxy forwards 1xx that it did not ask for itself, with their fields; never to an HTTP/1.0 client."""
    wire.stub.scripts[b"hints-plain"] = reply(HINTS + CREATED)
    async with await connect(wire.port) as client:
        await client.send(request(b"hints-plain"))
        interim = [await until(client, b"\r\n\r\n") for _ in range(2)]
        assert interim[0].startswith(b"HTTP/1.1 102 Processing\r\n")
        assert interim[1].startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>; rel=preload\r\nX-odd: caf\xe9\r\n")
        assert (await client.receive()).status == 201
    async with await connect(wire.port) as client:
        await client.send(request(b"hints-plain").replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert (await until(client, b"\r\n")).startswith(b"HTTP/1.1 201 ")


async def test_interim_answers_alone_are_no_answer(wire: Wire) -> None:
    """RFC 9110 15.2: an upstream that sends nothing but 1xx is one that does not answer in time."""

    async def hinting(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        with contextlib.suppress(ConnectionError):
            for _ in range(60):
                await turn.say(LINKS)
                await asyncio.sleep(0.1)
        turn.over = True

    wire.stub.scripts[b"endless"] = wire.stub.scripts[b"endless-plain"] = hinting
    guard, plain = await asyncio.gather(ask(wire.port, guarded(b"endless")), ask(wire.port, request(b"endless-plain")))
    assert (guard.status, guard.problem) == (504, "outcome-unknown")
    assert (plain.status, plain.problem) == (504, "upstream-failed")
    await _stays_unknown(wire, b"endless")


@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay"])
async def test_large_heads_are_relayed(wire: Wire, target: bytes) -> None:
    """A head of 100 KiB in long and in many lines is an answer like any other, first time and replayed."""
    lines = [b"X-Long: " + b"x" * 60_000, *(b"X-%d: %b" % (number, b"y" * 100) for number in range(400))]
    case = slug(f"huge {target!r}")
    wire.stub.scripts[case] = reply(ok(*lines, b"Content-Length: 0"))
    for _ in range(2):
        answer = await ask(wire.port, request(case) if target == b"/plain" else guarded(case))
        assert answer.status == 200
        assert [line for line in answer.head.split(b"\r\n") if line in lines] == lines


async def test_an_early_answer_is_relayed_and_its_connection_given_up(wire: Wire) -> None:
    """RFC 9112 9.3, 9110 10.1.1: an answer before the request has ended goes out at once; that connection is not used again."""

    async def early(turn: Turn) -> None:
        turn.execute()
        await turn.say(b"HTTP/1.1 413 Too Early For Me\r\nContent-Length: 2\r\n\r\nno")
        await turn.left()

    wire.stub.scripts[b"early"] = early
    head = b"POST /plain HTTP/1.1\r\nHost: gateway.test\r\nX-Case: early\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with await connect(wire.port) as client:
        await client.send(head + b"5\r\nhello\r\n")
        answer = await client.receive()
        assert (answer.status, answer.reason, answer.body) == (413, b"Too Early For Me", b"no")
        await client.send(b"0\r\n\r\n")
    used = wire.stub.one(b"early").connection
    await wire.stub.until(lambda: used not in wire.stub.open)
    assert (await ask(wire.port, request(b"early-next"))).status == 201


async def test_an_early_answer_to_a_large_guarded_request_is_its_answer(wire: Wire) -> None:
    """RFC 9112 9.3: the upstream need not read it all: what it said is stored, and the retry gets it."""

    async def early(turn: Turn) -> None:
        turn.execute()
        await turn.say(b"HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\nno")
        await turn.body()

    wire.stub.scripts[b"early-guarded"] = early
    body = b"x" * 1_000_000
    for _ in range(2):
        answer = await ask(wire.port, guarded(b"early-guarded", body=body))
        assert (answer.status, answer.body) == (422, b"no")
    assert wire.stub.runs[b"early-guarded"] == 1
