"""What the parser lets through and HTTP/1.1 does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.framing import judge_framing
from gateway.core.headers import Fields
from gateway.core.problems import Problem
from gateway.http.head_parser import HeadParser, MalformedHead

HOST = (b"Host", b"example.com")
CHUNKED = (b"Transfer-Encoding", b"chunked")


def judge(
    *lines: tuple[bytes, bytes], version: tuple[int, int] = (1, 1), host: tuple[tuple[bytes, bytes], ...] = (HOST,)
) -> Problem | None:
    return judge_framing(version, Fields((*host, *lines)))


@pytest.mark.parametrize("version", [(1, 0), (1, 1)])
def test_the_versions_of_http_1_are_spoken(version: tuple[int, int]) -> None:
    """RFC 9112 section 2.3."""
    assert judge(version=version) is None


@pytest.mark.parametrize("version", [(0, 9), (1, 2), (2, 0), (3, 0), (11, 1)])
def test_no_other_version_is(version: tuple[int, int]) -> None:
    """RFC 9110 section 15.6.6; the parser lets 0.9 and 2.0 through."""
    assert judge(CHUNKED, version=version) is Problem.VERSION_UNSUPPORTED


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b"CHUNKED", b" chunked\t"])
def test_chunked_alone_is_understood(value: bytes) -> None:
    """Codings have no case (RFC 9112 section 7)."""
    assert judge((b"transfer-ENCODING", value)) is None


@pytest.mark.parametrize(
    "value",
    [b"gzip, chunked", b"gzip", b"chunked, chunked", b"chunked,", b",chunked", b"", b"chunked;q=1", b"xchunked", b"identity", b'"chunked"'],
)
def test_other_codings_are_501(value: bytes) -> None:
    """RFC 9112 section 6.1; the parser lets `gzip, chunked` through and leaves the gzip in the body."""
    assert judge((b"Transfer-Encoding", value)) is Problem.CODING_UNSUPPORTED


def test_two_lines_of_codings_are_501() -> None:
    """They are one list (RFC 9110 section 5.3)."""
    assert judge(CHUNKED, CHUNKED) is Problem.CODING_UNSUPPORTED


def test_a_coding_in_http_1_0_is_400() -> None:
    """Its framing cannot be trusted (RFC 9112 section 6.1)."""
    assert judge(CHUNKED, version=(1, 0)) is Problem.BAD_REQUEST


def test_a_length_beside_a_coding_is_400() -> None:
    """One of the two is there to deceive somebody (RFC 9112 section 6.3)."""
    assert judge(CHUNKED, (b"Content-Length", b"3")) is Problem.BAD_REQUEST


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"a",
        b"a:80",
        b"a:",
        b"a_b.c-d",
        b"[::1]",
        b"[::1]:80",
        b"[fe80::1%25eth0]",
        b"127.0.0.1:8080",
        b"xn--bcher-kva.example",
        b"%C3%BC",
        b" a ",
    ],
)
def test_hosts_are_taken(value: bytes) -> None:
    """`host[:port]`, and nothing for a target without an authority (RFC 9112 section 3.2)."""
    assert judge(host=((b"Host", value),)) is None


@pytest.mark.parametrize(
    "value",
    [b"a b", b"a/b", b"a?b", b"a#b", b"u@a", b"a:b", b"a:80:80", b"\xff", b"[::1", b"::1]", b"a\\b", b"<a>", b"http://a", b"a\x0b", b"a\n"],
)
def test_other_hosts_are_400(value: bytes) -> None:
    """RFC 9112 section 3.2: an invalid field value is answered with 400; the parser lets anything through."""
    assert judge(host=((b"Host", value),)) is Problem.BAD_REQUEST


def test_one_host_is_wanted() -> None:
    """Exactly one in HTTP/1.1, at most one in HTTP/1.0 (RFC 9112 section 3.2)."""
    assert judge(host=()) is Problem.BAD_REQUEST
    assert judge(host=(HOST, HOST)) is Problem.BAD_REQUEST
    assert judge(host=(HOST, HOST), version=(1, 0)) is Problem.BAD_REQUEST
    assert judge(host=(), version=(1, 0)) is None


@pytest.mark.parametrize(
    "values", [[b"100-continue"], [b"100-Continue "], [b""], [b"100-continue, 100-continue"], [b"100-continue", b"100-continue"]]
)
def test_a_continue_may_be_expected(values: list[bytes]) -> None:
    """It has no case, and an empty list expects nothing (RFC 9110 section 10.1.1)."""
    assert judge(*[(b"Expect", value) for value in values]) is None


@pytest.mark.parametrize("values", [[b"200-ok"], [b"100-continue, x"], [b"100-continue", b"x"], [b"100-continue;a=b"], [b"100"]])
def test_nothing_else_may(values: list[bytes]) -> None:
    """RFC 9110 section 10.1.1: 417."""
    assert judge(*[(b"Expect", value) for value in values]) is Problem.EXPECTATION_FAILED


NAMES = st.sampled_from([b"Host", b"host", b"Transfer-Encoding", b"Content-Length", b"Expect", b"TE", b"X", b"Transfer-Encodin"])
VALUES = st.one_of(st.sampled_from([b"chunked", b"gzip, chunked", b"a", b"0", b"3", b"100-continue", b""]), st.binary(max_size=12))
VERSIONS = st.tuples(st.integers(0, 3), st.integers(0, 9))


@given(VERSIONS, st.lists(st.tuples(NAMES, VALUES), max_size=6).map(tuple))
def test_what_passes_has_one_framing(version: tuple[int, int], lines: tuple[tuple[bytes, bytes], ...]) -> None:
    """Whatever the fields: a version we speak, at most `chunked` alone and then no length, one host, and no judgement by a name's case."""
    problem = judge_framing(version, Fields(lines))
    assert problem is judge_framing(version, Fields(tuple((name.upper(), value) for name, value in lines)))
    if problem is None:
        named = [(name.lower(), value) for name, value in lines]
        codings = [value.strip(b" \t").lower() for name, value in named if name == b"transfer-encoding"]
        assert version in {(1, 0), (1, 1)}
        assert codings in ([], [b"chunked"])
        assert not codings or (version == (1, 1) and b"content-length" not in dict(named))
        assert [name for name, _ in named].count(b"host") in ({1} if version == (1, 1) else {0, 1})


@given(VERSIONS, st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_parser_and_rules_agree_on_the_framing(version: tuple[int, int], lines: list[tuple[bytes, bytes]]) -> None:
    """A head that passes both has a body exactly where one of `Content-Length` and `Transfer-Encoding` says so."""
    parser = HeadParser(100)
    try:
        parser.feed(b"POST / HTTP/%d.%d\r\n" % version + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n")
    except MalformedHead:
        return
    if parser.complete and judge_framing(parser.version, parser.fields) is None:
        assert parser.chunked == (parser.fields.first(b"transfer-encoding") is not None)
        length = parser.fields.first(b"content-length")
        assert parser.length == (0 if length is None else int(length))
