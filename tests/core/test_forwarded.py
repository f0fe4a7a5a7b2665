"""What the upstream is told of the client: `X-Forwarded-*` and `Forwarded` (RFC 7239), from trusted peers and from others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.forwarded import address_of, closes_quotes, element, for_value, node, read_address, read_for
from gateway.core.headers import Forwarding, Hop, to_upstream
from gateway.core.model import Headers

HOP = Hop(b"192.0.2.7", b"https", b"api.test", trusted=False, request_id=b"r-1")
TRUSTED = Hop(b"10.0.0.1", b"http", b"api.test", trusted=True, request_id=b"r-1")
X, F, BOTH, NONE = Forwarding.X_FORWARDED, Forwarding.FORWARDED, Forwarding.BOTH, Forwarding.NONE


def values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for field, value in headers if field.lower() == name]


def family(headers: Headers) -> Headers:
    """The lines that speak of the client."""
    return tuple(line for line in headers if b"forwarded" in line[0].lower() or b"real" in line[0].lower())


SPOOFED: Headers = (
    (b"X-Forwarded-For", b"203.0.113.1"),
    (b"x-forwarded-for", b"203.0.113.2, 203.0.113.3"),
    (b"Forwarded", b"for=10.0.0.9;host=evil"),
    (b"forwarded", b"for=203.0.113.3"),
    (b"X-Real-IP", b"203.0.113.1"),
    (b"X-Forwarded-Proto", b"ftp"),
    (b"X-Forwarded-Host", b"evil"),
    (b"X-Forwarded-Port", b"1"),
    (b"X-Forwarded-Client-Cert", b"1"),
)
UNDERSCORED: Headers = (
    (b"X_Forwarded_For", b"203.0.113.1"),
    (b"X-Forwarded_Proto", b"ftp"),
    (b"X_FORWARDED-HOST", b"evil"),
    (b"X_Real_IP", b"203.0.113.1"),
)
OLDER_OF_OURS: Headers = (
    (b"X-Forwarded-For", b"192.0.2.7"),
    (b"X-Forwarded-Proto", b"https"),
    (b"X-Forwarded-Host", b"api.test"),
)
NEWER_OF_OURS: Headers = ((b"Forwarded", b"for=192.0.2.7;host=api.test;proto=https"),)


@pytest.mark.parametrize(("mode", "want"), [(X, OLDER_OF_OURS), (F, NEWER_OF_OURS), (BOTH, OLDER_OF_OURS + NEWER_OF_OURS), (NONE, ())])
def test_untrusted_peers_speak_for_nobody(mode: Forwarding, want: Headers) -> None:
    """From a peer that is no trusted proxy the whole family goes, in every spelling; what this hop knows takes its place."""
    assert family(to_upstream(SPOOFED + UNDERSCORED, HOP._replace(forwarding=mode))) == want


@pytest.mark.parametrize("mode", Forwarding)
def test_trusted_proxies_are_believed(mode: Forwarding) -> None:
    """From a trusted proxy the field that we append to becomes one line with the peer last; the rest of the family passes as it stands."""
    found = family(to_upstream(SPOOFED, TRUSTED._replace(forwarding=mode)))
    older, newer = mode in {X, BOTH}, mode in {F, BOTH}
    passed = [line for line in SPOOFED if line[0].lower() not in {b"x-forwarded-for"} or not older]
    passed = [line for line in passed if line[0].lower() != b"forwarded" or not newer]
    ours: list[tuple[bytes, bytes]] = []
    if older:
        ours.append((b"X-Forwarded-For", b"203.0.113.1, 203.0.113.2, 203.0.113.3, 10.0.0.1"))
    if newer:
        ours.append((b"Forwarded", b"for=10.0.0.9;host=evil, for=203.0.113.3, for=10.0.0.1;host=api.test;proto=http"))
    assert found == (*passed, *ours)


def test_what_a_trusted_proxy_left_out_is_added() -> None:
    """Where a trusted proxy says nothing, or an empty address, this hop speaks for itself."""
    found = to_upstream(
        ((b"X-Forwarded-For", b""), (b"X-Forwarded-Proto", b"https"), (b"Forwarded", b"")), TRUSTED._replace(forwarding=BOTH)
    )
    assert values(found, b"x-forwarded-for") == [b"10.0.0.1"]
    assert values(found, b"x-forwarded-proto") == [b"https"]
    assert values(found, b"x-forwarded-host") == [b"api.test"]
    assert values(found, b"forwarded") == [b"for=10.0.0.1;host=api.test;proto=http"]


def test_an_open_quote_swallows_nothing() -> None:
    """A line of `Forwarded` in which a quoted string is not closed is left out, so that what we append is read as ours."""
    headers: Headers = ((b"Forwarded", b'for="x'), (b"Forwarded", b'for="[2001:db8::1]";host="a\\"b"'), (b"Forwarded", b'for="\\"'))
    found = to_upstream(headers, TRUSTED._replace(forwarding=F))
    assert values(found, b"forwarded") == [b'for="[2001:db8::1]";host="a\\"b", for=10.0.0.1;host=api.test;proto=http']


@pytest.mark.parametrize("mode", Forwarding)
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    "name", [b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host", b"Forwarded", b"Via", b"Host", b"X-Request-Id"]
)
def test_our_own_fields_cannot_be_nominated_away(mode: Forwarding, trusted: bool, name: bytes) -> None:
    """The upstream gets every field of this hop's making once, also when a client names it in `Connection` and sends one."""
    hop = (TRUSTED if trusted else HOP)._replace(forwarding=mode)
    plain = {field for field, _ in to_upstream((), hop)}
    found = [field for field, _ in to_upstream(((b"Connection", name), (name, b"theirs")), hop)]
    assert plain <= set(found)
    assert len(set(found)) == len(found)
    assert b"Connection" not in found


