"""Hosts: one spelling for one host, and whom a request is for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.headers import Fields
from gateway.core.host import asked_for, effective_host, is_host, normal_host, sound_authority


@pytest.mark.parametrize(
    ("host", "scheme", "normal"),
    [
        (b"Shop.Test", b"http", b"shop.test"),
        (b"shop.test.", b"http", b"shop.test"),
        (b"shop.test..", b"http", b"shop.test."),
        (b"shop.test:80", b"http", b"shop.test"),
        (b"shop.test.:80", b"http", b"shop.test"),
        (b"shop.test:080", b"http", b"shop.test"),
        (b"shop.test:", b"http", b"shop.test"),
        (b"shop.test:80", b"https", b"shop.test:80"),
        (b"shop.test:443", b"https", b"shop.test"),
        (b"shop.test:443", b"http", b"shop.test:443"),
        (b"shop.test:0", b"http", b"shop.test:0"),
        (b"[2001:DB8::1]", b"http", b"[2001:db8::1]"),
        (b"[2001:db8::1]:80", b"http", b"[2001:db8::1]"),
        (b"[::1]:8080", b"http", b"[::1]:8080"),
        (b"", b"http", b""),
        (b":80", b"http", b""),
    ],
)
def test_one_spelling(host: bytes, scheme: bytes, normal: bytes) -> None:
    """Letter case, the scheme's default port, zeros before a port and one final dot are spelling; all else is another host."""
    assert normal_host(host, scheme) == normal


@given(st.text("aA.:08[]-", max_size=12).map(str.encode), st.sampled_from([b"http", b"https"]))
def test_a_normal_host_is_normal(host: bytes, scheme: bytes) -> None:
    """Whatever a client sends has a normal form, which normalising changes no further unless dots or colons are left at its end."""
    found = normal_host(host, scheme)
    assert found == found.lower()
    assert normal_host(found, scheme) == found or found.endswith((b".", b":")) or b":" in found


@pytest.mark.parametrize(
    ("target", "host", "effective"),
    [
        (b"/x", b"a.test", b"a.test"),
        (b"/x", None, b""),
        (b"*", b"a.test", b"a.test"),
        (b"http://b.test/x", b"a.test", b"b.test"),
        (b"HTTPS://u:p@b.test:8443?x", b"a.test", b"b.test:8443"),
        (b"/http://b.test/x", b"a.test", b"a.test"),
    ],
)
def test_whom_a_request_is_for(target: bytes, host: bytes | None, effective: bytes) -> None:
    """RFC 9112 3.2.2: an absolute target's host, whatever Host says."""
    assert effective_host(target, host) == effective


@pytest.mark.parametrize("target", [b"http:///x", b"http://:80/x", b"http://u@/x", b"http://a b/x", b"http://a<b/x", b"http://[::1/x"])
def test_targets_without_a_host(target: bytes) -> None:
    assert not sound_authority(target)


@pytest.mark.parametrize("target", [b"/x", b"*", b"//x", b"http://a.test/x", b"http://u:p@[::1]:80"])
def test_targets_that_may_go_on(target: bytes) -> None:
    assert sound_authority(target)


@given(st.binary(max_size=20))
def test_no_host_has_a_blank(host: bytes) -> None:
    """So that what trusted proxies say can stand behind one."""
    assert not is_host(host) or b" " not in host


def test_what_trusted_proxies_say_counts_too() -> None:
    """Each line of X-Forwarded-Host, and the host of the first element of Forwarded; what else that says changes each time."""

    def found(*lines: tuple[bytes, bytes]) -> bytes:
        return asked_for(b"h", Fields(lines))

    assert found() == found((b"Forwarded", b"for=1.2.3.4;proto=http")) == b"h"
    assert found((b"X-Forwarded-Host", b"Shop-A.test")) != found((b"X-Forwarded-Host", b"shop-b.test")) != found()
    one = found((b"Forwarded", b"for=1.2.3.4; Host=a.test;proto=http, for=5.6.7.8;host=c.test"))
    assert one == found((b"Forwarded", b"host=A.test;for=9.9.9.9"))
    assert one != found((b"Forwarded", b"for=1.2.3.4;host=b.test")) != found()
    assert found((b"Forwarded", b"for=1;xhost=a.test")) == found()
