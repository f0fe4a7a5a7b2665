"""The forms of a request target (RFC 9112 section 3.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.host import sound_authority
from gateway.core.request_target import is_target

METHODS = st.sampled_from(["GET", "POST", "OPTIONS", "CONNECT"])


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", b"/"),
        ("POST", b"/a?b#c"),
        ("GET", b"//x"),
        ("GET", b"/\xff"),
        ("GET", b"http://a"),
        ("GET", b"http://a:80/x"),
        ("GET", b"http://u:p@a:/x"),
        ("GET", b"x+y://a.b?c"),
        ("GET", b"http://[::1]:8080/"),
        ("GET", b"http://[fe80::1%25eth0]/"),
        ("GET", b"http://[v1.a]/"),
        ("GET", b"http://a:65535/"),
        ("OPTIONS", b"*"),
        ("CONNECT", b"a:443"),
        ("CONNECT", b"[::1]:443"),
    ],
)
def test_forms_that_there_are(method: str, target: bytes) -> None:
    """Origin, absolute, authority and asterisk form."""
    assert is_target(method, target)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", b""),
        ("GET", b"x"),
        ("GET", b"*"),
        ("GET", b"?x"),
        ("GET", b"a:443"),
        ("GET", b"http:a"),
        ("GET", b"http:/a"),
        ("GET", b"http:///x"),
        ("GET", b"http://?x"),
        ("GET", b"http://:80/"),
        ("GET", b"http://u@/"),
        ("GET", b"http://a:b/"),
        ("GET", b"http://a:65536/"),
        ("GET", b"http://a:999999999999999999999/"),
        ("GET", b"http://a\\b/"),
        ("GET", b"http://[::1/"),
        ("GET", b"http://[zz]/"),
        ("GET", b"http://[]/"),
        ("GET", b"http://[1.2.3.4]/"),
        ("GET", b"http://[::1]x/"),
        ("GET", b"1http://a/"),
        ("CONNECT", b"/"),
        ("CONNECT", b":443"),
        ("CONNECT", b"a/b"),
    ],
)
def test_forms_that_there_are_not(method: str, target: bytes) -> None:
    """Nor a host that is none, nor a port that is none."""
    assert not is_target(method, target)


@given(METHODS, st.one_of(st.binary(max_size=30), st.from_regex(rb"[a-z]{1,5}://[^/?#]{0,12}(/[a-z]*)?", fullmatch=True)))
def test_an_absolute_target_has_a_sound_host(method: str, target: bytes) -> None:
    """Whatever is taken as a target names a host that may be forwarded, or none."""
    if is_target(method, target) and method != "CONNECT":
        assert sound_authority(target)
        assert target.startswith(b"/") or (target == b"*" and method == "OPTIONS") or b"://" in target