def test_nominating_does_not_silence_a_trusted_proxy() -> None:
    """What a trusted proxy says of the client stays, whatever `Connection` line it let through from there."""
    headers: Headers = ((b"Connection", b"x-forwarded-for, x-real-ip, x-forwarded-port"), *SPOOFED[:1], *SPOOFED[4:5], *SPOOFED[7:8])
    found = to_upstream(headers, TRUSTED)
    assert values(found, b"x-forwarded-for") == [b"203.0.113.1, 10.0.0.1"]
    assert values(found, b"x-real-ip") == [b"203.0.113.1"]
    assert values(found, b"x-forwarded-port") == [b"1"]


def test_what_a_route_goes_by_passes() -> None:
    """A principal that an untrusted peer sends in such a field reaches the upstream; a field that this hop may write never does."""
    headers: Headers = (
        (b"X-Forwarded-User", b"ann"),
        (b"X-Forwarded-Email", b"x"),
        (b"X-Forwarded-Host", b"evil"),
        (b"Connection", b"x-forwarded-user"),
    )
    keep = frozenset({b"x-forwarded-user", b"x-forwarded-host"})
    found = to_upstream(headers, HOP._replace(forwarding=NONE), keep)
    assert family(found) == ((b"X-Forwarded-User", b"ann"),)


@pytest.mark.parametrize(
    ("peer", "older", "newer"),
    [
        (b"192.0.2.7", b"192.0.2.7", b"192.0.2.7"),
        (b"2001:db8::7", b"2001:db8::7", b'"[2001:db8::7]"'),
        (b"::ffff:1.2.3.4", b"1.2.3.4", b"1.2.3.4"),
        (b"::FFFF:102:304", b"1.2.3.4", b"1.2.3.4"),
        (b"::1", b"::1", b'"[::1]"'),
        (b"fe80::1%eth0", b"fe80::1", b'"[fe80::1]"'),
        (b"unix", b"unix", b"unknown"),
        (b"", b"", b"unknown"),
    ],
)
def test_peers(peer: bytes, older: bytes, newer: bytes) -> None:
    """IPv6 stands in brackets and quotes in `Forwarded` alone; mapped addresses are IPv4; a peer without an address is `unknown` there."""
    assert (for_value(peer), node(peer)) == (older, newer)


