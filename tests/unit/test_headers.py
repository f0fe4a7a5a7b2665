"""Header fields across the hop: what goes, what stays byte for byte and in order, what is added, what is stored."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.headers import (
    FRAMING,
    HOP_BY_HOP,
    OURS,
    PER_EXCHANGE,
    VIA,
    Hop,
    end_to_end,
    first,
    nominated,
    to_client,
    to_store,
    to_upstream,
)
from gateway.core.model import Headers

HOP = Hop(b"192.0.2.7", b"https", b"api.test", trusted=False, request_id=b"r-1")
TRUSTED = Hop(b"10.0.0.1", b"http", b"api.test", trusted=True, request_id=b"r-1")


def values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for field, value in headers if field.lower() == name]


def names(headers: Headers) -> set[bytes]:
    return {name.lower() for name, _ in headers}


HOP_BY_HOP_LINES: Headers = (
    (b"Connection", b""),
    (b"connection", b"close, X-Hop"),
    (b"Keep-Alive", b"timeout=5"),
    (b"TE", b"trailers"),
    (b"Trailer", b"X-Sum"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Upgrade", b"h2c"),
    (b"HTTP2-Settings", b"AAMAAABkAARAAAAAAAIAAAAA"),
    (b"Proxy-Connection", b"keep-alive"),
    (b"Proxy-Authorization", b"Basic eA=="),
    (b"Proxy-Authenticate", b"Basic"),
    (b"Content-Length", b"5"),
    (b"x-hop", b"1"),
)
REST: Headers = (
    (b"Set-Cookie", b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
    (b"X-A", b"1"),
    (b"Set-Cookie", b"b=2"),
    (b"x-CaSe", b"y"),
    (b"Location", b"/v1/pay/9"),
    (b"Link", b"</x>; rel=a, </y>; rel=b"),
    (b"X-Name", b"caf\xe9"),
    (b"X-Empty", b""),
    (b"X-A", b"2"),
)
MIXED: Headers = tuple(line for pair in zip(HOP_BY_HOP_LINES, REST, strict=False) for line in pair) + HOP_BY_HOP_LINES[len(REST) :]

lines = st.lists(
    st.tuples(
        st.sampled_from([name for name, _ in HOP_BY_HOP_LINES + REST] + [b"CONNECTION", b"X-Forwarded-For", b"Via", b"Authorization"]),
        st.sampled_from([b"", b"1", b"close", b"x-a , X-HOP", b",,x-case", b"authorization", b"keep-alive, set-cookie", b"\xe9"]),
    ),
    max_size=8,
).map(tuple)


# ---- both directions


@pytest.mark.parametrize("crossing", [end_to_end, to_client])
def test_what_is_left_is_left_alone(crossing: type) -> None:
    """Hop-by-hop, nominated and framing fields go; the other lines keep their order, case, count and bytes."""
    assert crossing(MIXED) == REST


def test_toward_the_upstream_the_rest_is_left_alone() -> None:
    """Toward the upstream likewise, between the fields that the gateway itself writes."""
    assert to_upstream(MIXED, HOP)[1 : 1 + len(REST)] == REST


@given(lines)
def test_removal_is_by_name_alone(headers: Headers) -> None:
    """Exactly the lines whose name is hop-by-hop, framing or nominated by any `Connection` line go, in every position."""
    gone = HOP_BY_HOP | FRAMING
    for value in values(headers, b"connection"):
        gone |= {token.strip().lower() for token in value.split(b",")} - {b""}
    assert end_to_end(headers) == tuple(line for line in headers if line[0].lower() not in gone)
    assert to_client(headers) == tuple(line for line in headers if line[0].lower() not in gone | OURS)


@pytest.mark.parametrize(
    ("connection", "want"),
    [
        ([], set()),
        ([b""], set()),
        ([b"", b"close, X-Tenant"], {b"close", b"x-tenant"}),
        ([b"close", b"", b"X-A"], {b"close", b"x-a"}),
        ([b" ,, X-A\t, x-a ,"], {b"x-a"}),
    ],
)
def test_nominated(connection: list[bytes], want: set[bytes]) -> None:
    """All `Connection` lines count, an empty first one hides nothing, and empty elements name nothing."""
    assert nominated(tuple((b"CoNNection", value) for value in connection)) == want


def test_first() -> None:
    """The first line's value, by lower-case name, an empty one included."""
    assert first(((b"X-A", b""), (b"x-a", b"2")), b"x-a") == b""
    assert first(((b"X-AB", b"1"),), b"x-a") is None


# ---- toward the upstream


