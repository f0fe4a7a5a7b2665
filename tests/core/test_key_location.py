"""The key on its way to the upstream: put into a place, taken out of one, carried as the route says."""

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.headers import Fields
from gateway.core.key import Key, KeyMissing, find_key, find_key_in, find_key_in_body, find_key_in_form
from gateway.core.key_location import Parts, carry, in_headers, in_target, not_named, put, take
from gateway.core.key_policy import BodyKey, FormKey, ForwardKey, HeaderKey, KeyMode, KeyPlace, KeyPolicy, QueryKey
from gateway.core.model import Headers
from gateway.core.policy import Policy

HEADER, QUERY, BODY = HeaderKey("Idempotency-Key"), QueryKey("request_id"), BodyKey("/idempotency_key")
PLACES: list[KeyPlace] = [HEADER, QUERY, BODY]
HEADERS: Headers = ((b"Host", b"api"), (b"idempotency-key", b'"client"'), (b"Accept", b"*/*"))
PARTS = Parts(HEADERS, b"/v1/x?a=1&request_id=client&b=%2f", b'{"idempotency_key": "client", "n": 1.00}')
DERIVED = "idg_" + "0" * 48
printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20)


def policy(place: KeyPlace, forward: ForwardKey, to: KeyPlace | None = None) -> Policy:
    return Policy("s", (), KeyPolicy(place), forward_key=forward, forward_key_in=to)


@pytest.mark.parametrize(
    ("target", "want"),
    [
        (b"/x", b"/x?id=k"),
        (b"/x?", b"/x?id=k"),
        (b"/x?a=1", b"/x?a=1&id=k"),
        (b"/x?a=1&", b"/x?a=1&id=k"),
        (b"/x?&a=%2F+%zz", b"/x?&a=%2F+%zz&id=k"),
        (b"/x?id=old&a=1", b"/x?id=k&a=1"),
        (b"/x?a=1&%69d=old", b"/x?a=1&%69d=k"),
        (b"/x?id&a", b"/x?id=k&a"),
        (b"/x?id=1&a=1&id=2&%69%64=3", b"/x?id=k&a=1"),
        (b"/x?ID=1", b"/x?ID=1&id=k"),
        (b"/x?a=id=1", b"/x?a=id=1&id=k"),
        (b"/x?a=1?id=2", b"/x?a=1?id=2&id=k"),
    ],
)
def test_in_target(target: bytes, want: bytes) -> None:
    """The first parameter of the name gets the key, further ones go, and without one it is added; no other byte changes."""
    assert in_target(target, "id", "k") == want


@pytest.mark.parametrize(
    ("target", "want"),
    [
        (b"/x?a=1&request_id=k&b=%2f", b"/x?a=1&b=%2f"),
        (b"/x?request_id=k", b"/x"),
        (b"/x?request%5fid=k&request_id", b"/x"),
        (b"/x?&request_id=k", b"/x?"),
        (b"/x?a=1", b"/x?a=1"),
        (b"/x?", b"/x?"),
        (b"/x", b"/x"),
    ],
)
def test_taken_from_a_target(target: bytes, want: bytes) -> None:
    """All parameters of the name go, and the question mark with the last one; a target without them is untouched."""
    assert take(QUERY, Parts((), target, b"")).target == want


@given(pairs=st.lists(st.tuples(st.sampled_from(["id", "a b", "%", "ü"]), printable), max_size=5), key=printable)
def test_put_into_a_target_is_found_there(pairs: list[tuple[str, str]], key: str) -> None:
    """The key is found where it was put, and the other parameters mean what they meant, in order."""
    target = in_target(f"/x?{urlencode(pairs)}".encode(), "id", key)
    assert find_key_in(target, KeyPolicy(QueryKey("id"))) == Key(key)
    assert [pair for pair in parse_qsl(target.partition(b"?")[2].decode()) if pair[0] != "id"] == [
        pair for pair in pairs if pair[0] != "id"
    ]


