"""Header fields and reason phrases as bytes, both ways: what one peer sent is what the other got, but for the documented lines."""

import asyncio
import gzip
import subprocess
from pathlib import Path

import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.peer import FRAMING, OURS_TO_CLIENT, OURS_TO_UPSTREAM, ask, guarded, lines_of, request, slug, without
from tests.http.wire.stub import DATE, FIN, reply
from tests.support.client import Answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = b"default-src " + b"x" * 9000
ODD = [
    b"X-A: 1",
    b"Set-Cookie: a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT; Path=/",
    b"x-CaSe: y",
    DATE,
    b"Set-Cookie: b=2; Expires=Tue, 22 Oct 2030 07:28:00 GMT",
    b"set-cookie: a=1",
    b"Link: </x>; rel=a, </y>; rel=b",
    b"Link: </z>; rel=c",
    b"X-Name: caf\xe9",
    b"X-Utf8: caf\xc3\xa9",
    b"X-Empty: ",
    b"X-Tab: a\tb",
    b"X-Commas: ,,a,,",
    b"X!#$%&'*+-.^_`|~9: token",
    b"Content-Security-Policy: " + LONG,
    b"SERVER: odd/1 (really)",
    b"x-a: 2",
    b"X-A: 1",
    b"Location: /v1/pay/9",
    b'ETag: W/"x"',
    b"Vary: Accept-Encoding",
    b"Cache-Control: private, no-transform",
]
"""RFC 9110 section 5.3: no reordering of lines of one name. Section 5.5: other octets are opaque. There is no Content-Type."""
BODY = b"\x00\xff\r\n\r\nHTTP/1.1 200 OK\r\n"

