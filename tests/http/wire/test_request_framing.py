"""Where a request ends: what is framed in two ways is refused, and nothing behind a refusal is ever taken for a request."""

import asyncio

import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.peer import ask, connect, rest, slug, until
from tests.support.client import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: gateway.test\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
TARGETS = {"unguarded": b"/plain", "guarded": b"/v1/pay"}


def framed(
    case: bytes, target: bytes, *lines: bytes, body: bytes = b"", version: bytes = b"HTTP/1.1", host: bytes = b"Host: gateway.test\r\n"
) -> bytes:
    """A POST with a key, with these lines and bytes behind its head as they stand."""
    own = (b"X-Case: " + case, b"Authorization: Bearer tenant-a", b"Idempotency-Key: " + case)
    return b"POST %b %b\r\n%b%b\r\n\r\n%b" % (target, version, host, b"\r\n".join((*own, *lines)), body)


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


INSIDE = b"3\r\nabc\r\n0\r\n\r\n" + SMUGGLED
LENGTH = b"Content-Length: %d" % len(INSIDE)

MALFORMED: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    "9112-6.1 length, then coding": ((LENGTH, CHUNKED), INSIDE),
    "9112-6.1 coding, then length": ((CHUNKED, LENGTH), INSIDE),
    "9112-6.1 coding in capitals beside a length": ((b"TRANSFER-ENCODING: CHUNKED", b"content-length: 3"), INSIDE),
    "9112-6.3 two equal lengths": ((b"Content-Length: 3", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-6.3 two different lengths": ((b"Content-Length: 3", b"Content-Length: 60"), b"abc" + SMUGGLED),
    "9112-6.3 length with a plus": ((b"Content-Length: +3",), b"abc" + SMUGGLED),
    "9112-6.3 length in hex": ((b"Content-Length: 0x3",), b"abc" + SMUGGLED),
    "9112-6.3 length as a list": ((b"Content-Length: 3, 3",), b"abc" + SMUGGLED),
    "9112-6.3 negative length": ((b"Content-Length: -1",), b"abc" + SMUGGLED),
    "9112-6.3 empty length": ((b"Content-Length: ",), SMUGGLED),
    "9112-6.3 length with an underscore": ((b"Content-Length: 1_0",), b"abc" + SMUGGLED),
    "9112-6.3 length in other digits": (("Content-Length: \uff13".encode(),), b"abc" + SMUGGLED),
    "9112-6.3 two numbers": ((b"Content-Length: 3 3",), b"abc" + SMUGGLED),
    "9112-6.3 overlong length": ((b"Content-Length: 99999999999999999999999999",), b"abc" + SMUGGLED),
    "9112-6.3 chunked is not the last": ((b"Transfer-Encoding: chunked, identity",), INSIDE),
    "9112-6.3 chunked twice": ((CHUNKED, CHUNKED), INSIDE),
    "9112-6.3 chunked twice in one line": ((b"Transfer-Encoding: chunked, chunked",), INSIDE),
    "9112-6.3 two codings": ((CHUNKED, b"Transfer-Encoding: identity"), INSIDE),
    "9112-6.3 identity": ((b"Transfer-Encoding: identity", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-6.1 a vertical tab": ((b"Transfer-Encoding: \x0bchunked",), INSIDE),
    "9112-5.1 blank before the colon": ((b"Transfer-Encoding : chunked",), INSIDE),
    "9112-5.1 blank before the colon of a length": ((b"Content-Length : 3",), b"abc" + SMUGGLED),
    "9112-5.1 blank within a name": ((b"X Y: 1", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-5.1 no colon": ((b"X-Y", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-5.1 no name": ((b": 1", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-5.2 folded line": ((b"X-Y: 1\r\n Transfer-Encoding: chunked", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-5.2 folded by a tab": ((b"X-Y:\r\n\tz", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-2.2 blank first line": ((b" X-Y: 1", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-2.2 bare LF between lines": ((b"X-Y: 1\nTransfer-Encoding: chunked",), INSIDE),
    "9112-2.2 bare CR between lines": ((b"X-Y: 1\rTransfer-Encoding: chunked",), INSIDE),
    "9112-2.2 bare CR in a value": ((b"X-Y: a\rb", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-2.2 bare LF ends the head": ((b"Content-Length: 3\n",), b"abc" + SMUGGLED),
    "9110-5.5 NUL in a value": ((b"X-Y: a\x00b", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9110-5.5 control in a value": ((b"X-Y: a\x01b", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9110-5.6.2 control in a name": ((b"X-\x7fY: 1", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9110-5.6.2 Latin-1 in a name": ((b"X-\xe9: 1", b"Content-Length: 3"), b"abc" + SMUGGLED),
    "9112-7.1 chunk size in 0x": ((CHUNKED,), b"0x3\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 chunk size with a plus": ((CHUNKED,), b"+3\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 negative chunk size": ((CHUNKED,), b"-3\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 chunk size with an underscore": ((CHUNKED,), b"0_3\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 blank before a chunk size": ((CHUNKED,), b" 3\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 no chunk size": ((CHUNKED,), b"\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 overlong chunk size": ((CHUNKED,), b"10000000000000003\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 chunk longer than its size": ((CHUNKED,), b"3\r\nabcd\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 bare LF behind a chunk size": ((CHUNKED,), b"3\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 bare CR behind a chunk size": ((CHUNKED,), b"3\rabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 bare LF behind a chunk": ((CHUNKED,), b"3\r\nabc\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1 bare LF behind the last chunk": ((CHUNKED,), b"3\r\nabc\r\n0\n\n" + SMUGGLED),
    "9112-7.1.1 bare LF in an extension": ((CHUNKED,), b"3;a\nb\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1.1 bare CR in an extension": ((CHUNKED,), b"3;a\rb\r\nabc\r\n0\r\n\r\n" + SMUGGLED),
    "9112-7.1.2 broken trailer": ((CHUNKED,), b"3\r\nabc\r\n0\r\nX Y: 1\r\n\r\n" + SMUGGLED),
    "9112-3.2 two Host lines": ((b"Host: other.test", b"Content-Length: 3"), b"abc" + SMUGGLED),
}
"""Each is 400 in our format and the end of its connection (RFC 9112 section 9.6)."""


def smuggled(wire: Wire) -> int:
    """How many requests that hid in a body have reached the peer as requests."""
    return sum(b"smuggled" in seen.request_line for seen in wire.stub.seen)


async def refused(wire: Wire, case: bytes, raw: bytes, statuses: set[int], problems: set[str]) -> None:
    """The answer, the end of the connection, and that neither this request nor the one in its body was run."""
    before = smuggled(wire)
    async with await connect(wire.port) as client:
        answer = await ask(client, raw, within=5)
        assert answer.status in statuses
        assert answer.problem in problems
        assert answer.field("x-request-id")
        assert await rest(client, within=5) == b""
    assert smuggled(wire) == before
    assert wire.stub.runs[case] == 0
    assert await wire.record(case) is None


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("name", MALFORMED)
async def test_broken_framing_is_refused_and_closed(wire: Wire, name: str, target: bytes) -> None:
    """RFC 9112 11.2: 400, the connection ends, and the request that hides in the body is never seen by anybody."""
    lines, body = MALFORMED[name]
    case = slug(f"{name} {target!r}")
    await refused(wire, case, framed(case, target, *lines, body=body), {400}, {"bad-request"})


UNSUPPORTED = {
    "9112-6.1 gzip, chunked": (b"Transfer-Encoding: gzip, chunked", {501}),
    "9112-6.1 gzip in a line of its own": (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", {400, 501}),
    "9112-6.1 unknown": (b"Transfer-Encoding: xchunked", {400, 501}),
    "9112-6.1 gzip alone": (b"Transfer-Encoding: gzip", {400, 501}),
    "9112-6.1 a parameter": (b"Transfer-Encoding: chunked;q=1", {400, 501}),
    "9112-6.1 an empty element": (b"Transfer-Encoding: chunked,", {400, 501}),
    "9112-6.1 an empty element first": (b"Transfer-Encoding: ,chunked", {400, 501}),
    "9112-6.1 quoted": (b'Transfer-Encoding: "chunked"', {400, 501}),
    "9112-6.1 empty": (b"Transfer-Encoding: ", {400, 501}),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("name", UNSUPPORTED)
async def test_other_transfer_codings_are_refused_and_closed(wire: Wire, name: str, target: bytes) -> None:
    """RFC 9112 6.1: a coding that is not understood is 501, or 400 where it leaves no length; nothing is unwrapped by halves."""
    line, statuses = UNSUPPORTED[name]
    case = slug(f"{name} {target!r}")
    await refused(wire, case, framed(case, target, line, body=INSIDE), statuses, {"bad-request", "coding-unsupported"})


VERSIONS = {
    "9112-2.3 HTTP/2.0": (b"HTTP/2.0", {505}),
    "9112-2.3 HTTP/0.9": (b"HTTP/0.9", {400, 505}),
    "9112-2.3 HTTP/3.0": (b"HTTP/3.0", {400, 505}),
    "9112-2.3 HTTP/1.2": (b"HTTP/1.2", {400, 505}),
    "9112-2.3 HTTP/1": (b"HTTP/1", {400}),
    "9112-2.3 HTTP/1.10": (b"HTTP/1.10", {400}),
    "9112-2.3 lower case": (b"http/1.1", {400}),
    "9112-2.3 another protocol": (b"RTSP/1.0", {400, 505}),
    "9112-2.3 another protocol of another version": (b"RTSP/1.1", {400, 505}),
    "9112-3 more than three words": (b"HTTP/1.1 x", {400}),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("name", VERSIONS)
async def test_other_versions_are_refused_and_closed(wire: Wire, name: str, target: bytes) -> None:
    """RFC 9110 15.6.6: versions other than 1.0 and 1.1 are told so; what is no version at all is malformed."""
    version, statuses = VERSIONS[name]
    case = slug(f"{name} {target!r}")
    raw = framed(case, target, b"Content-Length: 3", body=b"abc" + SMUGGLED, version=version)
    await refused(wire, case, raw, statuses, {"bad-request", "version-unsupported"})


async def test_the_preface_of_http2_is_no_request(wire: Wire) -> None:
    """RFC 9113 3.4: somebody who starts with HTTP/2 is refused and closed."""
    async with await connect(wire.port) as client:
        answer = await ask(client, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        assert answer.status in {400, 505}
        assert await rest(client) == b""


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_a_request_without_host_is_refused(wire: Wire, target: bytes) -> None:
    """RFC 9112 3.2: no Host in HTTP/1.1 is 400."""
    case = slug(f"no host {target!r}")
    await refused(wire, case, framed(case, target, b"Content-Length: 3", body=b"abc" + SMUGGLED, host=b""), {400}, {"bad-request"})


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_chunked_in_http10_is_refused(wire: Wire, target: bytes) -> None:
    """RFC 9112 6.1: a transfer coding in HTTP/1.0 is faulty framing."""
    case = slug(f"chunked 1.0 {target!r}")
    await refused(wire, case, framed(case, target, CHUNKED, body=INSIDE, version=b"HTTP/1.0"), {400}, {"bad-request"})


# ---- well-formed requests, framed anew


async def test_a_chunked_request_is_framed_anew(wire: Wire) -> None:
    """RFC 9112 7.1: extensions, leading zeros and trailers end here; the body is the same bytes, under one framing that is ours."""
    body = b'2;a=b;c="d"\r\n{"\r\n0004;x\r\na":1\r\n1\r\n}\r\n000\r\nIdempotency-Key: other\r\nX-Trailer: 1\r\n\r\n'
    for name, target in TARGETS.items():
        case = b"anew-" + name.encode()
        answer = await ask(wire.port, framed(case, target, CHUNKED, b"Trailer: X-Trailer", body=body))
        assert answer.status == 201
        seen = wire.stub.one(case)
        assert seen.body == b'{"a":1}'
        assert (len(seen.values(b"Content-Length")), len(seen.values(b"Transfer-Encoding"))) == ((1, 0) if name == "guarded" else (0, 1))
        assert b"railer" not in seen.head + seen.wire
        assert seen.values(b"Idempotency-Key") == [case]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("nominated", [b"Content-Length", b"Transfer-Encoding", b"Host", b"Via, X-Request-Id"])
async def test_framing_cannot_be_nominated_away(wire: Wire, target: bytes, nominated: bytes) -> None:
    """RFC 9110 7.6.1: a Connection line that names what frames or addresses a message changes neither."""
    case = slug(f"nominated {nominated!r} {target!r}")
    answer = await ask(wire.port, framed(case, target, b"Connection: " + nominated, CHUNKED, body=chunks(b"{", b"}")))
    assert answer.status == 201
    seen = wire.stub.one(case)
    assert (seen.body, seen.values(b"Host")) == (b"{}", [b"gateway.test"])
    assert len(seen.values(b"Via")) == len(seen.values(b"X-Request-Id")) == 1


ENDLESS = {
    "9112-7.1.2 trailers": b"2\r\n{}\r\n0\r\n" + b"".join(b"X-%d: %b\r\n" % (number, b"x" * 500) for number in range(2000)) + b"\r\n",
    "9112-7.1.1 an extension": b"2;" + b"a" * 1_000_000 + b"\r\n{}\r\n0\r\n\r\n",
    "9112-7.1 zeros before a size": b"0" * 1_000_000 + b"2\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("name", ENDLESS)
async def test_what_is_no_body_is_limited_too(wire: Wire, name: str, target: bytes) -> None:
    """RFC 9112 7.1.1, 7.1.2: extensions and trailers are bytes that somebody must hold; beyond the limit of a head nothing is run."""
    case = slug(f"{name} {target!r}")
    async with await connect(wire.port) as client:
        await client.send(framed(case, target, CHUNKED, body=ENDLESS[name]))
        answer = await asyncio.wait_for(client.receive(), 6)
        assert answer.status in {400, 431}
    assert wire.stub.runs[case] == 0
    assert await wire.record(case) is None


async def test_a_trailer_never_becomes_a_header(wire: Wire) -> None:
    """RFC 9110 6.5.1: a key or a credential behind the body is no key and no credential."""
    head = b"POST /v1/pay HTTP/1.1\r\nHost: a\r\nX-Case: trailing\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"2\r\n{}\r\n0\r\nIdempotency-Key: trailing\r\nAuthorization: x\r\n\r\n"
    async with await connect(wire.port) as client:
        answer = await ask(client, head + body)
        assert (answer.status, answer.problem) in {(400, "key-missing"), (401, "principal-missing")}
    assert wire.stub.of(b"trailing") == []


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_upgrade_to_h2c_is_dropped(wire: Wire, target: bytes) -> None:
    """RFC 9110 7.8: nothing of the upgrade reaches the upstream, whose plain answer comes back; what follows is the next request."""
    case = slug(f"h2c {target!r}")
    lines = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__", b"Content-Length: 2")
    async with await connect(wire.port) as client:
        assert (await ask(client, framed(case, target, *lines, body=b"{}"))).status == 201
        seen = wire.stub.one(case)
        assert seen.body == b"{}"
        assert [seen.values(name) for name in (b"Upgrade", b"HTTP2-Settings", b"Connection")] == [[], [], []]
        assert (await ask(client, framed(case + b"-2", target, b"Content-Length: 2", body=b"{}"))).status == 201


HTTP10 = {
    "9112-9.3 closes": ((), True),
    "9112-9.3 keep-alive": ((b"Connection: keep-alive",), False),
    "9112-9.3 close": ((b"Connection: close",), True),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("name", HTTP10)
async def test_http10_clients_are_answered_in_their_way(wire: Wire, name: str, target: bytes) -> None:
    """RFC 9112 9.3: without keep-alive the answer ends the connection; Host is not demanded of HTTP/1.0."""
    lines, closes = HTTP10[name]
    case = slug(f"{name} {target!r}")
    raw = framed(case, target, *lines, b"Content-Length: 2", body=b"{}", version=b"HTTP/1.0", host=b"")
    async with await connect(wire.port) as client:
        answer = await ask(client, raw)
        assert (answer.status, answer.body) == (201, b"created")
        assert answer.field("transfer-encoding") is None
        if closes:
            assert await rest(client) == b""
        else:
            assert (answer.field("connection") or b"").lower() == b"keep-alive"
            assert (await ask(client, raw)).status == 201


async def test_connection_close_is_kept(wire: Wire) -> None:
    """RFC 9112 9.6: who asks for the end gets it, told so in the answer; what was sent behind is never run."""
    for name, target in TARGETS.items():
        for behind in (b"", SMUGGLED):
            case, before = slug(f"close {name} {behind!r}"), smuggled(wire)
            async with await connect(wire.port) as client:
                answer = await ask(client, framed(case, target, b"Connection: close", b"Content-Length: 2", body=b"{}" + behind))
                assert answer.status == 201 or behind
                assert answer.field("connection") == b"close"
                assert await rest(client, within=5) == b""
            assert smuggled(wire) == before


async def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    """RFC 9112 9.3.2: several requests in one segment, guarded and not, with and without bodies: as many answers, in order."""
    cases = [(b"pipe-%d" % number, target) for number in range(3) for target in TARGETS.values()]
    raw = b""
    for number, (case, target) in enumerate(cases):
        line, body = (CHUNKED, chunks(b"{", b"}")) if number % 2 else (b"Content-Length: 2", b"{}")
        raw += framed(case, target, b"X-Request-Id: %d" % number, line, body=body)
    async with await connect(wire.port) as client:
        await client.send(raw)
        answers = [await client.receive() for _ in cases]
    assert [answer.field("x-request-id") for answer in answers] == [b"%d" % number for number in range(len(cases))]
    assert {answer.status for answer in answers} == {201}
    await _one_byte_at_a_time(wire)


async def _one_byte_at_a_time(wire: Wire) -> None:
    """However the bytes are cut into segments, they are the same requests."""
    async with await connect(wire.port) as client:
        for byte in framed(b"bytewise", b"/v1/pay", CHUNKED, body=b"2;x=y\r\n{}\r\n0\r\nT: 1\r\n\r\n"):
            await client.send(bytes((byte,)))
        assert (await client.receive()).status == 201
    assert wire.stub.one(b"bytewise").body == b"{}"


async def test_empty_lines_before_a_request_are_skipped(wire: Wire) -> None:
    """RFC 9112 2.2: at least one empty line before the request line is ignored, also between two requests."""
    async with await connect(wire.port) as client:
        for number in range(2):
            raw = framed(b"crlf-%d" % number, b"/plain", b"Content-Length: 2", body=b"{}")
            assert (await ask(client, b"\r\n" + raw)).status == 201


# ---- Expect


async def head_then(client: Client, raw: bytes) -> bytes:
    """Send a head alone; returns the first line of what comes back."""
    await client.send(raw)
    return await until(client, b"\r\n")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_continue_is_answered_and_ends_here(wire: Wire, target: bytes) -> None:
    """RFC 9110 10.1.1: one 100 before the body, the final answer behind it, and no Expect toward the upstream."""
    case = slug(f"expect {target!r}")
    async with await connect(wire.port) as client:
        line = await head_then(client, framed(case, target, b"Expect: 100-Continue", b"Content-Length: 2"))
        assert line == b"HTTP/1.1 100 Continue\r\n"
        assert await until(client, b"\r\n") == b"\r\n"
        answer = await ask(client, b"{}")
        assert answer.status == 201
    assert wire.stub.one(case).values(b"Expect") == []


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
async def test_another_expectation_is_417(wire: Wire, target: bytes) -> None:
    """RFC 9110 15.5.18: what cannot be met is said before anything is run, and what follows is no request."""
    case = slug(f"expectation {target!r}")
    async with await connect(wire.port) as client:
        answer = await ask(client, framed(case, target, b"Expect: 200-maybe", b"Content-Length: 2"))
        assert (answer.status, answer.problem) == (417, "expectation-failed")
    assert wire.stub.of(case) == []
    assert await wire.record(case) is None


EARLY = {
    "9110-10.1.1 bad key": (b"/v1/pay", (b"Content-Length: 2", b"Idempotency-Key: again"), 400),
    "9110-15.5.14 too long": (b"/v1/pay", (b"Content-Length: 99999999",), 413),
    "9110-10.1.1 doubtful target": (b"/v1//pay", (b"Content-Length: 2",), 400),
}


@pytest.mark.parametrize(("target", "lines", "status"), EARLY.values(), ids=EARLY.keys())
async def test_what_the_head_decides_comes_before_100(wire: Wire, target: bytes, lines: tuple[bytes, ...], status: int) -> None:
    """RFC 9110 10.1.1: a final answer instead of 100, so that the body is not sent at all."""
    case = slug(f"early {lines!r} {target!r}")
    async with await connect(wire.port) as client:
        line = await head_then(client, framed(case, target, b"Expect: 100-continue", *lines))
        assert line.startswith(b"HTTP/1.1 %d " % status)
    assert wire.stub.of(case) == []


async def test_http10_expectations_are_ignored(wire: Wire) -> None:
    """RFC 9110 10.1.1: an HTTP/1.0 client does not know 1xx: none is sent."""
    async with await connect(wire.port) as client:
        raw = framed(b"expect-10", b"/plain", b"Expect: 100-continue", b"Content-Length: 2", body=b"{}", version=b"HTTP/1.0")
        assert (await head_then(client, raw)).startswith(b"HTTP/1.1 201 ")
