"""Where chunked bodies end (RFC 9112 section 7.1)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.chunks import LINES, ChunkedBody, Chunks, MalformedChunks, TooMuchFraming

EXTENSIONS = st.sampled_from([b"", b";a", b";a=b", b' ; a="\t"'])
TRAILERS = st.lists(st.sampled_from([b"T: u\r\n", b"0: 0\r\n"]), max_size=3).map(b"".join)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Chunked bodies, with content that looks like their framing."""
    content = st.one_of(st.sampled_from([b"\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"5\r\n"]), st.binary(min_size=1, max_size=40))
    chunks = [b"%x%b\r\n%b\r\n" % (len(one), draw(EXTENSIONS), one) for one in draw(st.lists(content, max_size=6))]
    return b"".join(chunks) + b"0" * draw(st.integers(1, 3)) + draw(EXTENSIONS) + b"\r\n" + draw(TRAILERS) + b"\r\n"


@given(bodies(), st.binary(max_size=20), st.lists(st.integers(0, 400), max_size=6))
def test_the_end_is_found_wherever_the_bytes_are_cut(body: bytes, behind: bytes, cuts: list[int]) -> None:
    """Not a byte of what comes behind is taken, and nothing is left of the body."""
    chunks, taken, data = Chunks(), 0, body + behind
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        piece = data[start:end]
        while piece and not chunks.done:
            cut = chunks.cut(piece)
            assert 0 < cut <= len(piece)
            taken += cut
            piece = piece[cut:]
    assert chunks.done
    assert taken == len(body)


def test_a_piece_has_a_bounded_number_of_chunks() -> None:
    """So that the parser's pauses take effect between pieces."""
    data = b"1\r\nx\r\n" * (3 * LINES)
    assert Chunks().cut(data) <= LINES * 6


@pytest.mark.parametrize("data", [b"nonsense\r\nmore", b"-1\r\nmore", b"\xff\r\n\xff", b"ffffffffffffffffffffffff\r\nmore"])
def test_nonsense_is_left_to_the_parser(data: bytes) -> None:
    """It is fed, and the parser refuses it; that more of it counts as the body does no harm."""
    chunks = Chunks()
    assert chunks.cut(data) == len(data)
    assert not chunks.done


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), TRAILERS, st.binary(max_size=9), st.lists(st.integers(0, 400), max_size=6))
def test_the_content_is_the_same_wherever_the_bytes_are_cut(contents: list[bytes], trailers: bytes, behind: bytes, cuts: list[int]) -> None:
    """And nothing of extensions or trailers is in it."""
    data = b"".join([b"%X;a=b\r\n%b\r\n" % (len(one), one) for one in contents]) + b"0\r\n" + trailers + b"\r\n"
    body, content, left, size = ChunkedBody(10_000), b"", data + behind, len(data)
    edges = [0, *sorted(min(cut, len(left)) for cut in cuts), len(left)]
    for start, end in pairwise(edges):
        piece = left[start:end]
        while piece and not body.done:
            more, taken = body.feed(piece)
            content, piece, size = content + more, piece[taken:], size - taken
    assert (content, size, body.done) == (b"".join(contents), 0, True)


@pytest.mark.parametrize("data", [b"x\r\n", b"2\r\nabc\r\n", b"-1\r\n", b"1\nx\r\n", b"0\r\nA : b\r\n\r\n"])
def test_broken_chunks_are_refused(data: bytes) -> None:
    """RFC 9112 section 7.1."""
    with pytest.raises(MalformedChunks):
        ChunkedBody(100).feed(data)


@pytest.mark.parametrize("data", [b"1;" + b"x" * 200, b"0\r\n" + b"A: b\r\n" * 40])
def test_framing_without_end_is_refused(data: bytes) -> None:
    """Neither extensions nor trailers are content (RFC 9112 section 7.1.1)."""
    with pytest.raises(TooMuchFraming):
        ChunkedBody(100).feed(data)
