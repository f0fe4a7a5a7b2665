"""Request targets as bytes: forwarded as they are to the configured host, or refused; no spelling walks around a guard."""

import pytest

from tests.http.wire.conftest import Wire
from tests.http.wire.peer import ask, connect, guarded, request, rest, slug
from tests.http.wire.stub import CREATED, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEPT = {
    "3986-2.4 escapes": b"/a%2Fb/%41/(x)%28y%29/%7e?q=%2F+%20&s=%27%3A",
    "3986-2.4 lower and upper hex": b"/a%2fb%2Fc?x=%e9%E9",
    "3986-2.4 decoded twice": b"/%252e%252e/x",
    "3986-5.2.4 dot segments": b"/v1/../a/./b",
    "3986-5.2.4 leading dots": b"/../x",
    "3986-3.3 invalid escape": b"/%zz",
    "3986-3.3 lone percent": b"/a%",
    "3986-3.4 empty query": b"/a?",
    "3986-3.4 query with a question mark": b"/a??b=/c?",
    "3986-3.4 brackets and pipes": b'/a?x[]=1&y={2}|^`"<>',
    "3986-3.3 parameter": b"/a;p=1/b;q",
    "9112-3.2.1 two slashes": b"//a",
    "9112-3.2.1 three slashes": b"///a//b///",
    "3986-3.3 trailing slash": b"/a/",
    "3986-3.3 case": b"/A/bC",
    "3986-3.3 encoded NUL": b"/a%00b",
    "3986-3.3 encoded line break": b"/a%0d%0aX-Injected:%201",
    "3986-3.3 sub-delims": b"/!$&'()*+,;=:@-._~",
    "9110-4.1 long": b"/" + b"a" * 7000 + b"?" + b"b" * 900,
    "9112-3.2.1 a URL in the path": b"/http://evil.test/x",
    "9112-3.2.1 a URL in the query": b"/x?u=http://evil.test/%2F",
}
"""RFC 9110 section 7.7: a proxy does not change path or query."""


@pytest.mark.parametrize("target", KEPT.values(), ids=KEPT.keys())
async def test_targets_cross_byte_for_byte(wire: Wire, target: bytes) -> None:
    """RFC 9110 7.7: the upstream's request line holds the client's target, to the byte, and its Host."""
    case = slug(f"kept {target!r}")
    answer = await ask(wire.port, request(case, target))
    assert answer.status == 201
    seen = wire.stub.one(case)
    assert seen.request_line == b"GET " + target + b" HTTP/1.1"
    assert seen.values(b"Host") == [b"gateway.test"]


ABSOLUTE = {
    "9112-3.2.2 with a path": (b"http://other.test/a?b=%2F", b"/a?b=%2F", b"other.test"),
    "9112-3.2.2 without a path": (b"http://other.test", b"/", b"other.test"),
    "9112-3.2.2 only a query": (b"http://other.test?a=1", b"/?a=1", b"other.test"),
    "9112-3.2.2 with a port": (b"http://other.test:8443/a", b"/a", b"other.test:8443"),
    "9110-4.2.4 with user information": (b"http://user:pass@other.test/a", b"/a", b"other.test"),
    "9112-3.2.2 an IPv6 address": (b"http://[::1]:81/a", b"/a", b"[::1]:81"),
    "9110-4.2.3 upper-case scheme": (b"HTTP://OTHER.test/a", b"/a", b"OTHER.test"),
    "9112-3.2.2 https": (b"https://other.test//a", b"//a", b"other.test"),
}


@pytest.mark.parametrize(("target", "path", "host"), ABSOLUTE.values(), ids=ABSOLUTE.keys())
async def test_absolute_targets_go_to_the_configured_host_with_their_own_authority(
    wire: Wire, target: bytes, path: bytes, host: bytes
) -> None:
    """RFC 9112 3.2.2: the received Host is ignored and made anew from the target; where the request goes is the route map's alone."""
    case = slug(f"absolute {target!r}")
    answer = await ask(wire.port, request(case, target))
    assert answer.status == 201
    seen = wire.stub.one(case)
    assert seen.target == path
    assert seen.values(b"Host") == [host]


