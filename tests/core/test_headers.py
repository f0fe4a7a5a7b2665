"""Header fields across the hop: what goes, what stays byte for byte and in order, what is added, what is stored."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core import headers as header_table
from gateway.core.field_names import (
    ALWAYS_KEPT,
    FORWARDED,
    FORWARDED_FAMILIES,
    FRAMING,
    HOP_BY_HOP,
    OURS,
    PER_EXCHANGE,
    PER_EXCHANGE_FAMILIES,
    REPLACED,
    WRITTEN,
)
from gateway.core.headers import (
    Fields,
    Forwarding,
    Hop,
    cross,
    first,
    hops_left,
    nominated,
    to_client,
    to_store,
    to_upstream,
    upgrade_of,
)
from gateway.core.model import Headers

VIA = b"1.1 idempotency-gateway"
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
    (b"Close", b"reserved"),
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
CLAIMS = (b"X-Forwarded-For", b"Forwarded", b"X-Real-IP", b"x-forwarded-Whatever", b"X_Forwarded_For", b"X_REAL-IP", b"Max-Forwards")

lines = st.lists(
    st.tuples(
        st.sampled_from([name for name, _ in HOP_BY_HOP_LINES + REST] + [b"CONNECTION", b"Via", b"Authorization", *CLAIMS]),
        st.sampled_from(
            [
                b"",
                b"1",
                b"close",
                b"x-a , X-HOP",
                b",,x-case",
                b"authorization",
                b"keep-alive, set-cookie",
                b"x-forwarded-for, via",
                b"\xe9",
            ]
        ),
    ),
    max_size=8,
).map(tuple)


# ---- both directions


def test_what_is_left_is_left_alone() -> None:
    """Hop-by-hop, nominated and framing fields go; the other lines keep their order, case, count and bytes."""
    assert to_client(MIXED) == REST


def test_toward_the_upstream_the_rest_is_left_alone() -> None:
    """Toward the upstream likewise, between the fields that the gateway itself writes."""
    assert to_upstream(MIXED, HOP)[1 : 1 + len(REST)] == REST


@given(lines)
def test_removal_is_by_name_alone(headers: Headers) -> None:
    """Exactly the lines whose name is hop-by-hop, framing or nominated by any `Connection` line go, in every position."""
    gone = HOP_BY_HOP | FRAMING
    for value in values(headers, b"connection"):
        gone |= {token.strip().lower() for token in value.split(b",")} - {b""}
    assert to_client(headers) == tuple(line for line in headers if line[0].lower() not in gone | OURS)


@pytest.mark.parametrize(
    ("connection", "want"),
    [
        ([], set()),
        ([b""], set()),
        ([b"close"], set()),
        ([b"Keep-Alive, Upgrade"], set()),
        ([b"", b"close, X-Tenant"], {b"x-tenant"}),
        ([b"close", b"", b"X-A"], {b"x-a"}),
        ([b" ,, X-A\t, x-a ,"], {b"x-a"}),
    ],
)
def test_nominated(connection: list[bytes], want: set[bytes]) -> None:
    """All `Connection` lines count, an empty first one hides nothing; empty elements and connection options name no field."""
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


MODES = st.sampled_from(Forwarding)
KEEPS = st.sampled_from([frozenset(), frozenset({b"x-a"}), frozenset({b"x-real-ip", b"forwarded"})])


def crosses(line: tuple[bytes, bytes], headers: Headers, hop: Hop, keep: frozenset[bytes]) -> bool:
    """Whether a line goes on as it is, said in another way than the code does."""
    name = line[0].lower()
    if name in FORWARDED or name.startswith(FORWARDED_FAMILIES):
        appended = {
            Forwarding.X_FORWARDED: {b"x-forwarded-for"},
            Forwarding.FORWARDED: {b"forwarded"},
            Forwarding.BOTH: {b"forwarded", b"x-forwarded-for"},
            Forwarding.NONE: set(),
        }
        return name not in appended[hop.forwarding] if hop.trusted else name in keep - WRITTEN
    return name not in HOP_BY_HOP | FRAMING | REPLACED | (nominated(headers) - keep - ALWAYS_KEPT)


@given(lines, st.booleans(), MODES, KEEPS)
@example(((b"Connection", b"authorization"), (b"Authorization", b"1")), False, Forwarding.X_FORWARDED, frozenset())
@example(((b"Connection", b"x-real-ip"), (b"X-Real-IP", b"1")), True, Forwarding.NONE, frozenset())
def test_upstream_fields_always(headers: Headers, trusted: bool, mode: Forwarding, keep: frozenset[bytes]) -> None:
    """Whatever came in, the upstream gets Host, then what may cross in its order, count and bytes, then ours, and nothing else."""
    hop = (TRUSTED if trusted else HOP)._replace(forwarding=mode)
    found = to_upstream(headers, hop, keep)
    rest = tuple(line for line in headers if crosses(line, headers, hop, keep))
    assert found[0] == (b"Host", b"api.test")
    assert found[1 : 1 + len(rest)] == rest
    ours = [name for name, _ in found[1 + len(rest) :]]
    assert ours[0] == b"Via"
    assert ours[-1] == b"X-Request-Id"
    assert {name.lower() for name in ours[1:-1]} <= WRITTEN
    assert len(set(ours)) == len(ours)


@given(lines, st.booleans(), MODES)
def test_no_line_breaks_are_made(headers: Headers, trusted: bool, mode: Forwarding) -> None:
    """No name or value toward the upstream has a line break, as none that came in has one."""
    for name, value in to_upstream(headers, (TRUSTED if trusted else HOP)._replace(forwarding=mode)):
        assert not {13, 10} & set(name + value)


@pytest.mark.parametrize(
    "name", [b"TE", b"Trailer", b"Upgrade", b"HTTP2-Settings", b"Keep-Alive", b"Proxy-Connection", b"Proxy-Authorization"]
)
def test_fields_of_the_connection_stay_on_it(name: bytes) -> None:
    """Also without being nominated, and though a route keeps it: trailers are dropped, so nobody is promised any; no h2c gets through."""
    assert name.lower() not in names(to_upstream(((name, b"trailers"),), HOP, frozenset({name.lower()})))


def test_early_data_cannot_be_nominated_away() -> None:
    """The mark of a request that may be a repeated one is never removed (RFC 8470 section 5.1)."""
    assert (b"Early-Data", b"1") in to_upstream(((b"Connection", b"early-data"), (b"Early-Data", b"1")), HOP)


# ---- Max-Forwards (RFC 9110 section 7.6.2)


@pytest.mark.parametrize(
    ("method", "values_given", "want"),
    [
        ("TRACE", [b"0"], 0),
        ("OPTIONS", [b"3"], 3),
        ("OPTIONS", [b"007"], 7),
        ("OPTIONS", [b"000"], 0),
        ("OPTIONS", [b"999999"], 999_999),
        ("OPTIONS", [b"9" * 5000], 1_000_000),
        ("OPTIONS", [], None),
        ("OPTIONS", [b""], None),
        ("OPTIONS", [b"-1"], None),
        ("OPTIONS", [b"1.5"], None),
        ("OPTIONS", [b"\xb2"], None),
        ("OPTIONS", [b"3, 3"], None),
        ("OPTIONS", [b"3", b"3"], None),
        ("GET", [b"3"], None),
        ("options", [b"3"], None),
    ],
)
def test_hops_left(method: str, values_given: list[bytes], want: int | None) -> None:
    """The one number of a TRACE or OPTIONS request, however large; nothing for other methods and for what is no number."""
    assert hops_left(method, Fields(tuple((b"MAX-forwards", value) for value in values_given))) == want


@given(st.integers(min_value=1, max_value=10**30))
def test_each_hop_takes_one(sent: int) -> None:
    """A forwarded request has at least one hop less left, and gets to zero: name and place of the field are kept, nominated or not."""
    headers: Headers = ((b"X-A", b"1"), (b"Max-FORWARDS", b"%d" % sent), (b"X-B", b"1"), (b"Connection", b"max-forwards"))
    found = to_upstream(headers, HOP, hops=hops_left("OPTIONS", Fields(headers)))
    assert [name for name, _ in found[1:4]] == [b"X-A", b"Max-FORWARDS", b"X-B"]
    left = hops_left("OPTIONS", Fields(found))
    assert left is not None
    assert left == min(sent, 10**6) - 1


def test_max_forwards_of_others_is_left_alone() -> None:
    """Of a request that is neither TRACE nor OPTIONS, or that has no number there, the field passes like any other."""
    assert values(to_upstream(((b"Max-Forwards", b"3"),), HOP), b"max-forwards") == [b"3"]


# ---- Upgrade (RFC 9110 section 7.8)


@pytest.mark.parametrize(
    ("method", "connection", "upgrade", "want"),
    [
        ("GET", [b"Upgrade"], [b"websocket"], b"websocket"),
        ("GET", [b"keep-alive, UPGRADE"], [b"WebSocket"], b"websocket"),
        ("GET", [b"", b"upgrade"], [b"h2c", b"foo , websocket"], b"websocket"),
        ("GET", [b"upgrade, http2-settings"], [b"h2c"], None),
        ("GET", [b"upgrade"], [b"websocket/13"], None),
        ("GET", [b"upgrade"], [b"websockets"], None),
        ("GET", [b"upgrade"], [b""], None),
        ("GET", [b"upgrade"], [], None),
        ("GET", [b"keep-alive"], [b"websocket"], None),
        ("GET", [b"upgraded"], [b"websocket"], None),
        ("GET", [], [b"websocket"], None),
        ("POST", [b"upgrade"], [b"websocket"], None),
        ("get", [b"upgrade"], [b"websocket"], None),
    ],
)
def test_upgrade_of(method: str, connection: list[bytes], upgrade: list[bytes], want: bytes | None) -> None:
    """Only a GET that nominates `Upgrade` and asks for `websocket` is taken along; h2c never is."""
    headers = tuple((b"Connection", value) for value in connection) + tuple((b"Upgrade", value) for value in upgrade)
    assert upgrade_of(method, Fields(headers)) == want


def test_no_upgrade_from_http_1_0() -> None:
    """A client of HTTP/1.0 cannot switch protocols: its `Upgrade` is ignored."""
    assert upgrade_of("GET", Fields(((b"Connection", b"upgrade"), (b"Upgrade", b"websocket"))), b"1.0") is None


@given(st.sampled_from(["GET", "POST"]), lines)
def test_upgrade_needs_both_fields(method: str, headers: Headers) -> None:
    """Whatever else a request has, without `upgrade` in `Connection` and `websocket` in `Upgrade` it stays HTTP."""
    assert upgrade_of(method, Fields(headers)) is None
    asking: Headers = (*headers, (b"connection", b"Upgrade"), (b"UPGRADE", b"websocket"))
    assert upgrade_of(method, Fields(asking)) == (b"websocket" if method == "GET" else None)


# ---- answers


def test_markers_of_an_upstream_are_removed() -> None:
    """Only the gateway says that an answer is a replay."""
    assert to_client(((b"Idempotent-Replayed", b"true"), (b"IDEMPOTENT-REPLAYED", b"x"), (b"Original-Request", b"r"), (b"X", b"1"))) == (
        (b"X", b"1"),
    )


def test_length_of_what_a_get_would_have_got() -> None:
    """An answer to HEAD, or a 304, keeps the length that it announces, also when stored; any other answer's framing is ours."""
    headers: Headers = ((b"Content-Length", b"77"), (b"ETag", b"x"), (b"Transfer-Encoding", b"chunked"))
    assert to_client(headers, bodiless=True) == headers[:2]
    assert to_store(to_client(headers, bodiless=True)) == headers[:2]
    assert to_client(headers) == headers[1:2]


