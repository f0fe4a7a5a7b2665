"""Listen addresses."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import TcpListener, UnixListener
from gateway.config.texts import listener

ADDRESSES = {
    "0.0.0.0:8080": TcpListener("0.0.0.0", 8080),
    "localhost:0": TcpListener("localhost", 0),
    "[::1]:8080": TcpListener("::1", 8080),
    "[0:0::1]:8080": TcpListener("::1", 8080),
    "gateway-1.internal:65535": TcpListener("gateway-1.internal", 65535),
    "unix:/run/a b.sock": UnixListener("/run/a b.sock"),
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items())
def test_addresses_are_read(text: str, expected: TcpListener | UnixListener) -> None:
    """Names, IPv4, bracketed IPv6 and Unix sockets."""
    assert listener(text) == expected


@settings(deadline=None)
@given(st.ip_addresses(), st.integers(0, 65535))
def test_an_address_reads_back(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    """Every address and port survives being written and read, and loopback is what the address says."""
    written = TcpListener(str(address), port)
    if "%" not in str(address):
        assert listener(str(written)) == written
        assert written.loopback == address.is_loopback


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """What is read is written back to an address that means the same; everything else is a ValueError."""
    try:
        found = listener(text)
    except ValueError:
        return
    assert listener(str(found)) == found