def test_fields_of_this_hop() -> None:
    """Host first, then what the client sent, then Via, the forwarded family and the request id, each once."""
    assert to_upstream(((b"Host", b"evil"), (b"X-A", b"1"), (b"Expect", b"100-continue"), (b"X-Request-Id", b"theirs")), HOP) == (
        (b"Host", b"api.test"),
        (b"X-A", b"1"),
        (b"Via", VIA),
        (b"X-Forwarded-For", b"192.0.2.7"),
        (b"X-Forwarded-Proto", b"https"),
        (b"X-Forwarded-Host", b"api.test"),
        (b"X-Request-Id", b"r-1"),
    )


SPOOFED: Headers = (
    (b"X-Forwarded-For", b"203.0.113.1"),
    (b"x-forwarded-for", b"203.0.113.2, 203.0.113.3"),
    (b"Forwarded", b"for=10.0.0.1;host=evil"),
    (b"X-Real-IP", b"203.0.113.1"),
    (b"X-Forwarded-Proto", b"ftp"),
    (b"X-Forwarded-Host", b"evil"),
    (b"X-Forwarded-Port", b"1"),
)


def test_untrusted_peers_speak_for_nobody() -> None:
    """From a peer that is no trusted proxy the whole forwarded family is replaced by what this hop knows."""
    found = to_upstream(SPOOFED, HOP)
    assert values(found, b"x-forwarded-for") == [b"192.0.2.7"]
    assert values(found, b"x-forwarded-proto") == [b"https"]
    assert values(found, b"x-forwarded-host") == [b"api.test"]
    assert not {b"forwarded", b"x-real-ip", b"x-forwarded-port"} & names(found)


def test_trusted_proxies_are_believed() -> None:
    """From a trusted proxy the chain becomes one line with the peer appended last; the rest of the family passes as it is."""
    found = to_upstream(SPOOFED, TRUSTED)
    assert values(found, b"x-forwarded-for") == [b"203.0.113.1, 203.0.113.2, 203.0.113.3, 10.0.0.1"]
    for name, value in SPOOFED[2:]:
        assert values(found, name.lower()) == [value]


def test_what_a_trusted_proxy_left_out_is_added() -> None:
    """Where a trusted proxy says nothing, or an empty address, this hop speaks for itself."""
    found = to_upstream(((b"X-Forwarded-For", b""), (b"X-Forwarded-Proto", b"https")), TRUSTED)
    assert values(found, b"x-forwarded-for") == [b"10.0.0.1"]
    assert values(found, b"x-forwarded-proto") == [b"https"]
    assert values(found, b"x-forwarded-host") == [b"api.test"]


