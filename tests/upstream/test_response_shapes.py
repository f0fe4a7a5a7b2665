"""What is told of a response whose head is of a known shape is what the parser tells of it, whatever its bytes."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.upstream.parser import ResponseParser
from gateway.upstream.repair import MAX_HEAD, Malformed
from gateway.upstream.response_shapes import ResponseShapes

RESPONSE = (
    b"HTTP/1.1 201 Created\r\nDate: Sun, 29 Nov 2026 12:00:%02d GMT\r\nContent-Type: a/b\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
    b"X-Request-Id: %b\r\nKeep-Alive: timeout=5\r\nContent-Length: %d\r\n\r\n%b"
)
PIECES = st.sampled_from(
    [
        *(b"\r\n", b"\r", b"\n", b"\0", b" ", b"\t", b":", b"0", b"+1", b"chunked", b"\x80", b"\r\n\r\n", b"\r\nContent-Length: 1", b"204"),
        *(b"101", b"\r\nTransfer-Encoding: chunked", b"\r\n folded", b"\r\nConnection: close", b"HTTP/1.0", b"HTTP/2.0", b"\r\nDate: "),
        *(b"\r\nEtag : x", b"\r\nKeep-Alive: timeout=9"),
    ]
)


def response(second: int = 0, request: bytes = b"r", body: bytes = b"{}") -> bytes:
    return RESPONSE % (second, request, len(body), body)


def told(parser: ResponseParser, data: bytes) -> object:
    """All that is told of what came in one piece, or what is wrong with it."""
    try:
        parser.feed(data)
    except Malformed as error:
        return str(error)
    framing = (parser.content_length, parser.head_complete, parser.complete, parser.reusable, parser.switched, parser.buffered)
    head = (parser.status, parser.reason, [*parser.headers], parser.patience, parser.violations, parser.rest)
    return framing, head, parser.take()


def alone(data: bytes, method: bytes = b"POST", upgrade: bytes | None = None) -> object:
    return told(ResponseParser(method, upgrade), data)


def learnt(*responses: bytes) -> ResponseShapes:
    shapes = ResponseShapes()
    for data in responses:
        for _ in range(2):
            told(ResponseParser(b"POST", shapes=shapes), data)
    return shapes


@given(st.integers(0, 59), st.from_regex(rb"[!-~]{1,20}", fullmatch=True), st.binary(max_size=300))
def test_a_response_of_a_known_shape_is_told_as_the_parser_tells_it(second: int, request: bytes, body: bytes) -> None:
    shapes, data = learnt(response()), response(second, request, body)
    head = data[: len(data) - len(body)]
    assert shapes.read(head, 0) is not None
    parser = ResponseParser(b"POST", shapes=shapes)
    for one in (response(), data, data):  # the second and the third by the ticket of the one before
        assert told(parser, one) == alone(one)
        parser.begin(b"POST")


@settings(max_examples=400)
@given(
    st.integers(0, 400),
    st.integers(0, 6),
    PIECES,
    st.booleans(),
    st.sampled_from([b"POST", b"HEAD"]),
    st.sampled_from([None, b"websocket"]),
)
@example(0, 0, b"\r\n", False, b"POST", None)
def test_a_response_that_is_odd_somewhere_is_told_as_the_parser_tells_it(
    at: int, out: int, piece: bytes, twice: bool, method: bytes, upgrade: bytes | None
) -> None:
    """Bytes go and others come, anywhere; also when the odd one itself was learnt, and a plain one comes then."""
    plain = response(1, b"abc", b'{"a":1}')
    at %= len(plain)
    odd = plain[:at] + piece + plain[at + out :]
    shapes = learnt(plain, odd) if twice else learnt(plain)
    for data in (odd, plain, response(2, b"abd", b'{"a":2}')):
        parser = ResponseParser(method, upgrade, shapes=shapes)
        told(ResponseParser(b"POST", shapes=shapes), plain)
        assert told(parser, data) == alone(data, method, upgrade)


@pytest.mark.parametrize("cut", [1, 20, len(response()) - 3, len(response()) - 1])
def test_a_response_in_two_pieces_is_parsed(cut: int) -> None:
    data, shapes = response(), learnt(response())
    parser = ResponseParser(b"POST", shapes=shapes)
    parser.feed(data[:cut])
    parser.feed(data[cut:])
    assert (parser.complete, parser.reusable, parser.status, parser.take()) == (True, True, 201, b"{}")


def test_a_response_behind_an_interim_one_is_parsed() -> None:
    """Also when both come in one piece."""
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    shapes = learnt(response(), interim + response())
    heard: list[int] = []
    for pieces in ([interim + response()], [interim, response()]):
        parser = ResponseParser(b"POST", None, lambda status, *_: heard.append(status), shapes=shapes)
        for piece in pieces:
            parser.feed(piece)
        assert (parser.complete, parser.reusable, parser.status, parser.take()) == (True, True, 201, b"{}")
    assert heard == [103, 103]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n",
    ],
)
def test_what_is_framed_or_ends_otherwise_is_never_remembered(data: bytes) -> None:
    """Chunks, no body, a connection that ends, bytes behind the end."""
    shapes = learnt(data)
    assert shapes.read(data[: data.index(b"\r\n\r\n") + 4], 0) is None
    assert told(ResponseParser(b"POST", shapes=shapes), data) == alone(data)


def test_a_head_that_is_too_long_is_refused_also_where_its_shape_is_known() -> None:
    """However long the value is that varies."""
    long = response(request=b"r" * MAX_HEAD)
    parser = ResponseParser(b"POST", shapes=learnt(response()))
    with pytest.raises(Malformed):
        parser.feed(long)
