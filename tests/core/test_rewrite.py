"""The prefix of a path, as the upstream has it."""

import posixpath
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.path_pattern import path_segments
from gateway.core.rewrite import Rewrite, Rewriting, is_steady, path_prefix, upstream_pattern

PLACES = [
    ("/v1", "/", b"/v1/pay?x=/v1", b"/pay?x=/v1"),
    ("/v1", "/", b"/v1", b"/"),
    ("/v1", "/", b"/v1?a", b"/?a"),
    ("/v1", "/api/v2", b"/v1/", b"/api/v2/"),
    ("/v1", "/api", b"/v1", b"/api"),
    ("/", "/api", b"/", b"/api/"),
    ("/", "/api", b"/a%20b;c=1/d.json", b"/api/a%20b;c=1/d.json"),
    ("/", "/api", b"*", b"*"),
    ("/v1", "/", b"/v1/a?q=..%2F//#", b"/a?q=..%2F//#"),
]


@pytest.mark.parametrize(("prefix", "to", "target", "expected"), PLACES)
def test_a_prefix_is_replaced(prefix: str, to: str, target: bytes, expected: bytes) -> None:
    """Whole segments of the path; what follows, and the query, stays byte for byte."""
    rewriting = Rewriting(Rewrite(prefix, to))
    assert rewriting.takes(target)
    assert rewriting.apply(target) == expected


UNSTEADY = [
    b"/v1/../pay",
    b"/v1/./pay",
    b"/v1/..",
    b"/v1//pay",
    b"//v1/pay",
    b"/v1/..;a=b/pay",
    b"/v1/%2e%2e/pay",
    b"/v1/%252e%252e/pay",
    b"/v1/a%2F..%2fpay",
    b"/v1/..%5Cpay",
    b"/v1\\..\\pay",
    b"/v1/.%ff./pay",
    b"/v1/.\xff./pay",
    b"/v1/..%20/pay",
    b"/v1/.%C2%A0./pay",
    b"/v1/;/pay",
    b"/v1/a%00b",
    b"/v1/a%3f",
    b"/v1/%u002e./pay",
    b"/v10/pay",
    b"/V1/pay",
    b"/%76%31/pay",
    b"/",
]


@pytest.mark.parametrize("target", UNSTEADY)
def test_what_could_climb_out_is_not_taken(target: bytes) -> None:
    """Dot segments, empty segments and other separators in any spelling, and what does not begin with the prefix."""
    assert not Rewriting(Rewrite("/v1", "/")).takes(target)


@given(st.lists(st.sampled_from([b"/", b".", b"..", b"%2e", b"%2F", b"%25", b"2e", b"a", b";", b"\\", b"%ff", b"%20"]), max_size=8))
@example([b"a", b"/", b"..", b";"])
def test_a_steady_path_stays_below_its_prefix(pieces: list[bytes]) -> None:
    """However often an upstream decodes it, and whether or not it knows parameters."""
    path = b"/" + b"".join(pieces)
    if not is_steady(path):
        return
    for _ in range(3):
        for reading in (path, b"/".join(segment.partition(b";")[0] for segment in path.split(b"/"))):
            assert posixpath.normpath(b"/base" + reading).startswith(b"/base")
        path = unquote_to_bytes(path)


@pytest.mark.parametrize("text", ["v1", "/v1/**", "/{a}", "//", "/a/../b", "/a%20b", "/a?b", "/a b"])
def test_what_is_no_prefix_is_refused(text: str) -> None:
    """Parameters, escapes, queries, empty and dot segments."""
    with pytest.raises(ValueError, match=r".+"):
        path_prefix(text)


@pytest.mark.parametrize(("text", "expected"), [("/", "/"), ("/a", "/a"), ("/a/b/", "/a/b")])
def test_a_prefix_has_one_spelling(text: str, expected: str) -> None:
    """Without a closing slash."""
    assert path_prefix(text) == expected


@given(
    st.sampled_from(["/", "/v1", "/v1/a"]),
    st.sampled_from(["/", "/api", "/api/v2"]),
    st.lists(st.sampled_from(["pay", "{id}"]), max_size=3),
    st.sampled_from(["", "/api", "/a/b"]),
    st.booleans(),
)
@example(prefix="/", to="/api", more=[], front="", rewrites=True)
def test_what_the_upstream_gets_belongs_to_its_pattern(prefix: str, to: str, more: list[str], front: str, rewrites: bool) -> None:
    """Whatever stands in front of it, and whether or not something is rewritten."""
    path = prefix.removesuffix("/") + "".join(f"/{one}" for one in more) or "/"
    target = path.replace("{id}", "ch_1").encode()
    rewrite = Rewrite(prefix, to) if rewrites else None
    got = front + Rewriting(rewrite).apply(target).decode()
    assert upstream_pattern(path, rewrite, front).matches(path_segments(got))
