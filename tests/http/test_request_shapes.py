"""What is told of a head by its shape is what the parser tells of it, whatever its bytes."""

import gc
import tracemalloc
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.field_names import VARY
from gateway.core.head_shapes import MOST_LINES
from gateway.core.headers import Fields
from gateway.http.head_parser import HeadParser, HeadTooLarge, MalformedHead
from gateway.http.request_shapes import ReadRequest, RequestShape, RequestShapes

MOST = 20
SHAPES = RequestShapes(VARY)

HEAD = (
    b"POST /v1/payments?a=b HTTP/1.1\r\nHost: api.test\r\nAccept: */*\r\nAuthorization: Bearer a\r\nContent-Type: application/json\r\n"
    b"Idempotency-Key: %b\r\nContent-Length: %b\r\ntraceparent: 00-%b-b7ad6b7169203331-01\r\n\r\n"
)


@dataclass(frozen=True)
class Told:
    """All that is told of a head."""

    method: str
    target: bytes
    version: tuple[int, int]
    keep_alive: bool
    lines: tuple[tuple[bytes, bytes], ...]
    first: tuple[tuple[bytes, bytes | None], ...]
    names: tuple[bytes, ...]
    length: int
    chunked: bool
    upgrade: bool


def told(head: HeadParser | RequestShape, method: str, target: bytes, fields: Fields, length: int) -> Told:
    first = tuple((name, fields.first(name)) for name in sorted(fields.names()))
    names, lines = tuple(fields.names()), fields.lines
    return Told(method, target, head.version, head.keep_alive, lines, first, names, length, head.chunked, head.upgrade)


def as_parsed(parser: HeadParser) -> Told:
    return told(parser, parser.method, parser.target, parser.fields, parser.length)


def parsed(raw: bytes) -> HeadParser | None:
    parser = HeadParser(MOST)
    try:
        parser.feed(raw)
    except (MalformedHead, HeadTooLarge):
        return None
    return parser if parser.complete else None


def learn(shapes: RequestShapes, raw: bytes) -> None:
    """Let it come twice."""
    for _ in range(2):
        parser = parsed(raw)
        if shapes.read(raw, MOST, 0) is None and parser is not None:
            shapes.learn(raw, parser)


def read(shapes: RequestShapes, raw: bytes, before: bytes | None = None) -> Told | None:
    """What the shapes tell of a head, with and without the ticket of the one before, which is the same."""
    earlier = None if before is None else shapes.read(before, MOST, 0)
    found = shapes.read(raw, MOST, 0 if earlier is None else earlier.ticket)
    alone = shapes.read(raw, MOST, 0)
    assert (found is None) == (alone is None)
    if found is None or alone is None:
        return None
    results = [told(one.shape, one.method, one.target, one.fields, one.length) for one in (found, alone)]
    assert results[0] == results[1]
    return results[0]


PIECES = st.sampled_from(
    [
        *(
            b"\r\n",
            b"\r",
            b"\n",
            b"\0",
            b" ",
            b"\t",
            b":",
            b",",
            b"0",
            b"+1",
            b"-1",
            b"chunked",
            b"\x80",
            b"\xff",
            b"\r\nHost: b",
            b"\r\n\r\n",
        ),
        *(b"\r\nContent-Length: 1", b"\r\nTransfer-Encoding: chunked", b"\r\ntraceparent: 1", b"\r\n folded", b"\r\nConnection: close"),
        *(b"\r\n\r\n", b"HTTP/1.0", b"HTTP/2.0", b"a" * 70, b"\r\nDate: ", b"\r\nDate:x", b"\r\nEtag : x", b"\r\nIdempotency-Key\0: 2"),
    ]
)
"""What somebody may put into a head who wants two readers to read two things."""


@given(st.text("abcdefXYZ019-", min_size=1, max_size=30), st.integers(0, 10**16), st.from_regex(rb"[0-9a-f]{32}", fullmatch=True))
def test_a_head_of_a_known_shape_is_told_as_the_parser_tells_it(key: str, length: int, trace: bytes) -> None:
    first, raw = HEAD % (b"k", b"2", b"0" * 32), HEAD % (key.encode(), b"%d" % length, trace)
    learn(SHAPES, first)
    parser = parsed(raw)
    assert parser is not None
    assert read(SHAPES, raw, first) == (None if length >= 10**15 else as_parsed(parser))


@settings(max_examples=400)
@given(st.integers(0, 400), st.integers(0, 6), PIECES, st.booleans())
@example(0, 0, b"\r\n", False)
def test_a_head_that_somebody_has_meddled_with_is_told_as_the_parser_tells_it_or_left_to_it(
    at: int, out: int, piece: bytes, twice: bool
) -> None:
    """Bytes go and others come, anywhere; also when the meddled head was itself what was learnt, and an honest one comes then."""
    honest = HEAD % (b"key-1", b"12", b"1" * 32)
    at %= len(honest)
    raw = honest[:at] + piece + honest[at + out :]
    shapes = RequestShapes(VARY)
    learn(shapes, honest)
    if twice:
        learn(shapes, raw)
    for one, before in ((raw, honest), (honest, raw), (HEAD % (b"key-2", b"7", b"2" * 32), raw)):
        found = read(shapes, one, before)
        if found is not None:
            parser = parsed(one)
            assert parser is not None, "the parser refuses it"
            assert found == as_parsed(parser)