def test_in_headers() -> None:
    """One line of the name in the place of the first one, or at the end; the others are untouched."""
    lines: Headers = ((b"A", b"1"), (b"x-key", b"2"), (b"a", b"3"), (b"X-KEY", b"4"))
    assert in_headers(lines, ("X-Key",), b"k") == ((b"A", b"1"), (b"X-Key", b"k"), (b"a", b"3"))
    assert in_headers(lines[:1], ("X-Key",), b"k") == ((b"A", b"1"), (b"X-Key", b"k"))
    assert in_headers((), ("X-Key",), b"k") == ((b"X-Key", b"k"),)


def test_several_names_in_headers() -> None:
    """Of all the names one line is left, where the first was and under that name; without any, the first name is added."""
    names = ("X-Key", "Old_Key")
    lines: Headers = ((b"A", b"1"), (b"old-key", b"2"), (b"X-KEY", b"3"), (b"B", b"4"))
    assert in_headers(lines, names, b"k") == ((b"A", b"1"), (b"Old_Key", b"k"), (b"B", b"4"))
    assert in_headers(lines[:1], names, b"k") == ((b"A", b"1"), (b"X-Key", b"k"))
    assert not_named(lines, *names) == (lines[0], lines[3])


FORM = FormKey("request_id")
FORM_PARTS = Parts(
    (*HEADERS, (b"Content-Type", b"application/x-www-form-urlencoded"), (b"Digest", b"x")), b"/x", b"a=%2f&request%5Fid=client&b=1"
)


@pytest.mark.parametrize("forward", ForwardKey)
@pytest.mark.parametrize("to", [FORM, HeaderKey("X-Key"), QUERY, None])
def test_a_key_in_a_form_is_carried(forward: ForwardKey, to: KeyPlace | None) -> None:
    """It stays in the form under every setting but a derived one that goes there; no other byte of the body changes."""
    found = carry(FORM_PARTS, policy(FORM, forward, to), "client", DERIVED)
    assert found is not None
    derived_there = forward is ForwardKey.DERIVED and to in {FORM, None}
    want = b"a=%2f&request%5Fid=" + (DERIVED.encode() if derived_there else b"client") + b"&b=1"
    assert found.body == want
    assert any(name == b"Digest" for name, _ in found.headers) != derived_there


def test_a_key_goes_into_a_form() -> None:
    """From a header, into a form and nothing else: other bodies are refused, an empty form is filled."""
    goes = policy(HEADER, ForwardKey.AS_RECEIVED, FORM)
    types = [(b"Content-Type", b"application/x-www-form-urlencoded")]
    for headers, body, want in (
        (types, b"a=1", b"a=1&request_id=k%20%26"),
        (types, b"", b"request_id=k%20%26"),
        ([], b"a=1", None),
        ([(b"Content-Type", b"application/json")], b"{}", None),
        (types, None, None),
    ):
        found = carry(Parts((*HEADERS, *headers), b"/x", body), goes, "k &", "")
        assert (None if found is None else found.body) == want


def test_not_named() -> None:
    """Every line of the name goes, in any letter case and with underscores; the others stay in order."""
    lines: Headers = ((b"A", b"1"), (b"x-key", b"2"), (b"X_Key", b"3"), (b"XKey", b"4"), (b"X-KEY", b"5"))
    assert not_named(lines, "X-Key") == ((b"A", b"1"), (b"XKey", b"4"))


def find(place: KeyPlace, parts: Parts) -> object:
    key = KeyPolicy(place)
    match place:
        case HeaderKey():
            return find_key(Fields(parts.headers), key)
        case QueryKey():
            return find_key_in(parts.target, key)
        case BodyKey():
            assert parts.body is not None
            return find_key_in_body(parts.body, key)
        case FormKey():
            assert parts.body is not None
            return find_key_in_form(parts.body, Fields(parts.headers), key)