AROUND = {
    "format": b"/v1/pay.json",
    "front controller": b"/index.php/v1/pay",
    "two slashes": b"//v1/pay",
    "inner slashes": b"/v1//pay",
    "slashes at the end": b"/v1/pay//",
    "dot": b"/v1/./pay",
    "dot at the end": b"/v1/pay/.",
    "dots": b"/v1/x/../pay",
    "dots above the root": b"/../v1/pay",
    "encoded dot": b"/v1/%2e/pay",
    "encoded dots": b"/%2e%2e/v1/pay",
    "dots behind": b"/v1/pay/x/..",
    "encoded letter": b"/v1/%70ay",
    "letter encoded twice": b"/v1/%2570ay",
    "letter encoded three times": b"/v1/%252570ay",
    "encoded slash": b"/v1%2Fpay",
    "encoded slash at the end": b"/v1/pay%2f",
    "encoded backslash": b"/v1%5Cpay",
    "parameter": b"/v1/pay;x=1",
    "inner parameter": b"/v1;x=1/pay",
    "parameter and dots": b"/v1/x/..;y/pay",
    "encoded parameter": b"/v1/pay%3Bx",
    "encoded NUL": b"/v1/pay%00",
    "encoded NUL and more": b"/v1/pay%00.html",
    "encoded blank": b"/v1/pay%20",
    "encoded tab": b"/v1/pay%09",
    "encoded line break": b"/v1/pay%0d%0a",
    "encoded question mark": b"/v1/pay%3Fx=1",
    "encoded fragment": b"/v1/pay%23x",
    "trailing dot": b"/v1/pay.",
    "letter case": b"/V1/Pay",
    "a host and a path": b"//evil.test/v1/pay",
    "more segments than any path has": b"/a%5Cb" * 5 + b"/a" * 2000,
    "absolute, two slashes": b"http://other.test//v1/pay",
    "absolute, dots": b"http://other.test/x/../v1/pay",
}
"""Spellings of `/v1/pay`, a guarded path, that some upstream would take for it (RFC 3986 section 6.2)."""


@pytest.mark.parametrize("target", AROUND.values(), ids=AROUND.keys())
async def test_no_spelling_of_a_guarded_path_passes_unguarded(wire: Wire, target: bytes) -> None:
    """RFC 3986 6.2: refused with or without a key, before anything is run."""
    case = slug(f"around {target!r}")
    for raw in (guarded(case, target=target), request(case, target, method=b"POST", body=b"{}")):
        answer = await ask(wire.port, raw)
        assert (answer.status, answer.problem) == (400, "target-refused")
    assert wire.stub.of(case) == []
    assert await wire.record(case) is None


async def test_a_closing_slash_is_guarded(wire: Wire) -> None:
    """It is another spelling of the path: a key is asked for, and the target goes on as it came."""
    target = b"/v1/pay/"
    bare = await ask(wire.port, request(b"closing-slash", target, method=b"POST", body=b"{}"))
    assert bare.problem in {"key-missing", "principal-missing"}
    assert (await ask(wire.port, guarded(b"closing-slash", target=target))).status == 201
    assert wire.stub.one(b"closing-slash").target == target


MALFORMED = {
    "9112-3.2 fragment": b"/v1/pay#x",
    "9112-3.2 fragment elsewhere": b"/a#b",
    "9112-3.2 NUL": b"/v1/pay\x00",
    "9112-3.2 tab": b"/v1/pay\tx",
    "9112-3.2 blank": b"/v1/pay x",
    "9112-3.2 bare CR": b"/v1/pay\rx",
    "9112-3.2 no slash": b"v1/pay",
    "9112-3.2 authority-form": b"gateway.test:80",
    "9112-3.2 empty": b"",
    "9112-3.2.4 asterisk with POST": b"*",
    "9112-3.2.2 scheme without authority": b"http:/v1/pay",
    "9112-3.2.2 no authority": b"http:///v1/pay",
}