FRAMED = {
    "length": (b"Content-Length: %d" % len(BODY), BODY, "keep"),
    "chunked": (b"Transfer-Encoding: chunked", b"%x;ext=1\r\n%b\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(BODY), BODY), "keep"),
    "until close": (b"X-Close: 1", BODY, FIN),
}
HOPS = {"unguarded": b"/plain", "guarded": b"/v1/pay", "streaming": b"/v1/stream"}


def post(hop: str, case: bytes, *lines: bytes, body: bytes = b"{}") -> bytes:
    """The same request on an unguarded, a guarded or a streaming route."""
    if hop == "unguarded":
        return request(case, b"/plain", *lines, method=b"POST", body=body)
    return guarded(case, *lines, target=HOPS[hop], body=body)


def message(status_line: bytes, lines: list[bytes], body: bytes = b"") -> bytes:
    return b"\r\n".join([status_line, *lines, b"", body])


def added(answer: Answer, *names: bytes) -> bool:
    """Whether each of these lines is there exactly once."""
    have = [name.lower() for name, _ in answer.fields]
    return all(have.count(name) == 1 for name in names)


@pytest.mark.parametrize("framing", FRAMED)
@pytest.mark.parametrize("hop", HOPS)
async def test_every_line_of_an_answer_is_the_peers(wire: Wire, hop: str, framing: str) -> None:
    """RFC 9110 5.3, 5.5: same lines, order, case, count and bytes; nothing is added but the request id and our framing."""
    line, body, then = FRAMED[framing]
    case = slug(f"odd {hop} {framing}")
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 201 Very  Cr\xe9ated!", [*ODD, line], body), then)
    first = await ask(wire.port, post(hop, case))
    assert (first.status, first.reason, first.body) == (201, b"Very  Cr\xe9ated!", BODY)
    assert without(lines_of(first), OURS_TO_CLIENT, FRAMING) == without([*ODD, line], FRAMING)
    assert added(first, b"x-request-id")
    if hop == "unguarded":
        return
    again = await ask(wire.port, post(hop, case))
    assert (again.status, again.reason, again.body) == (201, b"Very  Cr\xe9ated!", BODY)
    assert without(lines_of(again), OURS_TO_CLIENT, FRAMING) == without([*ODD, line], FRAMING, {b"set-cookie"})
    assert added(again, b"x-request-id", b"idempotent-replayed", b"original-request")
    assert again.field("original-request") == first.field("x-request-id")
    assert wire.stub.runs[case] == 1


async def test_direct_first_and_replayed_answers_are_the_same_to_cmp(wire: Wire, tmp_path: Path) -> None:
    """RFC 9110 7.7: heads and bodies in files, without the documented lines, are the same bytes to the `cmp` command."""
    case = b"cmp"
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 201 Very Cr\xe9ated", [*ODD, b"Content-Length: %d" % len(BODY)], BODY))
    files = []
    for name, port in (("direct", wire.stub.port), ("first", wire.port), ("replayed", wire.port)):
        answer = await ask(port, guarded(case))
        taken_out = OURS_TO_CLIENT | FRAMING | {b"set-cookie"}
        lines = [answer.head.split(b"\r\n")[0], *without(lines_of(answer), taken_out), b""]
        files.append(tmp_path / name)
        files[-1].write_bytes(b"\r\n".join(lines) + b"\r\n" + answer.body)
    assert wire.stub.runs[case] == 2, "once directly, once through the gateway"
    for other in files[1:]:
        cmp = await asyncio.create_subprocess_exec("cmp", files[0], other, stdout=subprocess.PIPE)
        told, _ = await cmp.communicate()
        assert (cmp.returncode, told) == (0, b"")


REASONS = {
    "9112-4 none": b"",
    "9112-4 words": b"It's done, really: 100%!",
    "9112-4 Latin-1": b"Cr\xe9\xe9",
    "9112-4 tab": b"a\tb",
    "9112-4 blanks": b"  a  b",
}


@pytest.mark.parametrize("reason", REASONS.values(), ids=REASONS.keys())
@pytest.mark.parametrize("hop", ["unguarded", "guarded"])
async def test_reason_phrases_are_kept(wire: Wire, hop: str, reason: bytes) -> None:
    """RFC 9112 4: the phrase is the peer's, first time and replayed, whatever it says, also with a status that nobody knows."""
    case = slug(f"reason {hop} {reason!r}")
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 299 " + reason, [DATE, b"Content-Length: 0"]))
    for _ in range(2):
        answer = await ask(wire.port, post(hop, case))
        assert (answer.status, answer.reason) == (299, reason)


@pytest.mark.parametrize("hop", ["unguarded", "guarded"])
async def test_an_answer_without_a_date_gets_the_one_of_its_receipt(wire: Wire, hop: str) -> None:
    """RFC 9110 6.6.1: a Date is appended where there is none, once, and the replay has the same one."""
    case = slug(f"no date {hop}")
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 200 OK", [b"Content-Length: 0"]))
    first, again = [await ask(wire.port, post(hop, case)) for _ in range(2)]
    assert added(first, b"date")
    assert added(again, b"date")
    assert hop == "unguarded" or first.field("date") == again.field("date")


HOP_LINES = [
    b"Connection: ",
    b"Connection: X-Secret, keep-alive, X-Listed",
    b"X-Secret: 1",
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: keep-alive",
    b"TE: trailers",
    b"Trailer: X-T",
    b"X-Kept: 1",
    b"x-listed: 2",
    b"connection: x-other",
    b"X-Other: 2",
]


@pytest.mark.parametrize("hop", HOPS)
async def test_hop_by_hop_lines_of_an_answer_end_here(wire: Wire, hop: str) -> None:
    """RFC 9110 7.6.1: what all Connection lines nominate, an empty first one too, neither crosses nor is stored."""
    case = slug(f"hop by hop {hop}")
    lines = [DATE, *HOP_LINES, b"Upgrade: h2c", b"Proxy-Authenticate: Basic", b"Content-Length: 2"]
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 200 OK", lines, b"ok"))
    for _ in range(2):
        answer = await ask(wire.port, post(hop, case))
        assert without(lines_of(answer), OURS_TO_CLIENT, FRAMING) == [DATE, b"X-Kept: 1"]
        assert answer.field("connection") is None


@pytest.mark.parametrize("hop", HOPS)
async def test_every_line_of_a_request_is_the_clients(wire: Wire, hop: str) -> None:
    """RFC 9110 5.3, 5.5: same lines, order, case, count and bytes; no User-Agent, Accept or Content-Type is made up."""
    case = slug(f"request {hop}")
    odd = [line for line in ODD if not line.lower().startswith(b"set-cookie")] + [b"Cookie: a=1", b"cookie: b=2", b"X-Forward-Foo: 1"]
    await ask(wire.port, post(hop, case, *odd))
    seen = wire.stub.one(case)
    sent = post(hop, case, *odd).partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    assert without(seen.lines, OURS_TO_UPSTREAM, FRAMING) == without(sent, {b"host"}, FRAMING)
    assert seen.values(b"Host") == [b"gateway.test"]
    assert len(seen.values(b"Via")) == len(seen.values(b"X-Request-Id")) == 1
    names = {line.partition(b":")[0].lower() for line in seen.lines}
    assert names <= {line.partition(b":")[0].lower() for line in sent} | OURS_TO_UPSTREAM | FRAMING


@pytest.mark.parametrize("hop", HOPS)
async def test_hop_by_hop_lines_of_a_request_end_here(wire: Wire, hop: str) -> None:
    """RFC 9110 7.6.1: nominated fields go whichever Connection line names them; nobody speaks for another address."""
    case = slug(f"request hop by hop {hop}")
    spoofed = [b"X-Forwarded-For: 6.6.6.6", b"X-Forwarded-For: 7.7.7.7", b"Forwarded: for=10.0.0.1;host=evil", b"X-Real-IP: 6.6.6.6"]
    extra = [b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__", b"Proxy-Authorization: Basic eA==", b"Connection: X-Forwarded-For"]
    await ask(wire.port, post(hop, case, *HOP_LINES, *spoofed, *extra))
    seen = wire.stub.one(case)
    own = {b"x-case", b"authorization", b"idempotency-key"}
    assert without(seen.lines, OURS_TO_UPSTREAM, {b"content-length"}, own) == [b"X-Kept: 1"]
    assert seen.values(b"X-Forwarded-For") == [b"127.0.0.1"]


async def test_nominating_the_key_does_not_switch_protection_off(wire: Wire) -> None:
    """RFC 9110 7.6.1 would let a client strip its own key: it stays, as do credentials, and the retry is a replay."""
    raw = guarded(b"nominated", b"Connection: Idempotency-Key, Authorization, Content-Type", b"Content-Type: application/json")
    first, again = [await ask(wire.port, raw) for _ in range(2)]
    assert (first.status, again.field("idempotent-replayed")) == (201, b"true")
    seen = wire.stub.one(b"nominated")
    assert seen.values(b"Idempotency-Key") == [b"nominated"]
    assert seen.values(b"Authorization") == [b"Bearer tenant-a"]


PER_EXCHANGE = [
    b"Set-Cookie: s=1",
    b'WWW-Authenticate: Basic realm="x"',
    b"Authentication-Info: nextnonce=1",
    b"Proxy-Authentication-Info: nextnonce=1",
    b"Proxy-Status: elsewhere; received-status=200",
    b"Retry-After: 3",
    b"RateLimit: limit=1",
    b"RateLimit-Remaining: 1",
    b"X-RateLimit-Limit: 1",
    b"X-Rate-Limit-Reset: 1",
    b"Server-Timing: db;dur=1",
    b'Alt-Svc: h3=":443"',
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"tracestate: a=1",
    b"Via: 1.1 other",
    b"Request-Id: r1",
]


@pytest.mark.parametrize("line", PER_EXCHANGE, ids=lambda line: line.partition(b":")[0].decode())
async def test_fields_about_one_exchange_are_passed_on_once_and_never_replayed(wire: Wire, line: bytes) -> None:
    """RFC 9111 7.3, 9110 6.6.1: the first answer has the line, the replay has not."""
    case = slug(f"exchange {line!r}")
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 200 OK", [DATE, line, b"Content-Length: 0"]))
    first, again = [await ask(wire.port, guarded(case)) for _ in range(2)]
    assert without(lines_of(first), OURS_TO_CLIENT, FRAMING) == [DATE, line]
    assert without(lines_of(again), OURS_TO_CLIENT, FRAMING) == [DATE]


@pytest.mark.parametrize("hop", HOPS)
async def test_a_peers_own_marks_of_a_replay_are_removed(wire: Wire, hop: str) -> None:
    """Only the gateway says that an answer is a replay, on every route; the request id is the one of our log."""
    case = slug(f"lie {hop}")
    lies = [b"idempotent-replayed: true", b"Original-Request: r0", b"X-Request-Id: r0"]
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 200 OK", [DATE, *lies, b"Content-Length: 0"]))
    answer = await ask(wire.port, post(hop, case, b"X-Request-Id: mine"))
    assert (answer.field("idempotent-replayed"), answer.field("original-request")) == (None, None)
    assert [value for name, value in answer.fields if name.lower() == b"x-request-id"] == [b"mine"]


CODED = {
    "gzip": (b"gzip", gzip.compress(b'{"amount":100}' * 10, mtime=0)),
    "gzip in name only": (b"gzip", b"no gzip at all"),
    "half a gzip": (b"gzip", gzip.compress(b"x" * 1000, mtime=0)[:20]),
    "a bomb": (b"gzip", gzip.compress(b"\0" * 10_000_000, mtime=0)),
    "twice": (b"deflate, br", b"\x00\x01\x02"),
    "unknown": (b"x-rot13", b"uryyb"),
}


@pytest.mark.parametrize("coded", CODED)
@pytest.mark.parametrize("hop", HOPS)
async def test_coded_bodies_are_neither_opened_nor_packed(wire: Wire, hop: str, coded: str) -> None:
    """RFC 9110 7.7, 8.4: the bytes and their Content-Encoding cross both ways and come back replayed, whoever can decode them."""
    coding, body = CODED[coded]
    case = slug(f"coded {hop} {coded}")
    lines = [DATE, b"Content-Encoding: " + coding, b"Content-Length: %d" % len(body)]
    wire.stub.scripts[case] = reply(message(b"HTTP/1.1 200 OK", lines, body))
    for _ in range(2):
        answer = await ask(wire.port, post(hop, case, b"Content-Encoding: " + coding, body=body))
        assert (answer.status, answer.body, answer.field("content-encoding")) == (200, body, coding)
    seen = wire.stub.of(case)[0]
    assert (seen.body, seen.values(b"Content-Encoding")) == (body, [coding])
    assert seen.values(b"Accept-Encoding") == []
