"""The target normaliser against models of upstreams: no spelling of a guarded operation passes unguarded, and none costs much."""

import time

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.path_interpretations import parts
from gateway.core.policy import Policy, Route
from gateway.core.routes import Matched, NoRoute, RefusedTarget, RouteTable, normal_segments, split_target
from tests.system.fuzz.mutations import PIECES
from tests.system.fuzz.profile import bounded
from tests.system.fuzz.upstreams import UPSTREAMS, Pattern, first_taking

LONGEST = 8192
BUDGET = 1.0
"""Seconds of CPU for one target, on any machine: a thousand times what a usual one takes."""

_LITERALS = (
    b"v1",
    b"pay",
    b"pay",
    b"a",
    b"Pay",
    b"x.y",
    b".x",
    b"a.",
    b"a,b",
    b"a:b",
    b"(a)",
    b"a'b",
    b"~",
    b"-",
    b"a=b",
    b"a@b",
    b"$",
    b"a+b",
    b"...",
)
_WORDS = (*_LITERALS, b"b", b"%41", b"caf%C3%A9", b"1", b"x%20y", b"\xe9")
_SLIPS = (
    *(
        b"/",
        b"//",
        b"/.",
        b"/./",
        b"/../",
        b"/x/../",
        b"/..",
        b"\\",
        b"%2F",
        b"%2f",
        b"%5C",
        b"%252F",
        b"%25252f",
        b";",
        b";p=1",
        b";a/b",
        b"%3B",
        b"%3b/",
    ),
    *(
        b".",
        b"..",
        b"%2e",
        b"%2E%2e",
        b"%252e",
        b" ",
        b"%20",
        b"+",
        b"%00",
        b"%00.txt",
        b"\0",
        b"%0a",
        b"%09",
        b"\t",
        b"?",
        b"%3F",
        b"#",
        b"%23",
        b"?/..",
        b"%3f/..",
    ),
    *(b"%", b"%zz", b"%u002f", b"%c0%af", b"%ef%bc%8f", b"\xa0", b"%a0", b"*", b"**", b":", b"@", b"%40", b"http://h", b"//h"),
)


@st.composite
def pattern_lists(draw: st.DrawFn) -> tuple[list[Pattern], list[bool]]:
    """Route patterns, and which of them are guarded: at least one. The last one takes everything else."""
    count = draw(st.integers(1, 3))
    pieces = st.lists(st.sampled_from((*_LITERALS, None)), min_size=1, max_size=3)
    patterns = [Pattern(tuple(draw(pieces)), draw(st.integers(0, 4)) == 3) for _ in range(count)]
    guarded = [draw(st.booleans()) for _ in range(count)]
    guarded[draw(st.integers(0, count - 1))] = True
    return [*patterns, Pattern((), rest=True)], [*guarded, False]


@st.composite
def targets(draw: st.DrawFn, pattern: Pattern) -> bytes:
    """A path that belongs to the pattern, misspelt in a few ways, perhaps in absolute form, with a query or far too long."""
    segments = [draw(st.sampled_from(_WORDS)) if piece is None else piece for piece in pattern.pieces]
    segments += draw(st.lists(st.sampled_from(_WORDS), max_size=2)) if pattern.rest else []
    path = b"/" + b"/".join(segments)
    for _ in range(draw(st.sampled_from((0, 1, 1, 2, 3)))):
        at = draw(st.integers(0, 99)) % (len(path) + 1)
        slip = draw(st.integers(0, len(_SLIPS) + 40))
        path = path[:at] + _SLIPS[slip] + path[at:] if slip < len(_SLIPS) else _respell(path, at, slip)
    if draw(st.integers(0, 19)) == 11:
        path += draw(st.sampled_from(_SLIPS)) * draw(st.integers(1, LONGEST))
    prefix = draw(st.sampled_from((b"", b"", b"", b"http://h", b"HTTPS://u@h:1")))
    return (prefix + path + draw(st.sampled_from((b"", b"", b"?", b"?q=/v1/pay"))))[:LONGEST]