LINE = st.tuples(
    st.sampled_from([b"Accept", b"X", b"Date", b"ETag", b"traceparent", b"X-Request-Id", b"Content-Length", b"Connection", b"Expect"]),
    st.sampled_from([b"", b"1", b"2", b"12", b"close", b"100-continue", b"a b", b"a, b", b"\xe9"]),
)


@settings(max_examples=300)
@given(
    st.lists(LINE, max_size=5), st.lists(LINE, max_size=5), st.sampled_from([b"GET", b"POST", b"HEAD"]), st.sampled_from([b"1.0", b"1.1"])
)
def test_two_heads_of_any_lines(one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]], method: bytes, version: bytes) -> None:
    """The second is told as the parser tells it, or left to it, when the first is known; also where names come twice."""
    heads = [
        b"%b / HTTP/%b\r\nHost: a\r\n%b\r\n" % (method, version, b"".join([b"%b: %b\r\n" % line for line in lines]))
        for lines in (one, other)
    ]
    shapes = RequestShapes(VARY)
    learn(shapes, heads[0])
    for raw in heads:
        found = read(shapes, raw, heads[0])
        if found is not None:
            parser = parsed(raw)
            assert parser is not None
            assert found == as_parsed(parser)


KNOWN_METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"])
ODD_METHODS = st.sampled_from([b"HEAD", b"OPTIONS", b"CONNECT", b"TRACE", b"SOURCE", b"PRI", b"get", b""])
PATHS = st.from_regex(rb"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,40}", fullmatch=True)
ODD_TARGETS = st.sampled_from(
    [b"*", b"/a#b", b"/a b", b"http://other.test/a", b"a.test:443", b"/\xc3\xa9", b"/a\0", b"/a\r\nX: y", b"/ HTTP/1.1", b""]
)
VERSIONS = [b" HTTP/1.1", b" HTTP/1.0", b" HTTP/1.10", b" HTTP/1.1 ", b" HTTP/2.0", b" RTSP/1.1", b" http/1.1", b""]
STARTS = st.tuples(
    KNOWN_METHODS | ODD_METHODS, st.sampled_from([b" ", b"  ", b"\t", b"\r\n"]), PATHS | ODD_TARGETS, st.sampled_from(VERSIONS)
)


@settings(max_examples=400)
@given(STARTS, st.booleans())
def test_methods_and_targets_are_told_by_their_request_line(start: tuple[bytes, ...], learnt: bool) -> None:
    """Any of them before what was known behind another; also when what is learnt came with an odd one."""
    _, _, rest = (HEAD % (b"k", b"2", b"0" * 32)).partition(b" HTTP/1.1")
    odd, usual = b"".join(start) + rest, b"PUT /other HTTP/1.1" + rest
    shapes = RequestShapes(VARY)
    learn(shapes, odd if learnt else usual)
    for raw in (odd, usual):
        found, parser = read(shapes, raw, usual), parsed(raw)
        if found is not None:
            assert parser is not None, "the parser refuses it"
            assert found == as_parsed(parser)


RESTS = st.sampled_from(
    [
        b"\r\nHost: h\r\n\r\n",
        b"\r\nX-B: c\r\n\r\n",
        b"/x HTTP/1.1\r\nHost: h\r\n\r\n",
        b" junk\r\nHost: h\r\n\r\n",
        b"0\r\nHost: h\r\n\r\n",
        b"\r\nHost: h\r\nHost: i\r\n\r\n",
        b"\r\nHost: h\r\nDate: 1\r\nVia: a HTTP/1.1\r\n\r\n",
    ]
)
BEFORE = st.sampled_from(
    [
        b"POST /free HTTP/1.1",
        b"GET / HTTP/1.1",
        b"GET /free HTTP/1.0\r\nX-Injected: a HTTP/1.1",
        b"GET /free HTTP/1.0\r\nHost: b\r\nX-Injected: a HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"get / HTTP/1.1",
        b" HTTP/1.1",
    ]
)
REFUSED = b"\r\nX-B: c\r\n\r\n"


@settings(max_examples=300)
@given(st.lists(st.tuples(BEFORE, RESTS), min_size=2, max_size=12))
@example([(b"POST /free HTTP/1.1", REFUSED), (b"GET /free HTTP/1.0\r\nX-Injected: a HTTP/1.1", REFUSED)] * 3)
def test_whatever_came_before_a_head_is_told_as_the_parser_tells_it(heads: list[tuple[bytes, bytes]]) -> None:
    """Also where the parser refuses some, and takes others in which the same bytes stand behind another line."""
    shapes = RequestShapes(VARY)
    for start, rest in heads:
        raw = start + rest
        found, parser = shapes.read(raw, MOST, 0), parsed(raw)
        if found is not None:
            assert parser is not None, "the parser refuses it"
            assert told(found.shape, found.method, found.target, found.fields, found.length) == as_parsed(parser)
        elif parser is not None:
            shapes.learn(raw, parser)