@given(place=st.sampled_from(PLACES), key=printable.filter(lambda text: text == text.strip()))
def test_put_is_found(place: KeyPlace, key: str) -> None:
    """A key is found in the place into which it was put, and the other two places are untouched."""
    parts = put(place, key, PARTS)
    assert parts is not None
    reader = KeyPolicy(HEADER, mode=KeyMode.RAW)
    found = find(place, parts)
    if place != HEADER or found == Key(key):
        assert found == Key(key)
    else:
        assert find_key(Fields(parts.headers), reader) == Key(key)  # a bare text that the lenient grammar leaves to the raw one
    changed = [parts.headers != PARTS.headers, parts.target != PARTS.target, parts.body != PARTS.body]
    assert not any(different for different, one in zip(changed, PLACES, strict=True) if one != place)


def test_a_changed_body_has_no_digest() -> None:
    """Fields with a digest of the body go when the body is changed, and stay otherwise."""
    digests: Headers = ((b"Content-Digest", b"sha-256=:AA==:"), (b"Digest", b"x"), (b"Content-MD5", b"x"), (b"repr-digest", b"x"))
    parts = Parts(HEADERS + digests, b"/x", b"{}")
    assert put(BODY, "k", parts) == Parts(HEADERS, b"/x", b'{"idempotency_key":"k"}')
    kept = put(HEADER, "k", parts)
    assert kept is not None
    assert kept.headers[3:] == digests


@pytest.mark.parametrize("body", [None, b"", b"a=1", b"[]", b'{"a":1,"a":2}'])
def test_a_body_that_cannot_take_the_key(body: bytes | None) -> None:
    """A key that belongs into a body without a place for it is not put anywhere else."""
    assert put(BODY, "k", Parts((), b"/x", body)) is None
    assert carry(Parts((), b"/x", body), policy(HEADER, ForwardKey.DERIVED, BODY), "k", DERIVED) is None


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_carried_as_received(place: KeyPlace) -> None:
    """Without another place named, `as_received` changes nothing, not even the spelling of a field."""
    for to in (None, place, HeaderKey("IDEMPOTENCY-KEY") if place == HEADER else place):
        assert carry(PARTS, policy(place, ForwardKey.AS_RECEIVED, to), "client", DERIVED) == PARTS


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_carried_under_a_derived_key(place: KeyPlace) -> None:
    """`derived` replaces the client's key where it stands."""
    parts = carry(PARTS, policy(place, ForwardKey.DERIVED), "client", DERIVED)
    assert parts is not None
    assert find(place, parts) == Key(DERIVED)


@pytest.mark.parametrize("forward", [ForwardKey.AS_RECEIVED, ForwardKey.DERIVED])
@pytest.mark.parametrize("came", PLACES, ids=repr)
@pytest.mark.parametrize("to", [HeaderKey("X-Key"), QueryKey("key"), BodyKey("/key")], ids=repr)
def test_carried_to_another_place(came: KeyPlace, to: KeyPlace, forward: ForwardKey) -> None:
    """The key moves: it is in the place that the route names, and gone from the field or the query that it came in."""
    parts = carry(PARTS, policy(came, forward, to), "client", DERIVED)
    assert parts is not None
    assert find(to, parts) == Key("client" if forward is ForwardKey.AS_RECEIVED else DERIVED)
    if not isinstance(came, BodyKey):
        assert find(came, parts) == KeyMissing()
    elif not isinstance(to, BodyKey):
        assert parts.body == PARTS.body


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_no_key_is_carried(place: KeyPlace) -> None:
    """`none` keeps the key back from fields and queries; a body is not changed for it."""
    parts = carry(PARTS, policy(place, ForwardKey.NONE), "client", DERIVED)
    assert parts is not None
    if place == BODY:
        assert parts == PARTS
    else:
        assert find(place, parts) == KeyMissing()
        assert parts.body is PARTS.body