def _respell(path: bytes, at: int, how: int) -> bytes:
    """One letter encoded, doubly encoded, or in the other case; or another slash."""
    at = min(at, len(path) - 1)
    letter = path[at : at + 1]
    spelt = (
        b"%%%02x" % letter[0],
        b"%%%02X" % letter[0],
        b"%%25%02x" % letter[0],
        b"%%25%%%02x" % (0x30 + letter[0] // 16) + b"%x" % (letter[0] % 16),
    )
    match how % 6:
        case 0 | 1 | 2 | 3:
            return path[:at] + spelt[how % 6] + path[at + 1 :]
        case 4:
            return path[:at] + letter.swapcase() + path[at + 1 :]
        case _:
            return path[:at].replace(b"/", (b"%2F", b"\\", b"//", b"/./")[how % 4]) + path[at:]


@st.composite
def maps_and_targets(draw: st.DrawFn) -> tuple[list[Pattern], list[bool], bytes]:
    patterns, guarded = draw(pattern_lists())
    return patterns, guarded, draw(targets(patterns[draw(st.integers(0, len(patterns) - 2))]))


def make_table(patterns: list[Pattern], guarded: list[bool]) -> RouteTable:
    """The route map of these patterns; their ids are their numbers."""
    policies = [Policy(str(number), ()) if guard else None for number, guard in enumerate(guarded)]
    return RouteTable(tuple(Route(str(number), pattern.text, "u", policy=policies[number]) for number, pattern in enumerate(patterns)))


@bounded(800)
@given(maps_and_targets())
@example(([Pattern((b"v1", b"pay")), Pattern((), rest=True)], [True, False], b"//v1/pay"))
def test_no_reading_of_a_guarded_operation_passes_unguarded(case: tuple[list[Pattern], list[bool], bytes]) -> None:
    """Whatever upstream reads the target as a guarded route's path: the gateway guards it or refuses it."""
    patterns, guarded, target = case
    found = make_table(patterns, guarded).match("POST", target)
    if isinstance(found, RefusedTarget | NoRoute):
        return
    assert isinstance(found, Matched)
    if found.route.policy is not None:
        return
    for upstream in UPSTREAMS:
        for path in upstream.read(target):
            number = first_taking(patterns, path, upstream.same)
            assert number is None or not guarded[number], f"{upstream.name} reads {target!r} as {path!r} of {patterns[number].text}"


@bounded(250)
@given(maps_and_targets())
def test_a_literal_match_is_that_route(case: tuple[list[Pattern], list[bool], bytes]) -> None:
    """What is forwarded is the origin-form; a path that literally is a guarded route's is guarded by it, or refused as too ambiguous."""
    patterns, guarded, target = case
    path, query, origin = split_target(target)
    assert target.endswith(origin) or (origin.startswith(b"/") and target.endswith(origin[1:]) and target[0] != ord("/"))
    number = first_taking(patterns, tuple(path[1:].split(b"/"))) if path.startswith(b"/") else None
    found = make_table(patterns, guarded).match("POST", target)
    if number is not None and guarded[number] and isinstance(found, Matched):
        assert found.route.id == str(number)
    assert origin in {path, path + b"?" + query}


_PADDED = st.tuples(
    st.lists(st.sampled_from((*_SLIPS, *_WORDS, *PIECES["targets"])), min_size=1, max_size=4).map(b"".join), st.integers(1, LONGEST)
).map(lambda pair: (b"/" + pair[0] * pair[1])[:LONGEST])


@bounded(150)
@given(_PADDED | st.binary(max_size=200))
@example(b"/" + b"%25" * 2729)
@example(b"/" + b"%2f" * 2729)
@example(b"/" + b"a;b/" * 2000)
@example(b"/" + b"\\;%3F/" * 1300)
@example(b"/" + b"/" * 8000)
def test_any_target_has_a_cheap_verdict(target: bytes) -> None:
    """Any bytes up to 8 KiB are judged without an exception and in bounded time, the same way each time."""
    table = make_table([Pattern((b"v1", b"pay")), Pattern((b"a", None), rest=True), Pattern((), rest=True)], [True, True, False])
    started = time.process_time()
    found = table.match("POST", target)
    path = split_target(target)[0]
    normal_segments(path)
    if path.startswith(b"/"):
        parts(path)
    assert time.process_time() - started < BUDGET
    assert table.match("POST", target) == found