@pytest.mark.parametrize("hop", [HOP, TRUSTED])
@pytest.mark.parametrize("name", [b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host", b"Via", b"Host", b"X-Request-Id"])
def test_our_own_fields_cannot_be_nominated_away(hop: Hop, name: bytes) -> None:
    """The upstream gets every field of this hop's making, also when a client names it in `Connection`."""
    found = to_upstream(((b"Connection", name), (name, b"theirs")), hop)
    assert len(values(found, name.lower())) == 1
    assert b"connection" not in names(found)


def test_nominating_does_not_silence_a_trusted_proxy() -> None:
    """What a trusted proxy says of the client stays, whatever `Connection` line it let through from there."""
    found = to_upstream(((b"Connection", b"x-forwarded-for, x-real-ip"), *SPOOFED[:1], *SPOOFED[3:4]), TRUSTED)
    assert values(found, b"x-forwarded-for") == [b"203.0.113.1, 10.0.0.1"]
    assert values(found, b"x-real-ip") == [b"203.0.113.1"]


def test_via_is_kept_and_extended() -> None:
    """Earlier hops stay in `Via`, in order, in one line."""
    found = to_upstream(((b"Via", b"1.0 fred"), (b"via", b"2 cdn")), HOP)
    assert values(found, b"via") == [b"1.0 fred, 2 cdn, " + VIA]


@pytest.mark.parametrize("name", [b"Authorization", b"Cookie", b"Content-Type", b"Content-Encoding"])
def test_meaning_cannot_be_nominated_away(name: bytes) -> None:
    """Naming a field that says what a request means, or whose it is, does not strip it."""
    assert values(to_upstream(((b"Connection", b"close, " + name), (name, b"v")), HOP), name.lower()) == [b"v"]


def test_kept_fields_cannot_be_nominated_away() -> None:
    """A route's key, principal and fingerprint headers reach the upstream though a client nominates them; others do not."""
    headers: Headers = (
        (b"Connection", b"Idempotency-Key, X-Tenant, X-Other"),
        (b"Idempotency-Key", b'"k"'),
        (b"X-Tenant", b"a"),
        (b"X-Other", b"1"),
    )
    found = to_upstream(headers, HOP, frozenset({b"idempotency-key", b"x-tenant"}))
    assert values(found, b"idempotency-key") == [b'"k"']
    assert values(found, b"x-tenant") == [b"a"]
    assert b"x-other" not in names(found)
    assert names(end_to_end(headers, frozenset({b"x-other"}))) == {b"x-other"}


def test_dropped_fields_are_dropped() -> None:
    """A field to be dropped goes, every line of it, also if it is kept from nomination."""
    headers: Headers = ((b"Idempotency-Key", b"k"), (b"idempotency-key", b"k"))
    found = to_upstream(headers, HOP, frozenset({b"idempotency-key"}), frozenset({b"idempotency-key"}))
    assert b"idempotency-key" not in names(found)


@given(lines, st.booleans(), st.sampled_from([frozenset(), frozenset({b"x-a"})]))
@example(((b"Connection", b"authorization"), (b"Authorization", b"1")), False, frozenset())
def test_upstream_fields_always(headers: Headers, trusted: bool, keep: frozenset[bytes]) -> None:
    """Whatever came in: no hop-by-hop or framing field, one line for each field of ours, and the client's lines in their order."""
    found = to_upstream(headers, TRUSTED if trusted else HOP, keep)
    assert not names(found) & (HOP_BY_HOP | FRAMING)
    for name in (b"host", b"via", b"x-forwarded-for", b"x-request-id"):
        assert len(values(found, name)) == 1
    rest = iter(headers)
    assert all(
        line in rest
        for line in found
        if line[0].lower() not in {b"host", b"via", b"x-request-id"} and not line[0].startswith(b"X-Forwarded")
    )


# ---- answers


def test_markers_of_an_upstream_are_removed() -> None:
    """Only the gateway says that an answer is a replay."""
    assert to_client(((b"Idempotent-Replayed", b"true"), (b"IDEMPOTENT-REPLAYED", b"x"), (b"Original-Request", b"r"), (b"X", b"1"))) == (
        (b"X", b"1"),
    )


PER_EXCHANGE_LINES: Headers = (
    (b"Set-Cookie", b"session=1"),
    (b"WWW-Authenticate", b"Bearer"),
    (b"Authentication-Info", b"nextnonce=x"),
    (b"Retry-After", b"3"),
    (b"RateLimit", b'"d";r=1'),
    (b"RateLimit-Policy", b'"d";q=1'),
    (b"RateLimit-Limit", b"1"),
    (b"X-RateLimit-Remaining", b"1"),
    (b"x-ratelimit-reset-tokens", b"1s"),
    (b"X-Rate-Limit-Reset", b"1"),
    (b"Server-Timing", b"db;dur=5"),
    (b"Alt-Svc", b"h2=:443"),
    (b"traceparent", b"00-0-0-00"),
    (b"tracestate", b"a=b"),
    (b"Via", b"1.1 x"),
    (b"X-Request-Id", b"theirs"),
    (b"Request-Id", b"theirs"),
)


@pytest.mark.parametrize("line", PER_EXCHANGE_LINES, ids=[line[0].decode() for line in PER_EXCHANGE_LINES])
def test_per_exchange_fields_are_passed_and_not_stored(line: tuple[bytes, bytes]) -> None:
    """A field that speaks of one exchange goes out with the first answer and is never stored."""
    headers: Headers = ((b"X-A", b"1"), line, (b"X-B", b"2"))
    assert to_client(headers) == headers
    assert to_store(headers) == ((b"X-A", b"1"), (b"X-B", b"2"))


def test_what_makes_an_answer_is_stored() -> None:
    """Fields that belong to the result are stored: lines, order, case and bytes."""
    kept: Headers = (
        (b"Date", b"Fri, 27 Nov 2026 22:00:00 GMT"),
        (b"Location", b"/v1/pay/9"),
        (b"ETag", b'"1"'),
        (b"Cache-Control", b"no-store"),
        (b"Vary", b"Accept"),
        (b"Content-Type", b"application/json"),
        (b"Content-Encoding", b"gzip"),
        (b"LINK", b"</a>"),
        (b"link", b"</b>"),
        (b"X-Name", b"caf\xe9"),
        (b"X-Rates", b"1"),
        (b"RateLimited", b"1"),
        (b"X-Empty", b""),
        (b"Sunset", b"x"),
    )
    assert to_store(to_client(kept)) == kept


@given(lines)
def test_stored_fields_always(headers: Headers) -> None:
    """Whatever an upstream sent, no hop-by-hop, per-exchange, framing, nominated or marker field is stored."""
    stored = to_store(to_client(headers))
    assert not names(stored) & (HOP_BY_HOP | FRAMING | PER_EXCHANGE | OURS | nominated(headers))


def test_tables_are_lower_case() -> None:
    """The tables are compared with lower-case names, so they hold no others."""
    assert all(name == name.lower() == name.strip() for name in HOP_BY_HOP | FRAMING | PER_EXCHANGE | OURS)