@pytest.mark.parametrize("target", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_no_target_is_refused(wire: Wire, target: bytes) -> None:
    """RFC 9112 3.2: 400 in our format; nothing is run, with a key or without."""
    case = slug(f"malformed {target!r}")
    for raw in (guarded(case, target=target), request(case, target, method=b"POST", body=b"{}")):
        answer = await ask(wire.port, raw)
        assert answer.status == 400
        assert answer.problem in {"bad-request", "target-refused"}
    assert wire.stub.of(case) == []


async def test_absolute_target_of_a_guarded_path_is_guarded(wire: Wire) -> None:
    """RFC 9112 3.2.2: another authority is no way around: no key is 400, a key runs once and replays, in either form."""
    target = b"http://other.test/v1/pay"
    bare = await ask(wire.port, request(b"absolute-guard", target, method=b"POST", body=b"{}"))
    assert (bare.status, bare.problem) in {(400, "key-missing"), (401, "principal-missing")}
    first = await ask(wire.port, guarded(b"absolute-guard", target=target))
    assert first.status == 201
    again = await ask(wire.port, guarded(b"absolute-guard", target=target))
    assert again.field("idempotent-replayed") == b"true"
    assert wire.stub.runs[b"absolute-guard"] == 1
    assert wire.stub.one(b"absolute-guard").target == b"/v1/pay"


async def test_asterisk_is_forwarded_for_options_alone(wire: Wire) -> None:
    """RFC 9112 3.2.4: `OPTIONS *` is about the server as a whole; with any other method it is no target."""
    assert (await ask(wire.port, request(b"asterisk", b"*", method=b"OPTIONS"))).status == 201
    assert wire.stub.one(b"asterisk").request_line == b"OPTIONS * HTTP/1.1"
    assert (await ask(wire.port, request(b"asterisk-get", b"*"))).status == 400


async def test_options_about_a_whole_server_stays_that(wire: Wire) -> None:
    """RFC 9112 3.2.4: an absolute-form target of OPTIONS without path and query goes on as an asterisk; with a path it does not."""
    assert (await ask(wire.port, request(b"whole-server", b"http://other.test", method=b"OPTIONS"))).status == 201
    assert wire.stub.one(b"whole-server").target == b"*"
    assert (await ask(wire.port, request(b"root", b"http://other.test/", method=b"OPTIONS"))).status == 201
    assert wire.stub.one(b"root").target == b"/"


METHODS = [
    b"GET",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"PATCH",
    b"OPTIONS",
    b"TRACE",
    b"PROPFIND",
    b"PURGE",
    b"REPORT",
    b"QUERY",
    b"M-SEARCH",
    b"LINK",
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.decode())
@pytest.mark.parametrize("target", [b"/plain", b"/v1/pay"])
async def test_methods_cross_as_they_are(wire: Wire, method: bytes, target: bytes) -> None:
    """RFC 9110 9.1: what a route does not guard is forwarded, body and all, whatever its method means."""
    case = slug(f"method {method!r} {target!r}")
    async with await connect(wire.port) as client:
        answer = await ask(client, request(case, target, method=method, body=b"abc"), head_only=method == b"HEAD")
        assert answer.status == 201
    seen = wire.stub.one(case)
    assert (seen.request_line, seen.body) == (b"%b %b HTTP/1.1" % (method, target), b"abc")


HOSTS = {
    "9110-7.2 empty": (b"", True),
    "9110-7.2 name and port": (b"gateway.test:8080", True),
    "9110-7.2 IPv6": (b"[2001:db8::1]:80", True),
    "9110-7.2 blank": (b"a b", False),
    "9110-7.2 user information": (b"user@a", False),
    "9110-7.2 path": (b"a/b", False),
    "9110-7.2 query": (b"a?b", False),
    "9110-7.2 fragment": (b"a#b", False),
    "9110-7.2 two ports": (b"a:80:81", False),
    "9110-7.2 open bracket": (b"[::1", False),
    "9110-7.2 Latin-1": (b"\xe9", False),
}


@pytest.mark.parametrize(("host", "good"), HOSTS.values(), ids=HOSTS.keys())
async def test_host_is_an_authority_or_refused(wire: Wire, host: bytes, good: bool) -> None:
    """RFC 9112 3.2: a Host line that is no authority is 400; one that is goes on to the byte."""
    case = slug(f"host {host!r}")
    answer = await ask(wire.port, request(case).replace(b"gateway.test", host, 1))
    assert answer.status == (201 if good else 400)
    assert [seen.values(b"Host") for seen in wire.stub.of(case)] == ([[host]] if good else [])


LOOPS = {
    "9110-7.6.3 alone": ((b"Via: 1.1 idempotency-gateway",), True),
    "9110-7.6.3 among others": ((b"Via: 1.0 fred, 1.1 idempotency-gateway (x/1), 1.1 p.example.net",), True),
    "9110-7.6.3 in a second line": ((b"Via: 1.0 fred", b"via: HTTP/1.1 idempotency-gateway"), True),
    "9110-7.6.3 in another case": ((b"Via: 1.1 Idempotency-Gateway",), True),
    "9110-7.6.3 another name": ((b"Via: 1.1 other-idempotency-gateway, 1.1 idempotency-gateway-2",), False),
    "9110-7.6.3 in a comment": ((b"Via: 1.1 fred (1.1 idempotency-gateway, really)",), False),
}


@pytest.mark.parametrize(("lines", "loops"), LOOPS.values(), ids=LOOPS.keys())
@pytest.mark.parametrize("guard", [False, True], ids=["unguarded", "guarded"])
async def test_a_request_that_was_here_before_is_a_loop(wire: Wire, guard: bool, lines: tuple[bytes, ...], loops: bool) -> None:
    """RFC 9110 7.6: a proxy must not forward to itself: our name in Via is 502, ran nothing, and leaves the key free."""
    case = slug(f"via {guard} {lines!r}")
    answer = await ask(wire.port, guarded(case, *lines) if guard else request(case, b"/plain", *lines))
    if loops:
        assert (answer.status, answer.problem) == (502, "proxy-loop")
        assert wire.stub.of(case) == []
        assert await wire.record(case) is None
    else:
        assert answer.status == 201
        earlier = b", ".join(line.partition(b": ")[2] for line in lines)
        assert wire.stub.one(case).values(b"Via") == [earlier + b", 1.1 idempotency-gateway"]


@pytest.mark.parametrize("method", [b"OPTIONS", b"TRACE"])
async def test_max_forwards_zero_is_answered_here(wire: Wire, method: bytes) -> None:
    """RFC 9110 7.6.2: the last recipient answers; a TRACE shows what came in (9.3.8), without what a front has added or what is secret."""
    case = b"hops-0-" + method
    secret = [b"Authorization: Bearer secret", b"Cookie: a=secret", b"Proxy-Authorization: Basic secret", b"Via: 1.1 front"]
    secret += [b"X-Forwarded-For: 10.0.0.1-secret", b"X-Internal-Token: secret", b"X-Forwarded-Client-Cert: secret"]
    answer = await ask(wire.port, request(case, b"/plain", b"Max-Forwards: 0", *secret, method=method))
    assert answer.status in {200, 204}
    assert wire.stub.of(case) == []
    if method == b"TRACE":
        assert answer.status == 200
        assert (answer.field("content-type") or b"").startswith(b"message/http")
        assert answer.body.startswith(b"TRACE /plain HTTP/1.1\r\n")
        assert b"Via: 1.1 front" in answer.body
        assert b"secret" not in answer.body


HOPS = {
    "9110-7.6.2 one": (b"1", b"0"),
    "9110-7.6.2 ten": (b"10", b"9"),
    "9110-7.6.2 garbage": (b"abc", b"abc"),
    "9110-7.6.2 negative": (b"-1", b"-1"),
    "9110-7.6.2 fraction": (b"1.5", b"1.5"),
    "9110-7.6.2 absent": (None, None),
}


@pytest.mark.parametrize("method", [b"OPTIONS", b"TRACE"])
@pytest.mark.parametrize(("given", "due"), HOPS.values(), ids=HOPS.keys())
async def test_max_forwards_is_counted_down(wire: Wire, method: bytes, given: bytes | None, due: bytes | None) -> None:
    """RFC 9110 7.6.2: a number goes on one less; what is no number, or not there, stays as it is."""
    case = slug(f"hops {method!r} {given!r}")
    lines = () if given is None else (b"Max-Forwards: " + given,)
    assert (await ask(wire.port, request(case, b"/plain", *lines, method=method))).status == 201
    assert wire.stub.one(case).values(b"Max-Forwards") == ([] if due is None else [due])


async def test_max_forwards_of_other_methods_is_theirs(wire: Wire) -> None:
    """RFC 9110 7.6.2: defined for TRACE and OPTIONS alone; a GET passes with it untouched."""
    assert (await ask(wire.port, request(b"hops-get", b"/plain", b"Max-Forwards: 0"))).status == 201
    assert wire.stub.one(b"hops-get").values(b"Max-Forwards") == [b"0"]


@pytest.mark.parametrize("target", [b"gateway.test:443", b"/v1/pay", b"http://gateway.test/"])
async def test_no_tunnels(wire: Wire, target: bytes) -> None:
    """RFC 9110 9.3.6: CONNECT is refused with the methods that are allowed, and what follows it is no request."""
    raw = b"CONNECT %b HTTP/1.1\r\nHost: gateway.test\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n" % target
    async with await connect(wire.port) as client:
        answer = await ask(client, raw)
        assert answer.status in {400, 405}
        assert answer.status == 400 or (answer.problem == "method-refused" and answer.field("allow"))
        assert await rest(client) == b""
    assert wire.stub.of(b"/v1/smuggled") == []


@pytest.mark.parametrize(("line", "status"), [(b"Via: 1.1 idempotency-gateway", 502), (b"Expect: x", 417), (b"Host: b", 400)])
async def test_whatever_a_tunnel_is_refused_for_the_connection_ends(wire: Wire, line: bytes, status: int) -> None:
    """RFC 9110 9.3.6: what a client sends behind a CONNECT may be anything."""
    raw = b"CONNECT gateway.test:443 HTTP/1.1\r\nHost: gateway.test\r\n%b\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n" % line
    async with await connect(wire.port) as client:
        assert (await ask(client, raw)).status == status
        assert await rest(client) == b""
    assert wire.stub.of(b"/v1/smuggled") == []


async def test_a_redirect_is_relayed_not_followed(wire: Wire) -> None:
    """RFC 9110 15.4: 303 with its Location belongs to the client, and is what a retry gets. (307 and 308 come before execution.)"""
    wire.stub.scripts[b"redirect"] = reply(CREATED.replace(b"201 Created", b"303 Elsewhere\r\nLocation: /v1/smuggled"))
    for _ in range(2):
        answer = await ask(wire.port, guarded(b"redirect"))
        assert (answer.status, answer.field("location")) == (303, b"/v1/smuggled")
    assert wire.stub.runs[b"redirect"] == 1
    assert wire.stub.of(b"/v1/smuggled") == []
