"""Whose request it is, by address: only trusted proxies are believed, from the nearest one on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.client_address import client_address
from gateway.core.forwarded import address_of
from gateway.core.headers import Fields, Forwarding

PROXIES = frozenset({"10.0.0.1", "10.0.0.2", "2001:db8::aa"})
X, F = Forwarding.X_FORWARDED, Forwarding.FORWARDED


def address(peer: str, *lines: tuple[bytes, bytes], mode: Forwarding = X) -> str:
    return client_address(Fields(lines), peer, PROXIES.__contains__, mode)


@pytest.mark.parametrize(
    ("peer", "values", "want"),
    [
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [b""], "10.0.0.1"),
        ("10.0.0.1", [b"203.0.113.9"], "203.0.113.9"),
        ("::ffff:10.0.0.1", [b"203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", [b"::ffff:203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", [b"1.1.1.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", [b"1.1.1.1", b"203.0.113.9,10.0.0.2 ", b"10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", [b"10.0.0.2, 2001:DB8::aa"], "10.0.0.2"),
        ("10.0.0.1", [b"203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.1", [b"[2001:db8::1]:443"], "2001:db8::1"),
        ("10.0.0.1", [b"2001:db8:0::1"], "2001:db8::1"),
        ("10.0.0.1", [b"203.0.113.9, , 10.0.0.2,"], "203.0.113.9"),
        ("10.0.0.1", [b"203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", [b"203.0.113.9, 10.0.0.256"], "10.0.0.1"),
        ("10.0.0.1", [b"203.0.113.9, \xb2.0.0.1"], "10.0.0.1"),
        ("10.0.0.1", [b"203.0.113.9, 10.0.0.02"], "10.0.0.1"),
        ("198.51.100.1", [b"203.0.113.9"], "198.51.100.1"),
        ("unix", [b"203.0.113.9"], "unix"),
    ],
)
def test_x_forwarded_for(peer: str, values: list[bytes], want: str) -> None:
    """From the right past trusted proxies; what is no address ends the walk; an untrusted peer is the client itself."""
    assert address(peer, *((b"X-Forwarded-For", value) for value in values)) == want


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([], "10.0.0.1"),
        ([b"for=203.0.113.9"], "203.0.113.9"),
        ([b'proto=https;For="203.0.113.9:80" ; by=_x'], "203.0.113.9"),
        ([b'for="[2001:db8::1]:443"'], "2001:db8::1"),
        ([b'for="\\[2001:db8::1\\]"'], "2001:db8::1"),
        ([b"for=[2001:db8::1]"], "2001:db8::1"),
        ([b"for=1.1.1.1, for=203.0.113.9", b"for=10.0.0.2;proto=http"], "203.0.113.9"),
        ([b"for=203.0.113.9, for=unknown, for=10.0.0.2"], "10.0.0.2"),
        ([b"for=203.0.113.9, for=_hidden"], "10.0.0.1"),
        ([b"for=203.0.113.9, proto=https"], "10.0.0.1"),
        ([b"for=203.0.113.9;for=1.1.1.1"], "10.0.0.1"),
        ([b"203.0.113.9"], "10.0.0.1"),
        ([b"for=203.0.113.9;host=a b"], "10.0.0.1"),
        ([b'for="x, for=203.0.113.9'], "203.0.113.9"),
        ([b'for=203.0.113.9;host="a;for=6.6.6.6;b"'], "203.0.113.9"),
        ([b'for=203.0.113.9;host="a, for=6.6.6.6"'], "10.0.0.1"),
        ([b'for=203.0.113.9;host="a, for=6.6.6.6, b"'], "10.0.0.1"),
        ([b'for=203.0.113.9;host="a, b=";x=";for=6.6.6.6"'], "10.0.0.1"),
        ([b'host="a, b=\\"";for=203.0.113.9'], "10.0.0.1"),
    ],
)
def test_forwarded(values: list[bytes], want: str) -> None:
    """Likewise by `Forwarded`; no text inside of a quoted string passes for an address."""
    assert address("10.0.0.1", *((b"forwarded", value) for value in values), mode=F) == want


@pytest.mark.parametrize("mode", Forwarding)
def test_one_field_is_believed(mode: Forwarding) -> None:
    """The mode says which; the other one may come from the client through a proxy that does not know it."""
    lines = ((b"X-Forwarded-For", b"203.0.113.1"), (b"Forwarded", b"for=203.0.113.2"))
    assert address("10.0.0.1", *lines, mode=mode) == ("203.0.113.2" if mode is F else "203.0.113.1")


entries = st.lists(
    st.sampled_from(
        [b"", b" ", b",", b'"', b";", b"for=", b"\\", b"unknown", b"6.6.6.6", b"10.0.0.2", b"[", b"]", b":", b"2001:db8::1", b"\xff"]
    ),
    max_size=10,
).map(b"".join)


@given(entries, st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::aa"]), max_size=4), st.sampled_from([X, F]))
def test_no_client_speaks_for_itself(claim: bytes, proxies: list[str], mode: Forwarding) -> None:
    """Whatever a client claims, the address that the first trusted proxy saw is the one that is found."""

    def entry(text: str) -> bytes:
        if mode is X:
            return text.encode()
        return f'for="[{text}]"'.encode() if ":" in text else f"for={text}".encode()

    field = b"Forwarded" if mode is F else b"X-Forwarded-For"
    line = b", ".join([claim, *(entry(text) for text in ["198.51.100.7", *proxies])])
    assert address("10.0.0.1", (field, line), mode=mode) == "198.51.100.7"
    assert address("203.0.113.5", (field, line), mode=mode) == "203.0.113.5"


@given(entries, st.sampled_from(Forwarding))
def test_what_is_found_is_an_address(claim: bytes, mode: Forwarding) -> None:
    """Whatever came in, the outcome is an address in its usual spelling, never a piece of text."""
    found = address("10.0.0.1", (b"X-Forwarded-For", claim), (b"Forwarded", claim), mode=mode)
    assert address_of(found) == found
