import pytest

from gateway.upstream.settings import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://payments:8000", Endpoint("payments", 8000)),
        ("http://payments", Endpoint("payments", 80)),
        ("http://payments/", Endpoint("payments", 80)),
        ("https://payments", Endpoint("payments", 443, tls=True)),
        ("https://payments:8443", Endpoint("payments", 8443, tls=True)),
        ("http://[::1]:81", Endpoint("::1", 81)),
        ("http://payments:8000/api/v1/", Endpoint("payments", 8000, prefix=b"/api/v1")),
        ("unix:/run/payments.sock", Endpoint(path="/run/payments.sock")),
    ],
)
def test_an_address_names_an_endpoint(url: str, endpoint: Endpoint) -> None:
    """Scheme, host, port and prefix, or a socket's path."""
    assert parse_endpoint(url) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "payments:8000",
        "ftp://payments",
        "http://",
        "http://payments?x=1",
        "http://payments#x",
        "http://user:secret@payments",
        "http://payments:port",
        "http://payments:70000",
        "unix:run/x.sock",
        "unix:",
    ],
)
def test_anything_more_or_less_is_refused(url: str) -> None:
    """A query or credentials in an upstream's address would be silently lost, so they are errors."""
    with pytest.raises(ValueError, match=r".+"):
        parse_endpoint(url)
