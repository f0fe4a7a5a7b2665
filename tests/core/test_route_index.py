"""All patterns walked at once, through all readings at once: the same verdicts as one by one, at a cost that is linear in the path."""

import sys
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.path_interpretations import Option, names_host, parts
from gateway.core.path_pattern import Pattern
from gateway.core.policy import Policy, Route
from gateway.core.route_index import Bits, RouteIndex
from gateway.core.routes import MAX_SEGMENTS, RefusedTarget, RouteTable
from tests.core.tables import PAY, REST, guarded, match

names = st.sampled_from(["a", "b", "pay", "pay.json", "index.php", ""])
patterns = st.builds(Pattern, st.lists(st.sampled_from(["a", "b", "pay", None]), min_size=0, max_size=3).map(tuple), st.booleans())
tables = st.lists(patterns.filter(lambda one: one.rest or bool(one.segments)), min_size=1, max_size=5)
spelled = st.lists(
    st.sampled_from(["a", "b", "pay", "a%5Cb", "a%2Fb", "pay.json", "index.php", "%20", "", "a;b", "pay%3Fx", "A", "b%2Fpay", "b%00"]),
    max_size=5,
).map(lambda segments: ("/" + "/".join(segments)).encode())


def one_by_one(table: list[Pattern], segments: tuple[str, ...]) -> Bits:
    return sum(1 << at for at, pattern in enumerate(table) if pattern.matches(segments))


@given(tables, st.lists(names, min_size=1, max_size=5).map(tuple))
@settings(max_examples=200)
def test_find_is_matches(table: list[Pattern], segments: tuple[str, ...]) -> None:
    """Walked together, patterns take the paths that each of them takes alone."""
    assert RouteIndex(table).find(segments) == one_by_one(table, segments)


def expand(options: list[tuple[Option, ...]], *, host_first: bool, assume: bool) -> set[tuple[str, ...]]:
    """Every reading, one by one."""
    found: set[tuple[str, ...]] = set()
    for chosen in product(*options):
        reading: tuple[str, ...] = ()
        heads = 1
        for option in chosen:
            if option.assumed and not assume:
                break
            reading, heads = (option.segments, 0) if option.anew else (reading + option.segments, heads)
            if option.ends:
                break
        else:
            option = Option(())
        if option.assumed and not assume:
            continue
        found.add(reading)
        if host_first and heads:
            found.add(reading[1:])
    return found


@given(tables, spelled, st.booleans())
@settings(max_examples=300)
@example([Pattern(("b", "pay"), rest=False)], b"//a/index.php/b/pay.json", True)
@example([Pattern((), rest=True)], b"/", True)
def test_all_readings_at_once_are_each_of_them(table: list[Pattern], path: bytes, assume: bool) -> None:
    """No reading is lost and none is made up where they are walked together."""
    options = parts(path)
    assert options is not None
    host = names_host(path)
    wanted = {
        one_by_one(table, segments)
        for reading in expand(options, host_first=host, assume=assume)
        for segments in ((reading or ("",)), (*reading, ""))
    }
    assert RouteIndex(table).find_all(options, host_first=host, assume=assume) == wanted