@given(PATHS, KNOWN_METHODS)
def test_another_target_is_no_other_shape(target: bytes, method: bytes) -> None:
    """Nor is another method."""
    raw = HEAD % (b"k", b"2", b"0" * 32)
    learn(SHAPES, raw)
    found = SHAPES.read(raw.replace(b"POST /v1/payments?a=b", method + b" " + target), MOST, 0)
    assert found is not None
    assert (found.method.encode(), found.target) == (method, target)


@pytest.mark.parametrize(
    "line",
    [
        b"Transfer-Encoding: chunked",
        b"Connection: upgrade\r\nUpgrade: websocket",
        b"Accept: a\r\nAccept: b",
        b"traceparent: 1\r\ntraceparent: 2",
    ],
)
def test_what_is_read_less_simply_is_left_to_the_parser(line: bytes) -> None:
    shapes = RequestShapes(VARY)
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % line
    learn(shapes, raw)
    assert read(shapes, raw) is None


def come(shapes: RequestShapes, raw: bytes) -> ReadRequest | None:
    """As on a connection: what is not known is parsed, and may be learnt."""
    found = shapes.read(raw, 100, 0)
    if found is None:
        parser = HeadParser(100)
        parser.feed(raw)
        shapes.learn(raw, parser)
    return found


def test_a_shape_holds_no_value_that_varies() -> None:
    """It was learnt from a caller's head, and is there for others."""
    shapes, raw = RequestShapes(VARY), b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %b\r\nAccept: */*\r\n\r\n"
    assert [come(shapes, raw % b"first"), come(shapes, raw % b"second")] == [None, None]
    found = come(shapes, raw % b"third")
    assert found is not None
    held = [word for holder in gc.get_referents(found.shape) for word in gc.get_referents(holder) if isinstance(word, bytes)]
    assert b"*/*" in held
    assert not [word for word in held if b"Bearer" in word]


@pytest.mark.parametrize("count", [1, 20, MOST_LINES - 2])
def test_heads_take_no_more_room_than_they_may(count: int) -> None:
    """However many of their fields vary, and in whatever lengths."""
    shapes, names = RequestShapes(VARY, 256 * 1024), sorted({b"x-%d" % number for number in range(count)})
    shapes.vary(names)
    tracemalloc.start()
    try:
        for number in range(60):
            for length in (1, *range(1, 18)):
                lines = [b"%b: %b" % (name, b"1" * (length if name == names[0] else 1)) for name in names]
                come(shapes, b"\r\n".join([b"GET / HTTP/1.1", b"Host: %d" % number, *lines, b"", b""]))
        assert tracemalloc.get_traced_memory()[0] <= 256 * 1024
    finally:
        tracemalloc.stop()
    known = b"\r\n".join([b"GET / HTTP/1.1", b"Host: 0", *[name + b": 1" for name in names], b"", b""])
    assert any(come(shapes, known) for _ in range(20))


@pytest.mark.parametrize("value", [b"a \x80", b"a\x80b", b"a ", b" a\t", b"\x80", b"a\tb", b""])
def test_a_value_that_is_no_plain_text_is_left_to_the_parser(value: bytes) -> None:
    """Also behind others of its field that were, but for blanks around it."""
    shapes, raw = RequestShapes(VARY), b"GET / HTTP/1.1\r\nHost: a\r\nCookie:%b\r\n\r\n"
    learn(shapes, raw % b" plain")
    assert read(shapes, raw % b" text") is not None
    assert read(shapes, raw % value, raw % b" plain") is None


def test_no_more_field_lines_than_a_connection_may_have() -> None:
    """The limit of the connection that asks, not of the one on which the shape was learnt."""
    shapes, raw = RequestShapes(VARY), HEAD % (b"k", b"2", b"0" * 32)
    learn(shapes, raw)
    found = shapes.read(raw, 7, 0)
    assert found is not None
    assert [shapes.read(raw, most, found.ticket) for most in (6, 1)] == [None, None]


def test_fields_of_a_shape_are_those_of_one_request() -> None:
    """Two requests of one shape share nothing that one of them could change."""
    shapes, heads = RequestShapes(VARY), [HEAD % (key, b"2", b"0" * 32) for key in (b"one", b"two")]
    learn(shapes, heads[0])
    results = [read(shapes, head) for head in heads]
    assert results[0] is not None
    assert results[1] is not None
    assert replace(results[1], lines=results[0].lines, first=results[0].first) == results[0]
    assert [dict(one.first)[b"idempotency-key"] for one in results if one is not None] == [b"one", b"two"]
