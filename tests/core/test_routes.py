"""Route matching: targets, file order, methods, and which of two readings counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.policy import Policy, Route
from gateway.core.routes import Matched, RefusedTarget, RouteTable, normal_segments, split_target
from tests.core.tables import POST, REFUND, REST, TABLE, guarded, match


@pytest.mark.parametrize(
    ("target", "want"),
    [
        (b"/", (b"/", b"", b"/")),
        (b"/a%2Fb/%zz?q=%2F+?&x", (b"/a%2Fb/%zz", b"q=%2F+?&x", b"/a%2Fb/%zz?q=%2F+?&x")),
        (b"/a?", (b"/a", b"", b"/a?")),
        (b"//host/a?b", (b"//host/a", b"b", b"//host/a?b")),
        (b"http://host", (b"/", b"", b"/")),
        (b"HTTP://user@host:80/a?b", (b"/a", b"b", b"/a?b")),
        (b"http://host?b", (b"/", b"b", b"/?b")),
        (b"http://host/http://other/a", (b"/http://other/a", b"", b"/http://other/a")),
        (b"*", (b"*", b"", b"*")),
        (b"host:443", (b"host:443", b"", b"host:443")),
        (b"", (b"", b"", b"")),
    ],
)
def test_split_target(target: bytes, want: tuple[bytes, bytes, bytes]) -> None:
    """Path, query and what is forwarded are taken apart without touching a byte; scheme and authority never reach the upstream."""
    assert split_target(target) == want


@given(st.binary(max_size=30))
def test_split_loses_nothing(target: bytes) -> None:
    """Path and query put together again are the forwarded form, and an origin-form is forwarded as it came."""
    path, query, origin = split_target(target)
    assert path + (b"?" if origin != path else b"") + query == origin
    if target.startswith(b"/"):
        assert origin == target


def test_file_order() -> None:
    """The first route that takes method and path has the request."""
    table = RouteTable((Route("preview", "/v1/charges/preview", "up"), guarded("/v1/charges/{id}"), Route("any", "/v1/**", "up", POST)))
    assert match(b"/v1/charges/preview", table) == "preview"
    assert match(b"/v1/charges/7", table) == "guarded /v1/charges/{id}"
    assert match(b"/v1/charges/7/capture", table) == "any"
    assert match(b"/v1/charges/7", table, "GET") is None
    assert match(b"/v2", table) is None


def test_methods() -> None:
    """A guard is for its methods only; a method is compared as it is written."""
    assert match(b"/v1/pay", method="GET") == "rest"
    assert match(b"/v1/pay/", method="GET") == "rest"
    assert match(b"/V1/pay/../pay", method="GET") == "rest"
    assert match(b"/v1/pay", RouteTable((guarded("/v1/pay", frozenset()),)), "ANYTHING") == "guarded /v1/pay"


@pytest.mark.parametrize(
    "target", [b"", b"*", b"host:443", b"v1/pay", b"http:/v1/pay", b"http:v1/pay", b"?x", b"#", b"/a#b", b"/a?b#c", b"http://h/a#b"]
)
def test_what_is_no_target(target: bytes) -> None:
    """Targets that no proxy may take are refused, fragments among them (RFC 9112 section 3.2)."""
    assert TABLE.match("POST", target) == RefusedTarget(None)
    assert RouteTable(()).match("POST", target) == RefusedTarget(None)


def test_asterisk() -> None:
    """`OPTIONS *` belongs to the route of `/` unless that is guarded; no other method and no longer target may use it."""
    assert match(b"*", method="OPTIONS") == "rest"
    assert match(b"*?x", method="OPTIONS") == "refused"
    assert match(b"*", RouteTable((guarded("/", frozenset()),)), "OPTIONS") == "refused"
    assert match(b"*", RouteTable(()), "OPTIONS") == "refused"


def test_a_guard_beside_another_guard() -> None:
    """A path that is guarded as written but might be read as another guarded operation is refused: its keys live elsewhere."""
    table = RouteTable((guarded("/v1/pay"), guarded("/v1/**")))
    assert match(b"/v1/pay/", table) == "guarded /v1/pay"  # one closing slash is no other path
    assert match(b"/v1/pay//", table) == "refused"
    assert match(b"/v1/p%61y", table) == "refused"
    assert match(b"/v1/x/../pay", table) == "refused"
    assert match(b"/v1/x%20y", table) == "guarded /v1/**"


def test_encoded_parameters_stay_guarded() -> None:
    """Escapes inside a parameter of a guarded route are ordinary: the request is guarded, not refused."""
    for target in (b"/v1/a%40b.com/refund", b"/v1/a%20b/refund", b"/v1/a%2Fb/refund", b"/v1/caf%C3%A9/refund", b"/v1/a;b/refund"):
        assert match(target) == REFUND.id


def test_explicit_routes_before_the_guard_count() -> None:
    """An unguarded route that comes first keeps its requests, whatever is encoded in their parameters."""
    table = RouteTable((Route("files", "/v1/files/{name}", "up"), guarded("/v1/{kind}/{id}"), REST))
    for target in (b"/v1/files/a", b"/v1/files/my%20doc", b"/v1/files/%F0%9F%92%A9", b"/v1/files/a;b"):
        assert match(target, table) == "files"
    assert match(b"/v1/fil%65s/a", table) == "guarded /v1/{kind}/{id}"  # as it stands it belongs to the guard, which never hurts


@pytest.mark.parametrize("target", [b"/v1/%u0070ay", b"/v1/%U0070ay", b"/v1%u002fpay", b"/v1/%25u0070ay", b"/%u0076%u0031/pay"])
def test_escapes_of_no_standard_do_not_hide_a_guard(target: bytes) -> None:
    """Some servers decode `%u0070`. Where nothing is guarded it passes, and what is no such escape is an ordinary segment."""
    assert match(target) == "refused"
    assert match(target, method="GET") == "rest"
    assert match(b"/v1/%up", table=TABLE) == "rest"


@pytest.mark.parametrize("target", [b"/a%2F", b"/a%2f;x", b"/a%5C", b"/a//", b"/a/%2F"])
def test_a_closing_slash_that_only_some_see(target: bytes) -> None:
    """An unguarded `/a` before a guarded `/a/**`: a spelling that some upstream reads as `/a/` does not walk around the guard."""
    guard = Route("rest", "/a/**", "api", frozenset({"POST"}), Policy("rest", ()))
    table = RouteTable((Route("open", "/a", "api"), guard))
    assert table.match("POST", b"/a") != RefusedTarget(guard)
    matched = table.match("POST", target)
    assert matched in (RefusedTarget(guard), Matched(guard))


def test_unguarded_routes_follow_the_normal_form() -> None:
    """Between unguarded routes the usual reading decides, since that is what their upstreams will read."""
    table = RouteTable((Route("a", "/a", "one"), Route("b", "/**", "two")))
    assert [match(target, table) for target in (b"/a", b"/%61", b"//a/", b"/b/../a", b"/c")] == ["a", "a", "a", "a", "b"]


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (b"/", ("",)),
        (b"//", ("",)),
        (b"/a/b", ("a", "b")),
        (b"//a//b/", ("a", "b")),
        (b"/a/./b/../c", ("a", "c")),
        (b"/../../a", ("a",)),
        (b"/%61%2Fb", ("a", "b")),
        (b"/%2561", ("a",)),
        (b"/a;x=1/b;y", ("a", "b")),
        (b"/a\\b", ("a", "b")),
        (b"/%zz", ("%zz",)),
        (b"/caf%C3%A9", ("café",)),
    ],
)
def test_normal_segments(path: bytes, want: tuple[str, ...]) -> None:
    """The usual reading of a path."""
    assert normal_segments(path) == want


@given(
    st.sampled_from([b"/v1/charges", b"/v1/charges/7/refund", b"/V1/Charges", b"/%76", b"*", b"/other", b"no target"]),
    st.binary(max_size=3),
)
def test_what_a_target_is_under_each_method(start: bytes, end: bytes) -> None:
    """As the match of each says, asked for the first time or again; a method that no route names stands for all others."""
    methods = sorted({method for route in TABLE.routes for method in route.methods} | {"BREW"}, key=lambda name: name.replace("BREW", ""))
    for _ in range(2):
        assert list(TABLE.under(start + end)) == [TABLE.match(method, start + end) for method in methods]