def steps(target: bytes) -> int:
    """How many calls the verdict on a target takes: C functions among them, each of which gets one piece of the path."""
    table, count = RouteTable((PAY, guarded("/v1/{id}/refund"), guarded("/a/**"), REST)), 0

    def counted(_: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        table.match("POST", target)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("doubtful", [b"/a%5Cb" * 5, b"/a%5Cb" * 20, b"/%20" * 15, b"/b;x" * 9, b"/index.php" * 20, b"/%3F" * 9])
def test_the_cost_of_a_path_is_linear_in_its_segments(doubtful: bytes) -> None:
    """A path whose first segments have many readings costs no more for each of the others: twice the segments, twice the steps."""
    short, long = (steps(b"/x" + doubtful + b"/a" * count) for count in (200, 400))
    assert long < 2.2 * short


def test_a_path_beyond_all_measure_is_refused_unread() -> None:
    """58 KB of segments, five of which have two readings: no step of it is walked."""
    target = b"/a%5Cb" * 5 + b"/a" * 29_000
    assert match(target) == "refused"
    assert RouteTable((REST,)).match("GET", target) == RefusedTarget(None)
    assert match(b"/a" * MAX_SEGMENTS, RouteTable((REST,))) == "rest"
    assert steps(target) < 100


RAILS_AND_PHP = [
    b"/v1/pay.json",
    b"/v1/pay.xml",
    b"/v1/pay.xml.json",
    b"/v1/pay.json/",
    b"/V1/Pay.JSON",
    b"/v1/pay%2Ejson",
    b"/v1/7/refund.json",
]
FRONT_CONTROLLERS = [
    b"/index.php/v1/pay",
    b"/index.php/v1/pay/",
    b"/app/index.php/v1/pay",
    b"/app.PHP/v1/pay.json",
    b"/cgi-bin/app.cgi/v1/pay",
]


@pytest.mark.parametrize("target", RAILS_AND_PHP + FRONT_CONTROLLERS)
def test_what_frameworks_route_to_a_guarded_path(target: bytes) -> None:
    """A format's suffix (Rails) and a script before the path (PHP, CGI) do not walk around the guard."""
    assert match(target) == "refused"
    assert match(target, method="GET") == "rest"


@pytest.mark.parametrize(
    "target", [b"/v1/pays.json", b"/files/a.json", b"/index.php", b"/index.php/v2/pay", b"/v1.1/pay", b"/v1/pay.d/x", b"/.pay"]
)
def test_what_they_route_elsewhere_passes(target: bytes) -> None:
    """Dots that no framework drops make another path."""
    assert match(target) == "rest"


def test_a_route_that_spells_the_suffix_out_is_meant() -> None:
    """An unguarded `/v1/pay.json` in the route map is another path, and the operator says so; other suffixes stay refused."""
    table = RouteTable((PAY, Route("feed", "/v1/pay.json", "up"), Route("script", "/index.php/v1/pay", "up"), REST))
    assert match(b"/v1/pay.json", table) == "feed"
    assert match(b"/index.php/v1/pay", table) == "script"
    assert match(b"/v1/pay.xml", table) == "refused"
    assert match(b"/v1/pay.json", RouteTable((PAY, Route("any", "/v1/{name}", "up")))) == "refused"


def test_a_guarded_path_with_a_dot_is_its_own() -> None:
    """A parameter of a guarded route holds what it holds."""
    table = RouteTable((guarded("/v1/files/{name}"), REST))
    assert match(b"/v1/files/a.json", table) == "guarded /v1/files/{name}"


@pytest.mark.parametrize("path", ["/v1/pay", "/v1/pay/"])
def test_a_closing_slash_is_another_spelling(path: str) -> None:
    """With or without it, in the pattern or in the request, the guard holds; only one slash, and no other spelling of it."""
    table = RouteTable((guarded(path), REST))
    assert match(b"/v1/pay", table) == f"guarded {path}"
    assert match(b"/v1/pay/", table) == f"guarded {path}"
    assert match(b"/v1/pay//", table) == "refused"
    assert match(b"/v1/pay%2F", table) == "refused"
    assert match(b"/V1/pay/", table) == "refused"
    unguarded = RouteTable((Route("open", path, "up"),))
    assert [match(target, unguarded) for target in (b"/v1/pay", b"/v1/pay/", b"/v1/pay/x")] == ["open", "open", None]


def test_a_guard_of_either_spelling_comes_first() -> None:
    """Where a closing slash leads to two routes, a guarded one has the request: first the one without."""
    below = Route("below", "/a/**", "api", policy=Policy("below", ()))
    assert match(b"/a/", RouteTable((Route("open", "/a", "api"), below))) == "below"
    assert match(b"/a", RouteTable((Route("open", "/a", "api"), below))) == "open"
    assert match(b"/v1/pay/", RouteTable((PAY, guarded("/v1/pay/**"), REST))) == PAY.id
    assert match(b"/v1/pay/", RouteTable((PAY, Route("below", "/v1/pay/**", "up")))) == PAY.id
