"""Listen addresses, targets, and names that go on the wire."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import TcpListener, UnixListener
from gateway.config.addresses import host_line, listener, postgres_dsn, pseudonym, server_name
from gateway.core.texts import upstream_url
from gateway.upstream.settings import parse_endpoint

ADDRESSES = {
    "0.0.0.0:8080": TcpListener("0.0.0.0", 8080),
    "localhost:0": TcpListener("localhost", 0),
    "[::1]:8080": TcpListener("::1", 8080),
    "[0:0::1]:8080": TcpListener("::1", 8080),
    "gateway-1.internal:65535": TcpListener("gateway-1.internal", 65535),
    "unix:/run/a b.sock": UnixListener("/run/a b.sock"),
    "unix:///run/gateway.sock": UnixListener("/run/gateway.sock"),
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items())
def test_addresses_are_read(text: str, expected: TcpListener | UnixListener) -> None:
    """Names, IPv4, bracketed IPv6 and Unix sockets."""
    assert listener(text) == expected


@given(st.ip_addresses(), st.integers(0, 65535))
def test_an_address_reads_back(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    """Every address and port survives being written and read, and loopback is what the address says."""
    written = TcpListener(str(address), port)
    if "%" not in str(address):
        assert listener(str(written)) == written
        assert written.loopback == address.is_loopback


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """What is read is written back to an address that means the same; everything else is a ValueError."""
    try:
        found = listener(text)
    except ValueError:
        return
    assert listener(str(found)) == found


TARGETS = {
    "http://payments:8000/": "http://payments:8000",
    "https://payments.example": "https://payments.example",
    "http://[::1]:8000": "http://[::1]:8000",
    "unix:/run/a b.sock": "unix:/run/a b.sock",
    "unix:///run/app.sock": "unix:/run/app.sock",
    "unix:////run/app.sock": "unix:/run/app.sock",
}


@pytest.mark.parametrize(("text", "expected"), TARGETS.items())
def test_targets_are_read(text: str, expected: str) -> None:
    """Hosts with and without a port, and Unix sockets; a closing slash is dropped."""
    assert upstream_url(text) == expected


_HOSTS = st.one_of(st.from_regex(r"[a-zA-Z0-9._:%@/\[\]-]{0,20}", fullmatch=True), st.text(max_size=20))


@given(st.sampled_from(["http://", "https://", "unix:", "unix:/", "HTTP://", ""]), _HOSTS)
def test_any_text_is_a_target_or_refused(scheme: str, rest: str) -> None:
    """What is read is what the upstream client can connect to; everything else is a ValueError."""
    try:
        found = upstream_url(scheme + rest)
    except ValueError:
        return
    endpoint = parse_endpoint(found)
    assert (endpoint.path is not None) == found.startswith("unix:/")
    assert endpoint.path or (endpoint.host and 0 < endpoint.port < 65536)


@given(_HOSTS)
def test_what_goes_on_the_wire_holds_nothing_that_splits_a_line(text: str) -> None:
    """Host line, name in Via and server name: visible ASCII without a space, a comma or a slash, or refused with a ValueError."""
    for parse in (host_line, pseudonym, server_name):
        try:
            found = parse(text)
        except ValueError:
            continue
        assert found is None or (
            found == text and not set(found) - set(map(chr, range(0x21, 0x7F))) and not set(found) & set(' ,;/@"()<>?')
        )


NAMES = ["api.example", "API_1.internal", "10.0.0.1", "::1", "xn--bcher-kva.example"]
NO_NAMES = ["api.example.", ".example", "a..b", "*.example", "a b", "[::1]", "a:1", "fe80::1%eth0", "b\u00fccher.example", "x" * 64]


@pytest.mark.parametrize("text", NAMES)
def test_a_server_name_is_what_a_certificate_could_have(text: str) -> None:
    """Host names and addresses."""
    assert server_name(text) == text


@pytest.mark.parametrize("text", NO_NAMES)
def test_other_server_names_are_refused(text: str) -> None:
    """Wildcards, ports, brackets, zones, empty labels and other alphabets."""
    with pytest.raises(ValueError, match="is not a name that a certificate could have"):
        server_name(text)


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://db/gateway", "postgres://u:p@one:5432,two:5433/db?x=y", "postgresql:///db?host=/run", "postgresql://[::1]:1,two/db"],
)
def test_a_dsn_may_name_several_hosts(dsn: str) -> None:
    """As the driver and libpq read it."""
    assert postgres_dsn(dsn) == dsn


@pytest.mark.parametrize("dsn", ["mysql://db/gateway", "postgresql:db", "postgresql://one:x,two/db", "postgresql://one:1,two:99999/db"])
def test_what_is_no_dsn_is_refused(dsn: str) -> None:
    """Each host is judged."""
    with pytest.raises(ValueError, match="looks like"):
        postgres_dsn(dsn)