@pytest.mark.parametrize("name", [b"Content-Type", b"Date", b"Set-Cookie", b"Content-Length", b"Authorization", b"Location"])
def test_an_upstream_nominates_what_it_likes(name: bytes) -> None:
    """What a response's `Connection` names does not cross, whatever it is: it was meant for this hop alone."""
    headers: Headers = ((b"Connection", b"close"), (b"connection", b"x, " + name), (name, b"v"), (b"X-A", b"1"))
    assert to_client(headers, bodiless=True) == ((b"X-A", b"1"),)


PER_EXCHANGE_LINES: Headers = (
    (b"Set-Cookie", b"session=1"),
    (b"WWW-Authenticate", b"Bearer"),
    (b"Authentication-Info", b"nextnonce=x"),
    (b"Proxy-Authentication-Info", b"nextnonce=x"),
    (b"Proxy-Status", b"cdn;received-status=200"),
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


@given(lines, st.booleans())
def test_answers_always(headers: Headers, bodiless: bool) -> None:
    """Whatever an upstream sent, exactly the lines cross that are not hop-by-hop, framing, nominated or marks of ours; what is stored
    of them has nothing of one exchange, and both keep order, count and bytes.
    """
    sent = to_client(headers, bodiless=bodiless)
    gone = (HOP_BY_HOP | FRAMING | OURS) - ({b"content-length"} if bodiless else set()) | nominated(headers)
    assert sent == tuple(line for line in headers if line[0].lower() not in gone)
    assert to_store(sent) == tuple(
        line for line in sent if line[0].lower() not in PER_EXCHANGE and not line[0].lower().startswith(PER_EXCHANGE_FAMILIES)
    )


def test_tables_are_lower_case() -> None:
    """The tables are compared with lower-case names, so they hold no others."""
    tables = HOP_BY_HOP | FRAMING | PER_EXCHANGE | OURS | FORWARDED | WRITTEN | REPLACED | ALWAYS_KEPT
    assert all(name == name.lower() == name.strip() for name in (*tables, *FORWARDED_FAMILIES, *PER_EXCHANGE_FAMILIES))


ADDED = st.sampled_from([(), ((b"X-New", b"1"),), ((b"Set-Cookie", b"a=1"), (b"X-New", b"1"))])


@given(lines, st.booleans(), st.sets(st.sampled_from([b"x-a", b"date", b"set-cookie"])), ADDED)
def test_one_pass_is_both(headers: Headers, bodiless: bool, removed: set[bytes], added: Headers) -> None:
    """`cross` gives what `to_client` and `to_store` give one after the other, with what is added, with a date, without the upstream's
    request id.
    """
    gone = removed | {b"x-request-id"}
    sent = tuple([line for line in to_client(headers, bodiless=bodiless) if line[0].lower() not in gone]) + added
    date: Headers = () if b"date" in names(sent) else ((b"Date", b"now"),)
    assert cross(headers, b"now", bodiless=bodiless, removed=frozenset(removed), added=added) == (sent + date, to_store(sent) + date)


def test_a_flood_of_names_takes_no_memory() -> None:
    """What clients invent is forgotten; what becomes of a field stays the same."""
    for number in range(5000):
        to_client(((b"X-Invented-%d" % number, b"1"),))
    assert len(header_table._seen) <= header_table._SEEN_MAX
    assert to_client(((b"x" * 10_000, b"1"), (b"TE", b"trailers"))) == ((b"x" * 10_000, b"1"),)
    assert all(len(name) <= header_table._SEEN_LONGEST for name in header_table._seen)


def test_names_that_connection_only_nominates_are_not_learned() -> None:
    """Thousands of them fit in a head, and would take the place of the names that fields have."""
    to_upstream(((b"Connection", b"x-nominated-only"),), HOP)
    assert b"x-nominated-only" not in header_table._seen