@pytest.mark.parametrize(
    ("host", "want"),
    [
        (b"api.test", b"for=192.0.2.7;host=api.test;proto=https"),
        (b"api.test:8443", b'for=192.0.2.7;host="api.test:8443";proto=https'),
        (b"[::1]:80", b'for=192.0.2.7;host="[::1]:80";proto=https'),
        (b'a", for=6.6.6.6\\', b'for=192.0.2.7;host="a\\", for=6.6.6.6\\\\";proto=https'),
        (b"caf\xe9", b'for=192.0.2.7;host="caf\xe9";proto=https'),
        (b"", b"for=192.0.2.7;proto=https"),
        (b"a\x00b", b"for=192.0.2.7;proto=https"),
        (b"a\r\nb", b"for=192.0.2.7;proto=https"),
    ],
)
def test_elements(host: bytes, want: bytes) -> None:
    """A host is quoted where it is no token, and left out where even a quoted string cannot hold it."""
    assert element(b"192.0.2.7", host, b"https") == want


_QUOTED = rb'"((?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*)"'
_PAIR = rb"([a-z]+)=(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)|" + _QUOTED + rb")"
ELEMENT = re.compile(rb"%b(?:;%b)*" % (_PAIR, _PAIR))


def pairs(text: bytes) -> dict[bytes, bytes]:
    """The pairs of one element by the grammar of RFC 7239 section 4."""
    assert ELEMENT.fullmatch(text), text
    found = [(name, token or re.sub(rb"\\(.)", rb"\1", quoted)) for name, token, quoted in re.findall(_PAIR, text)]
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


addresses = st.ip_addresses().map(str)


@given(addresses, st.binary(max_size=30), st.sampled_from([b"http", b"https"]))
def test_every_element_is_well_formed(peer: str, host: bytes, scheme: bytes) -> None:
    """Whatever the host is, the element parses, says what it was made of, closes its quotes and reads back as the peer's address."""
    text = element(peer.encode(), host, scheme)
    found = pairs(text)
    quotable = host and not re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", host)
    assert found.get(b"host") == (host if quotable else None)
    assert found[b"proto"] == scheme
    assert closes_quotes(text)
    if b"," not in host:
        assert read_for(text) == address_of(peer)
    assert read_address(found[b"for"]) == address_of(peer) == read_address(for_value(peer.encode()))


@given(st.lists(st.sampled_from([b'"', b"\\", b"a", b",", b'\\"', b'"x"']), max_size=10).map(b"".join))
def test_closed_quotes(value: bytes) -> None:
    """The same answer as reading the line byte by byte."""
    inside = escaped = False
    for char in value:
        if escaped:
            escaped = False
        elif inside and char == ord("\\"):
            escaped = True
        elif char == ord('"'):
            inside = not inside
    assert closes_quotes(value) is not inside


@given(st.binary(max_size=40))
def test_any_bytes_can_be_read(text: bytes) -> None:
    """What is no address is None, never an error; what is one is spelled in the usual way."""
    for found in (read_address(text), read_for(text), read_for(b"for=" + text)):
        assert found is None or address_of(found) == found


def test_long_lines_are_read_in_one_pass() -> None:
    """Sixty-four kilobytes of what almost matches are no work to speak of."""
    size = 64 * 1024
    for text in (b" " * size, b";" * size, b"a=b;" * (size // 4) + b"!", b'a="' + b"\\" * size, b"a" * size, b"; " * (size // 2) + b"x"):
        assert read_for(text) is None
    assert not closes_quotes(b'"' + b"\\" * (size + 1))
    assert closes_quotes(b'""' * size)
