"""Routes for certain hosts: which hosts reach them, and that no spelling of a host walks around a guard."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config.checks.overlap import shadowing
from gateway.core.policy import Policy, Route
from gateway.core.route_hosts import MAX_HOST, covers, parse_host
from gateway.core.routes import Match, Matched, NoRoute, RefusedTarget, RouteTable


def route(name: str, path: str = "/pay", *hosts: str, guarded: bool = True, methods: frozenset[str] = frozenset()) -> Route:
    return Route(name, path, "up", methods, Policy(name, ()) if guarded else None, hosts)


A, BELOW_B = route("a", "/pay", "a.test"), route("b", "/pay", "*.b.test", "b.test")
REST = route("rest", "/**", guarded=False)
TABLE = RouteTable((A, BELOW_B, REST))


def found(host: bytes, path: bytes = b"/pay", table: RouteTable = TABLE) -> str:
    match table.match("POST", path, host):
        case Matched(one):
            return one.id
        case RefusedTarget():
            return "refused"
        case NoRoute():
            return "none"


@pytest.mark.parametrize(
    ("host", "taken"),
    [
        (b"a.test", "a"),
        (b"A.Test", "a"),
        (b"a.test.", "a"),
        (b"a.test:8080", "a"),
        (b"A.TEST.:80", "a"),
        (b"a.test:", "a"),
        (b"b.test", "b"),
        (b"x.b.test", "b"),
        (b"x.y.B.test.:1", "b"),
        (b"xb.test", "rest"),
        (b"a.test.evil.test", "rest"),
        (b"x.a.test", "rest"),
        (b"", "rest"),
        (b"127.0.0.1:80", "rest"),
        (b"[::1]:80", "rest"),
        (b"a.test..", "refused"),
        (b".a.test", "refused"),
        (b"a..test", "refused"),
        (b"a%2etest", "refused"),
        (b"a.test,b.test", "refused"),
        (b"a.test;x", "refused"),
        (b"a" * (MAX_HOST + 1), "refused"),
        (b"a." * 30_000, "refused"),
    ],
)
def test_which_route_a_host_reaches(host: bytes, taken: str) -> None:
    """Letter case, ports and one final dot mean nothing; what some upstream may read as another host is refused."""
    assert found(host) == taken


def test_without_host_routes_no_host_is_looked_at() -> None:
    """A map that names no host takes every one that HTTP takes."""
    table = RouteTable((route("pay"), REST))
    assert not table.by_host
    assert TABLE.by_host
    assert found(b"a%2etest", table=table) == "pay"


def test_readings_are_judged_per_host() -> None:
    """A spelling of a guarded path is refused on the guard's hosts, and is any other path elsewhere; `*` likewise."""
    assert [found(host, b"/x/..%2fpay") for host in (b"a.test", b"x.b.test", b"c.test")] == ["refused", "refused", "rest"]
    assert [found(host, b"/PAY") for host in (b"a.test", b"c.test")] == ["refused", "rest"]
    table = RouteTable((route("root", "/", "a.test"), REST))
    assert [_asterisk(table, host) for host in (b"a.test", b"c.test")] == [RefusedTarget(None), Matched(REST)]


def _asterisk(table: RouteTable, host: bytes) -> Match:
    return table.match("OPTIONS", b"*", host)


def test_a_host_without_routes_has_none() -> None:
    assert found(b"c.test", table=RouteTable((A,))) == "none"


def test_file_order_decides() -> None:
    """The first route whose host and path match, be its host wide or narrow."""
    narrow, wide = route("narrow", "/**", "x.a.test"), route("wide", "/**", "*.a.test")
    assert found(b"x.a.test", table=RouteTable((narrow, wide))) == "narrow"
    assert found(b"x.a.test", table=RouteTable((wide, narrow))) == "wide"


SPELLINGS = st.tuples(
    st.sampled_from(["a.test", "b.test", "x.b.test", "a.test.b.test"]),
    st.sampled_from(["", ".", "..", ":80", ".:80", ":", "%2e", ":0443", " ", "\t"]),
    st.sampled_from(["", ".", "%61"]),
    st.randoms(use_true_random=False),
)


@given(SPELLINGS)
def test_no_spelling_walks_around_a_guard(spelling: tuple[str, str, str, object]) -> None:
    """However a guarded host is spelt, its path is guarded, or the request is refused."""
    host, behind, before, rnd = spelling
    name = "".join(letter.upper() if rnd.random() < 0.5 else letter for letter in host)  # type: ignore[attr-defined]  # Hypothesis' Random has no public type
    assert found((before + name + behind).encode()) in {"a", "b", "refused"}


@pytest.mark.parametrize(
    ("text", "spelled"), [("Shop.Example", "shop.example"), ("shop.example.", "shop.example"), ("*.A.b", "*.a.b"), ("10.0.0.1", "10.0.0.1")]
)
def test_hosts_of_routes(text: str, spelled: str) -> None:
    assert parse_host(text) == spelled


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "a:80", "http://a", "a b", "a..b", ".a", "shöp.example", "a.*.b", "*a.b", "-a.b", "[::1]", "a%2e"]
)
def test_what_is_no_host(text: str) -> None:
    """Each with a sentence that says what to change."""
    with pytest.raises(ValueError, match=r"host|ASCII"):
        parse_host(text)


NAMES = st.sampled_from(["a.t", "b.a.t", "c.b.a.t", "*.t", "*.a.t", "*.b.a.t"])
HOSTS = ["a.t", "b.a.t", "c.b.a.t", "x.t", "x.a.t", "x.b.a.t", "x.x.a.t", "t", "other"]
ROUTES = st.builds(
    lambda hosts, path, methods: route("r", path, *dict.fromkeys(hosts), methods=frozenset(methods)),
    st.lists(NAMES, max_size=2),
    st.sampled_from(["/pay", "/{x}", "/**"]),
    st.sets(st.sampled_from(["GET", "PUT"]), max_size=2),
)


@given(st.lists(ROUTES, max_size=4), ROUTES)
@example([route("r", "/**", "a.t"), route("r", "/**", "b.a.t")], route("r", "/pay", "a.t", "b.a.t"))
def test_a_shadowed_route_is_one_that_no_request_reaches(earlier: list[Route], later: Route) -> None:
    """`check` names a route as unreachable exactly if no host, path and method reach it."""
    table = RouteTable((*earlier, last := Route("last", later.path, "up", later.methods, later.policy, later.hosts)))
    requests = [(method, path, host) for method in ("GET", "PUT", "DELETE") for path in (b"/pay", b"/x") for host in HOSTS]
    paths = [] if later.path == "/pay" else [(method, b"/pay/y", host) for method in ("GET", "PUT", "DELETE") for host in HOSTS]
    reached = any(table.match(method, path, host.encode()) == Matched(last) for method, path, host in requests + paths)
    assert reached == (not shadowing(earlier, last))


@given(NAMES, NAMES)
def test_a_wider_host_covers(one: str, other: str) -> None:
    table = [RouteTable((route("r", "/pay", name),)) for name in (one, other)]
    taken = [{host for host in HOSTS if found(host.encode(), table=each) == "r"} for each in table]
    assert covers(one, other) == (taken[1] <= taken[0])
