"""Routes that take each other's requests, against brute force over all short paths."""

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config.checks.overlap import shadowing, shadows
from gateway.core.path_pattern import Pattern, parse_pattern
from gateway.core.policy import Route

LITERALS = ("a", "b")
METHODS = ("GET", "POST", "PATCH")
PATHS = [segments for length in range(1, 5) for segments in product((*LITERALS, "other", ""), repeat=length)]
"""Every path of one to four segments over the two literals, one segment that is neither, and the empty one; split at the slashes."""


@st.composite
def patterns(draw: st.DrawFn) -> str:
    segments = draw(st.lists(st.sampled_from((*LITERALS, "{x}")), max_size=3))
    if draw(st.booleans()):
        segments.append("**")
    return "/" + "/".join(segments)


routes = st.builds(Route, st.just("id"), patterns(), st.just("up"), st.frozensets(st.sampled_from(METHODS)))


def requests(route: Route) -> set[tuple[str, tuple[str, ...]]]:
    """Every request that a route matches, among the paths above, the methods above and one other."""
    methods = route.methods or {*METHODS, "OTHER"}
    pattern = parse_pattern(route.path)
    return {(method, path) for method in methods for path in PATHS if _matches(pattern, path)}


def _matches(pattern: Pattern, path: tuple[str, ...]) -> bool:
    """The rule of the specification, told again: literals match themselves, a parameter one non-empty segment, `/**` the rest."""
    if pattern.rest:
        path = path[: len(pattern.segments)] if len(path) > len(pattern.segments) else path
    if len(path) != len(pattern.segments):
        return False
    return all(bool(have) if want is None else want == have for want, have in zip(pattern.segments, path, strict=True))


@given(routes, routes)
@example(Route("a", "/**", "up"), Route("b", "/", "up"))
@example(Route("a", "/a/**", "up"), Route("b", "/a", "up"))
@example(Route("a", "/a/{x}", "up"), Route("b", "/a/**", "up"))
@example(Route("a", "/{x}/**", "up"), Route("b", "/**", "up"))
@example(Route("a", "/{x}", "up", frozenset(METHODS)), Route("b", "/{x}", "up"))
def test_shadowing_is_inclusion(earlier: Route, later: Route) -> None:
    """One route shadows another exactly if it matches every request that the other matches."""
    assert shadows(earlier, later) == (requests(later) <= requests(earlier))


@given(st.lists(routes, max_size=4), routes)
@example([Route("a", "/a", "up"), Route("b", "/a/{x}/**", "up")], Route("c", "/a/**", "up"))
@example(
    [Route("a", "/a/**", "up", frozenset({"GET"})), Route("b", "/{x}", "up", frozenset({"POST"}))],
    Route("c", "/a", "up", frozenset({"GET", "POST"})),
)
def test_a_route_is_dead_exactly_if_nothing_reaches_it(earlier: list[Route], later: Route) -> None:
    """A route is said never to match exactly if the earlier ones take all of its requests, and those that are named do."""
    taking = shadowing(earlier, later)
    assert bool(taking) == (requests(later) <= set().union(*map(requests, earlier)))
    assert not taking or requests(later) <= set().union(*map(requests, taking))


@given(st.lists(st.frozensets(st.sampled_from(METHODS)), max_size=4), st.frozensets(st.sampled_from(METHODS)))
def test_methods_are_added_up_over_one_path(earlier: list[frozenset[str]], later: frozenset[str]) -> None:
    """On one path a route is dead exactly if the earlier ones share out its methods."""
    before = [Route(str(index), "/a", "up", methods) for index, methods in enumerate(earlier)]
    dead = frozenset() in earlier or (bool(later) and later <= frozenset[str]().union(*earlier))
    assert bool(shadowing(before, Route("later", "/a", "up", later))) == dead
