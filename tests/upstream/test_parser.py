import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.parser import ResponseParser
from gateway.upstream.repair import MAX_HEAD, Malformed, Violation

LINE = b"HTTP/1.1 200 OK\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"


def parsed(data: bytes, method: bytes = b"POST") -> ResponseParser:
    parser = ResponseParser(method)
    parser.feed(data)
    return parser


def feed_all(parser: ResponseParser, data: bytes, step: int = 64 * 1024) -> ResponseParser:
    for start in range(0, len(data), step):
        parser.feed(data[start : start + step])
    return parser


MALFORMED = {
    "garbage": b"garbage\r\n\r\n",
    "TLS alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "space before the status line": b" " + LINE,
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "lower-case name": b"http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "RTSP": b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "ICY": b"ICY 200 OK\r\n\r\n",
    "two-digit status": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "four-digit status": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "status 000": b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
    "status 099": b"HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
    "no space after status": b"HTTP/1.1 200OK\r\nContent-Length: 0\r\n\r\n",
    "field without colon": LINE + b"A\r\nContent-Length: 0\r\n\r\n",
    "empty name": LINE + b": b\r\nContent-Length: 0\r\n\r\n",
    "non-ASCII name": LINE + b"A\xe9: b\r\nContent-Length: 0\r\n\r\n",
    "length and chunked": LINE + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "chunked and length": LINE + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two different lengths": LINE + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "signed length": LINE + b"Content-Length: +2\r\n\r\nok",
    "negative length": LINE + b"Content-Length: -2\r\n\r\nok",
    "hexadecimal length": LINE + b"Content-Length: 0x2\r\n\r\nok",
    "empty length": LINE + b"Content-Length:\r\n\r\nok",
    "enormous length": LINE + b"Content-Length: 99999999999999999999999\r\n\r\nok",
    "gzip coding": LINE + b"Transfer-Encoding: gzip\r\n\r\nabc",
    "identity coding": LINE + b"Transfer-Encoding: identity\r\n\r\nabc",
    "gzip, chunked": LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": LINE + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip and chunked lines": LINE + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and gzip lines": LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    "almost chunked": LINE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "empty coding": LINE + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size with prefix": CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n",
    "no chunk size": CHUNKED + b"\r\nok\r\n0\r\n\r\n",
    "chunk size overflow": CHUNKED + b"ffffffffffffffffff\r\nok",
    "chunk longer than its size": CHUNKED + b"2\r\nokX\r\n0\r\n\r\n",
    "chunk without end": CHUNKED + b"2\r\nok0\r\n\r\n",
    "bare LF in chunks": CHUNKED + b"2\nok\n0\n\n",
    "NUL in a chunk extension": CHUNKED + b"2;a=\0\r\nok\r\n0\r\n\r\n",
    "two spaces before the status": b"HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
    "tab before the status": b"HTTP/1.1\t200 OK\r\nContent-Length: 0\r\n\r\n",
    "tab after the status": b"HTTP/1.1 200\tOK\r\nContent-Length: 0\r\n\r\n",
    "space before the first field": LINE + b" A: b\r\nContent-Length: 0\r\n\r\n",
    "control character in a name": LINE + b"A\x0b: b\r\nContent-Length: 0\r\n\r\n",
    "length with a space inside": LINE + b"Content-Length: 1 2\r\n\r\n0123456789ab",
    "length with a space inside the second": LINE + b"Content-Length: 2\r\nContent-Length: 2 2\r\n\r\nok",
    "length twice, with a sign": LINE + b"Content-Length: +2\r\nContent-Length: +2\r\n\r\nok",
    "length twice, in other spellings": LINE + b"Content-Length: 2\r\nContent-Length: 02\r\n\r\nok",
    "length with a control character": LINE + b"Content-Length: 2\x0b\r\n\r\nok",
    "length and chunked, with spaces before the colons": LINE
    + b"Content-Length : 3\r\nTransfer-Encoding : chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "two different lengths, one with a space before the colon": LINE + b"Content-Length: 2\r\nContent-Length : 3\r\n\r\nabc",
    "two different lengths, with bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3\n\nabc",
    "gzip coding, with bare LF": b"HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\nabc",
    "coding folded onto another": LINE + b"Transfer-Encoding: gzip,\r\n chunked\r\n\r\n0\r\n\r\n",
    "coding with a bare CR": LINE + b"Transfer-Encoding: chunked\r\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0, with bare LF": b"HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n0\r\n\r\n",
    "a line of white space": LINE + b"A: b\r\n \r\nContent-Length: 0\r\n\r\n",
    "space inside a name": LINE + b"A b: c\r\nContent-Length: 0\r\n\r\n",
    "bare LF in chunks behind a head with bare LF": b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n",
    "chunk size with a space inside": CHUNKED + b"1 0\r\nok\r\n0\r\n\r\n",
    "chunk size with a space before it": CHUNKED + b" 2\r\nok\r\n0\r\n\r\n",
    "length with a comma behind": LINE + b"Content-Length: 2,\r\n\r\nok",
    "length in other digits": LINE + "Content-Length: ²\r\n\r\nok".encode(),
    "two lengths in a 304": b"HTTP/1.1 304 X\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
    "length and chunked in a 204": b"HTTP/1.1 204 X\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    "coding with a parameter": LINE + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "coding behind an empty one": LINE + b"Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n",
    "coding behind a vertical tab": LINE + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "negative chunk size": CHUNKED + b"-1\r\n\r\n",
    "signed chunk size": CHUNKED + b"+2\r\nok\r\n0\r\n\r\n",
    "bare CR after a chunk size": CHUNKED + b"2\rok\r\n0\r\n\r\n",
    "bare LF after a chunk extension": CHUNKED + b"2;a\nok\r\n0\r\n\r\n",
    "empty chunk extension": CHUNKED + b"2;\r\nok\r\n0\r\n\r\n",
    "folded trailer": CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n",
    "bare LF after a trailer": CHUNKED + b"0\r\nA: b\n\r\n",
    "space before a trailer's colon": CHUNKED + b"0\r\nA : b\r\n\r\n",
    "NUL in a trailer": CHUNKED + b"0\r\nA: b\0\r\n\r\n",
    "length as a trailer": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
    "length in a 100": b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello" + LINE + b"Content-Length: 0\r\n\r\n",
    "length in another interim response": b"HTTP/1.1 110 X\r\nContent-Length: 5\r\n\r\nhello" + LINE + b"Content-Length: 0\r\n\r\n",
    "coding in an interim response": b"HTTP/1.1 103 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + LINE,
    "101 with upgrade": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    "101 without upgrade": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "garbage after 100": b"HTTP/1.1 100 Continue\r\n\r\ngarbage\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_valid_response_is_refused(data: bytes) -> None:
    """RFC 9112 sections 2.2, 4, 5, 6 and 7: never guessed at, whichever way the bytes are cut."""
    with pytest.raises(Malformed):
        parsed(data)
    parser = ResponseParser(b"POST")
    with pytest.raises(Malformed):
        feed_all(parser, data, 1)


@pytest.mark.parametrize(
    ("data", "status", "reason", "body"),
    [
        (LINE + b"Content-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
        (LINE + b"Content-Length:\t02 \r\n\r\nok", 200, b"OK", b"ok"),
        (LINE + b"Content-Length: 0\r\n\r\n", 200, b"OK", b""),
        (LINE + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
        (CHUNKED + b"2\r\nok\r\n00a;x=y\r\n0123456789\r\n0\r\n\r\n", 200, b"OK", b"ok0123456789"),
        (LINE + b"Transfer-Encoding: Chunked \r\n\r\n0\r\n\r\n", 200, b"OK", b""),
        (CHUNKED + b'2;a="b c;d"\r\nok\r\n0\r\n\r\n', 200, b"OK", b"ok"),
        (CHUNKED + b"0000000000000000000002\r\nok\r\n000\r\n\r\n", 200, b"OK", b"ok"),
        (CHUNKED + b"2\r\nok\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", 200, b"OK", b"ok"),
        (b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n" + LINE + b"Content-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
        (b"HTTP/1.1 103 H\r\nConnection: close\r\n\r\n" + LINE + b"Content-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
        (b"HTTP/1.0 100 Continue\r\n\r\n" + LINE + b"Content-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
        (CHUNKED + b"2\r\nok\r\n0\r\nX-Trailer: 1\r\nIdempotency-Key: x\r\n\r\n", 200, b"OK", b"ok"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
        (b"HTTP/1.1 201\r\nContent-Length: 0\r\n\r\n", 201, b"", b""),
        (b"HTTP/1.1 201 \r\nContent-Length: 0\r\n\r\n", 201, b"", b""),
        (b"HTTP/1.1 402 caf\xe9 \xff\t!\r\nContent-Length: 0\r\n\r\n", 402, b"caf\xe9 \xff\t!", b""),
        (b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", 999, b"X", b""),
        (b"\r\n" + LINE + b"Content-Length: 0\r\n\r\n", 200, b"OK", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"No Content", b""),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, b"No Content", b""),
        (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", 204, b"No Content", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, b"Not Modified", b""),
        (b"HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n", 205, b"Reset", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + LINE + b"Content-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
        (b"HTTP/1.1 102 P\r\nA: b\r\n\r\nHTTP/1.1 103 H\r\nLink: <x>\r\n\r\n" + LINE + b"Content-Length: 0\r\n\r\n", 200, b"OK", b""),
        (LINE + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok", 200, b"OK", b"ok"),
    ],
)
def test_a_valid_response_is_read_by_its_framing(data: bytes, status: int, reason: bytes, body: bytes) -> None:
    """RFC 9112 section 6.3, rules 1 to 6; interim responses are skipped, trailers dropped."""
    for method in (b"POST", b"GET"):
        parser = parsed(data, method)
        assert (parser.status, parser.reason, parser.complete) == (status, reason, True)
        assert parser.take() == body
        assert not any(name in {b"A", b"Link", b"X-Trailer", b"Idempotency-Key"} for name, _ in parser.headers)


REPAIRED: dict[str, tuple[bytes, Violation, list[tuple[bytes, bytes]]]] = {
    "bare LF everywhere": (
        b"HTTP/1.1 201 Made\nA: b\nContent-Length: 2\n\nok",
        Violation.BARE_LF,
        [(b"A", b"b"), (b"Content-Length", b"2")],
    ),
    "bare LF after the status line": (b"HTTP/1.1 201 Made\nContent-Length: 2\r\n\r\nok", Violation.BARE_LF, [(b"Content-Length", b"2")]),
    "bare LF before the empty line": (b"HTTP/1.1 201 Made\r\nContent-Length: 2\n\r\nok", Violation.BARE_LF, [(b"Content-Length", b"2")]),
    "bare LF as the empty line": (b"HTTP/1.1 201 Made\r\nContent-Length: 2\r\n\nok", Violation.BARE_LF, [(b"Content-Length", b"2")]),
    "empty lines before it": (b"\r\n\nHTTP/1.1 201 Made\nContent-Length: 2\n\nok", Violation.BARE_LF, [(b"Content-Length", b"2")]),
    "blanks before colons": (
        b"HTTP/1.1 201 Made\r\nA \t: b\r\nContent-Length : 2\r\n\r\nok",
        Violation.BLANK_BEFORE_COLON,
        [(b"A", b"b"), (b"Content-Length", b"2")],
    ),
    "chunked, with a blank before the colon": (
        b"HTTP/1.1 201 Made\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        Violation.BLANK_BEFORE_COLON,
        [(b"Transfer-Encoding", b"chunked")],
    ),
    "folded lines": (
        b"HTTP/1.1 201 Made\r\nA: b \r\n \t c\r\n\td\r\nContent-Length:\r\n 2\r\n\r\nok",
        Violation.FOLDED,
        [(b"A", b"b c d"), (b"Content-Length", b"2")],
    ),
    "a folded line in an interim response": (
        b"HTTP/1.1 103 Hints\r\nLink: a\r\n b\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nok",
        Violation.FOLDED,
        [(b"Content-Length", b"2")],
    ),
    "a folded line after an interim response": (
        b"HTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 2\r\nA: b\r\n c\r\n\r\nok",
        Violation.FOLDED,
        [(b"Content-Length", b"2"), (b"A", b"b c")],
    ),
    "control characters in a value": (
        b"HTTP/1.1 201 Made\r\nA: \x1b b\0c\rd\x7f\r\nContent-Length: 2\r\n\r\nok",
        Violation.CONTROL,
        [(b"A", b"b c d"), (b"Content-Length", b"2")],
    ),
    "a control character in the reason": (
        b"HTTP/1.1 201 M\0de\r\nContent-Length: 2\r\n\r\nok",
        Violation.CONTROL,
        [(b"Content-Length", b"2")],
    ),
    "two equal lengths": (
        b"HTTP/1.1 201 Made\r\nContent-Length: 2\r\nA: b\r\ncontent-length: 2\r\n\r\nok",
        Violation.REPEATED_LENGTH,
        [(b"Content-Length", b"2"), (b"A", b"b")],
    ),
    "a list of equal lengths": (
        b"HTTP/1.1 201 Made\r\nContent-Length: 2, 2\r\n\r\nok",
        Violation.REPEATED_LENGTH,
        [(b"Content-Length", b"2")],
    ),
}


@pytest.mark.parametrize(("data", "violation", "headers"), REPAIRED.values(), ids=REPAIRED)
def test_a_head_that_can_be_read_in_one_way_only_is_put_right(
    data: bytes, violation: Violation, headers: list[tuple[bytes, bytes]]
) -> None:
    """RFC 9112 sections 2.2, 5.1 and 5.2, RFC 9110 sections 5.5 and 8.6: however the bytes are cut. The connection is not used again."""
    for step in (1, 3, 64 * 1024):
        told: list[int] = []
        parser = feed_all(ResponseParser(b"POST", None, lambda status, *_, told=told: told.append(status)), data, step)
        assert (parser.status, parser.headers, parser.take()) == (201, headers, b"ok")
        assert (parser.complete, parser.reusable, parser.violations) == (True, False, frozenset({violation}))
        assert told == ([103] if b" 103 " in data else [])


def test_spaces_behind_chunk_sizes_are_put_up_with() -> None:
    """RFC 9112 section 7.1.1: white space before an extension is allowed, and some servers pad their sizes to a width."""
    parser = parsed(CHUNKED + b"2  \r\nok\r\n1\t;a=b\r\n!\r\n0   \r\n\r\n")
    assert (parser.take(), parser.complete, parser.reusable, parser.violations) == (b"ok!", True, True, frozenset())


def test_what_follows_a_switch_behind_a_malformed_head_is_kept() -> None:
    """The first bytes of the other protocol are not the parser's."""
    parser = ResponseParser(b"GET", b"websocket")
    parser.feed(b"HTTP/1.1 101 S\nConnection: upgrade\nUpgrade: websocket\n\nfirst")
    assert (parser.switched, parser.rest) == (True, b"first")


def test_a_malformed_head_of_a_response_without_a_body() -> None:
    """To HEAD, and without any framing: until the end of the stream."""
    assert parsed(b"HTTP/1.1 200 OK\nContent-Length: 77\n\n", b"HEAD").complete
    until_the_end = parsed(b"HTTP/1.0 200 OK\nA: b\n\nabc")
    assert (until_the_end.complete, until_the_end.eof(), until_the_end.take()) == (False, True, b"abc")


def test_fields_are_kept_as_received() -> None:
    """Order, case, duplicates, empty values and bytes above 0x7F; only the whitespace around values goes."""
    fields = (
        (b"Set-Cookie", b"a=1; Expires=Mon, 21 Oct 2030 07:28:00 GMT"),
        (b"X-A", b"1"),
        (b"Set-Cookie", b"b=2"),
        (b"x-CaSe", b"y"),
        (b"Link", b"</x>; rel=a, </y>; rel=b"),
        (b"X-Name", b"caf\xe9\xff"),
        (b"X-Empty", b""),
        (b"X-Inner", b"a \t b"),
    )
    lines = b"".join(name + b": \t" + value + b" \t\r\n" for name, value in fields)
    assert parsed(LINE + lines + b"\r\n").headers == list(fields)


@pytest.mark.parametrize(
    ("data", "method", "reusable"),
    [
        (LINE + b"Content-Length: 2\r\n\r\nok", b"GET", True),
        (LINE + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", b"GET", False),
        (LINE + b"Connection: x, CLOSE\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", b"GET", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", b"GET", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", b"GET", True),
        (CHUNKED + b"0\r\n\r\n", b"GET", True),
        (b"HTTP/1.1 204 X\r\n\r\n", b"GET", True),
        (b"HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n", b"GET", True),
        (b"HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\nhello", b"GET", False),
        (b"HTTP/1.1 304 X\r\nContent-Length: 77\r\n\r\n", b"GET", True),
        (b"HTTP/1.1 304 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"GET", False),
        (LINE + b"Content-Length: 77\r\n\r\n", b"HEAD", True),
        (LINE + b"Content-Length: 2\r\n\r\nok", b"HEAD", False),
        (CHUNKED, b"HEAD", True),
        (CHUNKED + b"0\r\n\r\n", b"HEAD", False),
        (CHUNKED + b"5", b"HEAD", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + LINE + b"Content-Length: 77\r\n\r\n", b"HEAD", True),
        (LINE + b"Content-Length: 2\r\n\r\nokX", b"GET", False),
        (LINE + b"Content-Length: 2\r\n\r\nok" + LINE + b"Content-Length: 5\r\nA: b\r\n\r\nother", b"GET", False),
        (LINE + b"Content-Length: 2\r\nConnection: close\r\n\r\nokX", b"GET", False),
        (CHUNKED + b"0\r\n\r\nHTTP/1.1 200 OK\r\n", b"GET", False),
        (b"HTTP/1.1 103 H\r\nConnection: close\r\n\r\n" + LINE + b"Content-Length: 2\r\n\r\nok", b"GET", False),
        (b"HTTP/1.1 103 H\r\nConnection: close\r\n\r\n" + LINE + b"Content-Length: 77\r\n\r\n", b"HEAD", False),
        (b"HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"GET", False),
        (b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\nhello", b"GET", False),
    ],
)
def test_a_connection_is_reusable_only_after_a_clean_end(data: bytes, method: bytes, reusable: bool) -> None:
    """Keep-alive must be allowed by the response, and not one byte may follow it; such bytes change nothing of it."""
    parser = parsed(data, method)
    assert parser.complete
    assert parser.reusable is reusable
    assert parser.take() in (b"ok", b"")
    assert (b"A", b"b") not in parser.headers


@pytest.mark.parametrize("head", [LINE, b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", b"HTTP/1.1 205 Reset Content\r\n"])
def test_without_framing_only_the_end_of_the_stream_completes_a_body(head: bytes) -> None:
    """RFC 9112 section 6.3 rule 8; the connection cannot be reused."""
    parser = parsed(head + b"\r\nabc")
    assert (parser.complete, parser.content_length) == (False, None)
    assert parser.eof()
    assert (parser.complete, parser.reusable, parser.take()) == (True, False, b"abc")


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 200", LINE, LINE + b"Content-Length: 3\r\n\r\nok", CHUNKED + b"2\r\nok\r\n", CHUNKED + b"2\r\nok\r\n0\r\n"]
)
def test_the_end_of_the_stream_completes_nothing_else(data: bytes) -> None:
    """A head, a length or a last chunk that is missing stays missing."""
    parser = ResponseParser(b"POST")
    if data:
        parser.feed(data)
    assert not parser.eof()
    assert not parser.complete


def test_long_heads_are_accepted_up_to_the_limit() -> None:
    """One line of 64 KiB, and 256 KiB in all."""
    line = b"X: " + b"a" * (64 * 1024) + b"\r\n"
    assert len(parsed(LINE + line + b"Content-Length: 0\r\n\r\n").headers[0][1]) == 64 * 1024
    end = b"\r\nContent-Length: 0\r\n\r\n"
    head = (LINE + line * 3 + b"Y: ").ljust(MAX_HEAD - len(end), b"y") + end
    assert len(head) == MAX_HEAD
    assert feed_all(ResponseParser(b"POST"), head).complete


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        (LINE + b"X: ", b"a" * 1000),
        (LINE, b"X: a\r\n" * 100),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 10),
        (CHUNKED + b"2;x=", b"a" * 1000),
        (CHUNKED + b"2\r\nok\r\n0\r\nX: ", b"a" * 1000),
        (CHUNKED + b"2\r\nok\r\n0\r\n", b"X: a\r\n" * 100),
        (LINE + b"X : ", b"a" * 1000),
        (LINE + b"X: a\r\n", b" a\r\n" * 100),
        (b"", b"HTTP/1.1 102 Processing\n\n" * 10),
    ],
    ids=[
        "line",
        "lines",
        "interim responses",
        "chunk extension",
        "trailer",
        "trailers",
        "malformed line",
        "folded lines",
        "malformed interim",
    ],
)
def test_nothing_but_a_body_may_go_on_for_ever(start: bytes, repeated: bytes) -> None:
    """An endless head, chain of interim responses, chunk extension or trailer section is refused before it fills the memory."""
    with pytest.raises(Malformed):
        feed_all(ResponseParser(b"POST"), start + repeated * (2 * MAX_HEAD // len(repeated)), 10_000)


RESPONSES = [
    LINE + b"Content-Length: 10\r\nX: y\r\n\r\n0123456789",
    CHUNKED + b"2\r\nok\r\n1;a=b\r\n!\r\n0\r\nT: u\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 201 Created \r\nA:\r\nB: \xff \r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n",
    LINE + b"\r\nuntil the end",
    b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 201 Created \r\nA:\r\nB : \xff \r\n\tc\nContent-Length: 2\r\n\nok",
    b"\nHTTP/1.1 201 Created\nTransfer-Encoding: chunked\n\n2 \r\nok\r\n0\r\n\r\n",
]


@given(st.sampled_from(RESPONSES), st.sets(st.integers(1, 120)))
def test_the_way_bytes_are_cut_does_not_matter(data: bytes, cuts: set[int]) -> None:
    """Any segmentation gives the same response as one segment."""
    expected = parsed(data)
    expected.eof()
    parser = ResponseParser(b"POST")
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        parser.feed(data[start:end])
    parser.eof()
    assert (parser.status, parser.reason, parser.headers, parser.content_length) == (
        expected.status,
        expected.reason,
        expected.headers,
        expected.content_length,
    )
    assert (parser.complete, parser.reusable, parser.take()) == (True, expected.reusable, expected.take())


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=4), st.sampled_from([b"", LINE, CHUNKED, b"HTTP/1.1 100 C\r\n\r\n"]))
def test_any_bytes_are_parsed_or_refused(pieces: list[bytes], start: bytes) -> None:
    """No input raises anything but Malformed."""
    parser = ResponseParser(b"POST")
    try:
        for piece in ([start] if start else []) + pieces:
            if not parser.complete:
                parser.feed(piece)
    except Malformed:
        return
    parser.eof()


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n"


@given(st.binary(max_size=60), st.sets(st.integers(1, 120)), st.booleans())
def test_what_follows_a_switch_is_kept_to_the_byte(first: bytes, cuts: set[int], hinted: bool) -> None:
    """Up to the segment in which the head ends; later ones are not the parser's. RFC 9110 section 7.8."""
    parser = ResponseParser(b"GET", b"websocket")
    data = (b"HTTP/1.1 103 H\r\nLink: x\r\n\r\n" if hinted else b"") + SWITCH + first
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    got = b""
    for start, end in itertools.pairwise(edges):
        if parser.complete:
            got += data[start:end]
        else:
            parser.feed(data[start:end])
            got += parser.rest
    assert (parser.status, parser.switched, parser.complete, parser.reusable) == (101, True, True, False)
    assert parser.headers == [(b"Connection", b"upgrade"), (b"Upgrade", b"WebSocket")]
    assert (got, parser.buffered) == (first, 0)


SEEN = (
    "status",
    "reason",
    "headers",
    "content_length",
    "head_complete",
    "complete",
    "reusable",
    "patience",
    "buffered",
    "violations",
    "rest",
)
IN_A_ROW = [
    *[(b"POST", data) for data in RESPONSES],
    (b"HEAD", LINE + b"Content-Length: 77\r\n\r\n"),
    (b"HEAD", LINE + b"Content-Length: 0\r\n\r\n"),
    (b"HEAD", CHUNKED),
    (b"HEAD", LINE + b"\r\n"),
    (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
    (b"GET", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=9\r\nContent-Length: 2\r\n\r\nok"),
    (b"GET", b"\r\n" + LINE + b"Content-Length: 2\r\n\r\nok"),
    (b"GET", CHUNKED + b"1  \r\nx\r\n0\r\nT: u\r\n\r\n"),
    (b"GET", LINE + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok"),
]


@given(st.lists(st.sampled_from(IN_A_ROW), min_size=2, max_size=5), st.integers(1, 200))
def test_a_parser_that_read_a_response_reads_the_next_like_a_new_one(exchanges: list[tuple[bytes, bytes]], step: int) -> None:
    """Nothing of one response is left in the next, however the bytes of both are cut."""
    kept: ResponseParser | None = None
    for method, data in exchanges:
        fresh = feed_all(ResponseParser(method), data, step)
        if kept is None or not kept.reusable:
            kept = ResponseParser(method)
        else:
            kept.begin(method)
        feed_all(kept, data, step)
        assert [getattr(kept, name) for name in SEEN] == [getattr(fresh, name) for name in SEEN]
        assert kept.take() == fresh.take()
