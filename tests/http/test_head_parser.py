"""One head, as its bytes come in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.head_parser import SINGLETONS, HeadParser, HeadTooLarge, MalformedHead

NAMES = st.sampled_from([b"A", b"a", b"Accept", b"Cookie", b"User-Agent", b"Content-Type", b"X-Long-Name"])
VALUES = st.one_of(
    st.sampled_from([b"", b"a, b", b'"quoted"', b"\xff\x80", b"a\tb"]),
    st.from_regex(rb"[!-~\x80-\xff]([ \t!-~\x80-\xff]{0,20}[!-~\x80-\xff])?", fullmatch=True),
)
BLANKS = st.sampled_from([b"", b" ", b"\t", b"  \t "])
LINES = st.lists(st.tuples(NAMES, VALUES, BLANKS, BLANKS), max_size=6)


def parse(raw: bytes, *cuts: int, most: int = 100) -> HeadParser:
    parser = HeadParser(most)
    for start, end in pairwise([0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]):
        if end > start:
            parser.feed(raw[start:end])
    return parser


@given(LINES, st.lists(st.integers(0, 400), max_size=5), st.sampled_from([b"GET", b"POST", b"DELETE"]))
def test_the_lines_are_as_received_wherever_they_are_cut(
    lines: list[tuple[bytes, bytes, bytes, bytes]], cuts: list[int], method: bytes
) -> None:
    """Names and values byte for byte, in order, without the blanks around values (RFC 9112 section 5.1); and the index says the same."""
    repeated = {name for name in SINGLETONS if [line[0].lower() for line in lines].count(name) > 1}
    raw = b"%b /t?q HTTP/1.1\r\nHost: a\r\n" % method
    raw += b"".join([b"%b:%b%b%b\r\n" % (name, before, value, after) for name, value, before, after in lines]) + b"\r\n"
    if repeated:
        with pytest.raises(MalformedHead):
            parse(raw, *cuts)
        return
    head = parse(raw, *cuts)
    assert head.complete
    assert (head.method, head.target, head.version, head.keep_alive) == (method.decode(), b"/t?q", (1, 1), True)
    wanted = ((b"Host", b"a"), *[(name, value) for name, value, _, _ in lines])
    assert head.fields.lines == wanted
    for name, _ in wanted:
        values = [value for other, value in wanted if other.lower() == name.lower()]
        assert head.fields.values(name.lower()) == values
        assert head.fields.first(name.lower()) == values[0]


@pytest.mark.parametrize("name", sorted(SINGLETONS - {b"host", b"content-length", b"transfer-encoding"}))
def test_a_field_that_there_can_be_once_is_refused_twice(name: bytes) -> None:
    """Also in another spelling, and at once: not only when the head is whole (RFC 9110 section 5.3)."""
    with pytest.raises(MalformedHead):
        parse(b"GET / HTTP/1.1\r\nHost: a\r\n%b: x\r\nAccept: x\r\n%b: x\r\nB" % (name, name.title()))


@pytest.mark.parametrize("whole", [True, False])
def test_fields_are_counted(whole: bool) -> None:
    """Up to the limit, whether the head ends or not (RFC 6585 section 5)."""
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 4
    assert parse(raw + b"\r\n", most=5).complete
    with pytest.raises(HeadTooLarge):
        parse(raw + (b"A: b\r\n\r\n" if whole else b"A: b\r\nA"), most=5)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key1: 4\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nmore",
    ],
    ids=["no host", "no target", "a body without framing", "bytes behind an upgrade"],
)
def test_what_the_parser_lets_pass_is_refused(raw: bytes) -> None:
    """RFC 9112 sections 3.2 and 6.3."""
    with pytest.raises(MalformedHead):
        parse(raw)


@pytest.mark.parametrize(
    ("lines", "length", "chunked", "upgrade"),
    [
        (b"", 0, False, False),
        (b"Content-Length: 0\r\n", 0, False, False),
        (b"Content-Length: 0012\r\n", 12, False, False),
        (b"Transfer-Encoding: Chunked\r\n", 0, True, False),
        (b"Transfer-Encoding: gzip, chunked\r\n", 0, True, False),
        (b"Connection: Upgrade\r\nUpgrade: WebSocket\r\n", 0, False, True),
        (b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n", 3, False, False),
        (b"Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n", 0, True, True),
        (b"Upgrade: websocket\r\n", 0, False, False),
    ],
)
def test_framing(lines: bytes, length: int, chunked: bool, upgrade: bool) -> None:
    """What the head says of its body, also where it asks for another protocol (RFC 9112 section 6.3; RFC 9110 section 7.8)."""
    head = parse(b"POST / HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n")
    assert (head.length, head.chunked, head.upgrade) == (length, chunked, upgrade)


@pytest.mark.parametrize(
    ("version", "line", "keep_alive"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_whether_the_connection_is_used_again(version: bytes, line: bytes, keep_alive: bool) -> None:
    """RFC 9112 section 9.3."""
    assert parse(b"GET / HTTP/%b\r\nHost: a\r\n%b\r\n" % (version, line)).keep_alive == keep_alive
