"""The header policy under generated fields: what concerns one hop stays there, all else crosses as it is."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.headers import Fields, Forwarding, Hop, hops_left, looped, to_client, to_store, to_upstream, upgrade_of
from tests.system.fuzz.judge import HOP_BY_HOP, KEPT
from tests.system.fuzz.mutations import PIECES
from tests.system.fuzz.profile import bounded
from tests.system.fuzz.reader import Lines, tokens, values

FRAMING = frozenset({b"content-length", b"transfer-encoding"})
MARKS = frozenset({b"idempotent-replayed", b"original-request"})
SESSION = frozenset(b"set-cookie www-authenticate retry-after server-timing x-request-id ratelimit-limit x-ratelimit-remaining".split())
HOP = Hop(b"192.0.2.7", b"https", b"api.test", trusted=False, request_id=b"r-1")

_NAMES = sorted(
    {*HOP_BY_HOP, *FRAMING, *MARKS, *SESSION, *KEPT, b"host", b"via", b"expect", b"forwarded", b"x-forwarded-for", b"x-forwarded-port"}
    | {b"x-real-ip", b"max-forwards", b"idempotency-key", b"date", b"x-a", b"x-b", b"x", b"link", b"vary", b"close"}
)
_name = st.tuples(st.sampled_from(_NAMES) | st.from_regex(rb"\A[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}\Z"), st.integers(0, 2)).map(
    lambda pair: (pair[0], pair[0].title(), pair[0].upper())[pair[1]]
)
_value = (
    st.sampled_from([b"", b"close", b"x-a, X-B,", b"upgrade", b"chunked", b"100-continue", b"0", b"17", b"a, b", b"caf\xe9", b"websocket"])
    | st.sampled_from([b", ".join(names) for names in zip(_NAMES, _NAMES[7:], strict=False)])
    | st.sampled_from(
        [value for piece in PIECES["fields"] for value in [piece.partition(b" |")[2].strip()] if not set(value) & set(b"\r\n\0")]
    )
    | st.lists(st.sampled_from([*range(0x20, 0x7F), 0x09, *range(0x80, 0x100)]), max_size=12).map(bytes).map(bytes.strip)
)
lines = st.lists(st.tuples(_name, _value), max_size=12).map(tuple)
hops = st.builds(
    HOP._replace, trusted=st.booleans(), forwarding=st.sampled_from(Forwarding), peer=st.sampled_from([b"192.0.2.7", b"2001:db8::1"])
)


def without(fields: Lines, names: frozenset[bytes]) -> Lines:
    """The fields whose names are not among these and not of the forwarded family."""
    return tuple((name, value) for name, value in fields if name.lower() not in names and not name.lower().startswith(b"x-forwarded"))


def nominated(fields: Lines) -> frozenset[bytes]:
    """What `Connection` lines name."""
    return frozenset(tokens(fields, b"connection"))


@bounded(350)
@given(lines, hops, st.sampled_from([frozenset(), frozenset({b"idempotency-key", b"x-a"})]))
def test_toward_the_upstream(fields: Lines, hop: Hop, keep: frozenset[bytes]) -> None:
    """Nothing of this hop's crosses, nothing nominated does, and the rest keeps its order, number and bytes."""
    sent = to_upstream(fields, hop, keep)
    ours = HOP_BY_HOP | FRAMING | {b"host", b"via", b"expect", b"x-request-id", b"forwarded", b"x-real-ip", b"close"}
    gone = nominated(fields) - keep - KEPT - {b"early-data"}
    assert without(sent, ours) == without(fields, ours | gone)
    assert not {name.lower() for name, _ in sent} & (HOP_BY_HOP | FRAMING | {b"expect"})
    assert values(sent, b"host") == [hop.host]
    assert values(sent, b"x-request-id") == [hop.request_id]
    assert len(values(sent, b"via")) == 1
    assert tokens(sent, b"via")[-1] == b"1.1 idempotency-gateway"
    if not hop.trusted:
        assert all(hop.peer in value for name in (b"x-forwarded-for", b"forwarded") for value in values(sent, name))
        assert not values(sent, b"x-forwarded-port")
    assert all(len(values(sent, name)) <= 1 for name in (b"x-forwarded-for", b"forwarded") if hop.forwarding == Forwarding.BOTH)
    assert not any(set(name + value) & set(b"\r\n\0") for name, value in sent)


@bounded(200)
@given(lines, hops)
def test_a_second_gateway_of_ours_changes_nothing_but_its_own(fields: Lines, hop: Hop) -> None:
    """What has crossed one hop crosses another as it is, apart from what each hop writes."""
    ours = frozenset({b"host", b"via", b"x-request-id", b"forwarded", b"x-real-ip"})
    once = to_upstream(fields, hop)
    twice = to_upstream(once, hop._replace(name=b"second", trusted=True))
    assert without(twice, ours) == without(once, ours)
    assert looped(Fields(twice), b"Idempotency-Gateway")
    assert looped(Fields(twice), b"second")


@bounded(350)
@given(lines, st.booleans())
def test_toward_the_client(fields: Lines, bodiless: bool) -> None:
    """Nothing of the upstream's hop crosses, nothing nominated, no mark of ours; the rest is as it was, and stays so the next time."""
    passed = to_client(fields, bodiless=bodiless)
    gone = HOP_BY_HOP | MARKS | nominated(fields) | {b"close"} | (frozenset() if bodiless else FRAMING)
    assert passed == tuple(line for line in fields if line[0].lower() not in gone)
    assert to_client(passed, bodiless=bodiless) == passed


@bounded(200)
@given(lines)
def test_what_is_stored(fields: Lines) -> None:
    """A stored answer is part of the first one, in order, without what speaks of one exchange; storing it again changes nothing."""
    passed = to_client(fields)
    stored = to_store(passed)
    following = iter(passed)
    assert all(line in following for line in stored)
    assert not {name.lower() for name, _ in stored} & (SESSION | HOP_BY_HOP | MARKS | FRAMING)
    assert to_store(to_client(stored)) == stored
    assert {name.lower() for name, _ in passed} - {name.lower() for name, _ in stored} <= SESSION | {b"via"} | {
        name.lower() for name, _ in passed if name.lower().startswith((b"ratelimit", b"x-ratelimit", b"x-rate-limit"))
    }


@bounded(200)
@given(lines, st.sampled_from(["GET", "POST", "OPTIONS", "TRACE"]), st.sampled_from([b"1.0", b"1.1"]))
def test_what_a_head_asks_of_this_hop(fields: Lines, method: str, version: bytes) -> None:
    """Reading a head never raises; only a plain wish for a WebSocket counts as one, and only a number as a limit of hops."""
    head = Fields(fields)
    if upgrade_of(method, head, version) is not None:
        assert (method, version) == ("GET", b"1.1")
        assert b"upgrade" in nominated(fields)
        assert b"websocket" in tokens(fields, b"upgrade")
    left = hops_left(method, head)
    assert left is None or (left >= 0 and method in {"OPTIONS", "TRACE"} and len(values(fields, b"max-forwards")) == 1)
    assert looped(head, b"nobody") is False
