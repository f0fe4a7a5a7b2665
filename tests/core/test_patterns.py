"""Path patterns: what they match, what they cover, what is none."""

import re
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.path_pattern import Pattern, parse_pattern

segments = st.lists(st.sampled_from(["a", "b", "{x}"]), max_size=3)
patterns = st.builds(lambda parts, rest: "/" + "/".join([*parts, "**"] if rest else parts), segments, st.booleans())
PATHS = [path for length in range(1, 6) for path in product(("a", "b", "z", ""), repeat=length)]


@given(patterns, patterns)
@example("/**", "/")
@example("/{x}", "/")
@example("/{x}/**", "/**")
@example("/a/**", "/a")
@example("/a/{x}/**", "/a/**")
@settings(max_examples=60)
def test_covers_is_inclusion(one: str, other: str) -> None:
    """One pattern covers another exactly if it matches every path that the other matches."""
    mine, theirs = parse_pattern(one), parse_pattern(other)
    assert mine.covers(theirs) == all(mine.matches(path) for path in PATHS if theirs.matches(path))


@given(patterns)
def test_matches_is_the_written_rule(text: str) -> None:
    """Literals match themselves, a parameter any one non-empty segment, a closing `/**` zero or more segments."""
    expression = "".join("(/.*)?" if part == "**" else "/[^/]+" if part == "{x}" else f"/{part}" for part in text[1:].split("/"))
    for path in PATHS:
        assert parse_pattern(text).matches(path) == bool(re.fullmatch(expression, "/" + "/".join(path)))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/", Pattern(("",), rest=False)),
        ("/**", Pattern((), rest=True)),
        ("/v1/charges", Pattern(("v1", "charges"), rest=False)),
        ("/v1/{id}/capture", Pattern(("v1", None, "capture"), rest=False)),
        ("/v1/{id}/**", Pattern(("v1", None), rest=True)),
        ("/v1/charges/", Pattern(("v1", "charges"), rest=False)),
        ("/v1/{id}/", Pattern(("v1", None), rest=False)),
        ("/a.b/~c/d;e=1/f:g@h", Pattern(("a.b", "~c", "d;e=1", "f:g@h"), rest=False)),
    ],
)
def test_parse_pattern(text: str, want: Pattern) -> None:
    """What is written is what is matched."""
    assert parse_pattern(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "*",
        "/a//",
        "/a/**/",
        "/a//b",
        "//",
        "/./a",
        "/a/..",
        "/**/a",
        "/a*",
        "/*",
        "/{a}b",
        "/{a",
        "/{}",
        "/{1}",
        "/{a-b}",
        "/a%20b",
        "/é",
        "/a b",
        "/a?b",
        "/a#b",
    ],
)
def test_what_is_no_pattern(text: str) -> None:
    """A path that could never match, or means something else than it seems to, is refused when the map is read."""
    with pytest.raises(ValueError, match=r"path|segment|parameter"):
        parse_pattern(text)


@pytest.mark.parametrize(
    "part", [":kind", ":kind?", "<kind>", "<int:kind>", "{kind:int}", "{kind:[a-z]+}", "[kind]", "[...kind]", "{kind...}"]
)
def test_a_parameter_as_others_write_it_is_no_literal(part: str) -> None:
    """What would match nothing that was meant, and guard nothing, is refused with the spelling that is meant."""
    with pytest.raises(ValueError, match=r"a parameter is written \{kind\}"):
        parse_pattern(f"/v1/{part}")


def test_a_colon_inside_a_segment_is_a_literal() -> None:
    """Custom methods (AIP-136) are written with one."""
    assert parse_pattern("/v1/charges:capture") == Pattern(("v1", "charges:capture"), rest=False)
