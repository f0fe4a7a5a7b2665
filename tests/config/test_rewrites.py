"""Rewritten paths in the route map."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.path_pattern import Pattern, parse_pattern
from gateway.core.reach import meet
from gateway.core.rewrite import Rewrite
from tests.config.support import HEAD, ROUTES, mistakes, read

SEGMENTS = ("a", "b", "c")
PATHS = [("",), *(path for length in range(1, 5) for path in product(SEGMENTS, repeat=length))]


@pytest.mark.parametrize(
    ("rewrite", "expected"),
    [
        ("{from: /v1, to: /}", None),
        ("{from: /v1/charges/, to: /a}", None),
        ("{from: /, to: /a}", None),
        ("{from: /v2, to: /}", ".from: /v1/charges does not begin with /v2; write a beginning of the path"),
        ("{from: /v1/cha, to: /}", ".from: /v1/charges does not begin with /v1/cha; write a beginning of the path"),
        ("{from: /v1}", ".to: is required"),
        ("{from: /v1, to: '/a/{b}'}", ".to: '/a/{b}': a prefix is written out, without parameters and without /**"),
        (
            "{from: /v1, to: /a/../b}",
            ".to: empty and dot segments never match, since requests are compared in their normal form; remove them",
        ),
    ],
)
def test_a_rewrite_is_judged(tmp_path: Path, rewrite: str, expected: str | None) -> None:
    """`from` is a beginning of the route's path, and both are written out."""
    found = mistakes(tmp_path, HEAD + ROUTES.replace("    idempotency:", f"    rewrite: {rewrite}\n    idempotency:"))
    assert [one.partition("routes[0].rewrite")[2] for one in found] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("route", "warned"),
    [
        ("path: /open/**, rewrite: {from: /open, to: /v1}", True),
        ("path: /open/**, rewrite: {from: /open, to: /}", True),
        ("path: /Open, rewrite: {from: /Open, to: /V1/Charges}", True),
        ("path: /open/**, rewrite: {from: /open, to: /other}", False),
        ("path: /open/**, rewrite: {from: /open, to: /v1}, methods: [GET]", False),
        ("path: /open/**", False),
    ],
)
def test_an_unguarded_way_to_a_guarded_path_is_told(tmp_path: Path, route: str, warned: bool) -> None:
    """Where an unguarded route's path becomes one that the upstream takes for a guarded one's."""
    found = read(tmp_path, f"{HEAD}{ROUTES}  - {{id: open, upstream: payments, {route}}}\n").warnings
    assert [one.message for one in found if "may reach, unguarded" in one.message] == (
        [
            "what it takes may reach, unguarded, what the upstream knows of /v1/charges (route `charge`); rewrite it to another prefix, "
            "or guard it too"
        ]
        if warned
        else []
    )


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    segments = draw(st.lists(st.sampled_from(("a", "b", "{x}")), max_size=3))
    return parse_pattern("/" + "/".join([*segments, *(["**"] if draw(st.booleans()) else [])]))


@given(patterns(), patterns())
def test_patterns_meet_where_a_path_belongs_to_both(one: Pattern, other: Pattern) -> None:
    """Against brute force."""
    assert meet(one, other) == any(one.matches(path) and other.matches(path) for path in PATHS)


@pytest.mark.parametrize(
    ("url", "route", "told"),
    [
        ("http://PAYMENTS:8000", "path: /**", "takes, unguarded, any spelling"),
        ("http://other:8000", "path: /**", None),
        ("http://payments:8001", "path: /**", None),
        ("http://payments:8000/v1", "path: /charges", "may reach, unguarded"),
        ("http://payments:8000/v2", "path: /charges", None),
        ("http://payments:8000", "path: /open/**, rewrite: {from: /open, to: /}", "may reach, unguarded"),
    ],
)
def test_two_names_of_one_server_are_one_upstream(tmp_path: Path, url: str, route: str, told: str | None) -> None:
    text = HEAD.replace("  payments:", f'  same: {{url: "{url}"}}\n  payments:') + ROUTES
    found = [str(one) for one in read(tmp_path, f"{text}  - {{id: open, upstream: same, {route}}}\n").warnings]
    assert any("unguarded" in one for one in found) == (told is not None), found
    assert told is None or any(told in one for one in found)


def test_the_path_at_the_upstream_is_a_pattern() -> None:
    """Parameters and the rest stay."""
    assert Rewrite("/v1", "/a/b").pattern("/v1/{id}/**") == parse_pattern("/a/b/{id}/**")
    assert Rewrite("/v1", "/").pattern("/v1") == parse_pattern("/")
    assert Rewrite("/", "/a").pattern("/**") == parse_pattern("/a/**")
