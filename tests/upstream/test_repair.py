"""Heads that are put right: what a strict parser then reads is what was meant, and there is nothing left to put right."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import DoubtReason, InDoubt
from gateway.upstream import HttpUpstream, UpstreamSettings
from gateway.upstream.parser import ResponseParser
from gateway.upstream.protocol_violations import INTERVAL, ProtocolViolations
from gateway.upstream.repair import Malformed, Violation, repair
from tests.upstream.stub import Stub, allow, call, raw, request

NAMES = st.sampled_from([b"A", b"Set-Cookie", b"x-CaSe", b"Content-Type", b"ETag", b"Link"])
VALUES = st.lists(st.sampled_from([b"a", b"caf\xe9", b'"q, r"', b";x=y", b"0"]), max_size=4)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
ENDS = st.sampled_from([b"\r\n", b"\n"])
FOLDS = st.sampled_from([b" ", b" ", b"\r\n ", b" \r\n\t", b"\n  "])
BLANKS = st.sampled_from([b"", b"", b" ", b" \t"])
LENGTHS = st.sampled_from([[b"2"], [b"2", b"2"], [b"2, 2"], [b"2,2", b"2"]])


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A response as it should be, and the same as it was sent."""
    good, bad = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK" + draw(ENDS)
    for name, words in draw(FIELDS):
        good += name + b": " + b" ".join(words) + b"\r\n"
        bad += name + draw(BLANKS) + b":" + draw(BLANKS)
        for place, word in enumerate(words):
            bad += (draw(FOLDS) if place else b"") + word
        bad += draw(BLANKS) + draw(ENDS)
    for value in draw(LENGTHS):
        bad += b"Content-Length" + draw(BLANKS) + b": " + value + draw(ENDS)
    return good + b"Content-Length: 2\r\n\r\nok", bad + draw(ENDS) + b"ok"


def read(data: bytes) -> ResponseParser:
    parser = ResponseParser(b"GET")
    parser.feed(data)
    return parser


@given(spoiled())
def test_a_spoiled_response_reads_as_the_one_that_was_meant(pair: tuple[bytes, bytes]) -> None:
    """Field for field, and to the byte of its body."""
    good, bad = map(read, pair)
    assert (bad.status, bad.headers, bad.take(), bad.complete) == (good.status, good.headers, good.take(), True)
    assert bad.reusable is not bool(bad.violations)


@given(
    st.lists(
        st.sampled_from([b"A", b" ", b"\t", b":", b"\n", b"\r", b"\0", b",", b"1", b"Content-Length", b"Transfer-Encoding"]), max_size=30
    )
)
def test_what_was_repaired_needs_no_repair(pieces: list[bytes]) -> None:
    """Once is enough, and no line break is left but those between lines."""
    data = b"HTTP/1.1 200 OK\r\n" + b"".join(pieces).strip(b"\r\n") + b"\r\n\r\n"
    try:
        repaired = repair(data[: data.index(b"\n\r\n") + 3])
    except (Malformed, ValueError):
        return
    assert repaired.head.replace(b"\r\n", b"").translate(None, b"\r\n\0") == repaired.head.replace(b"\r\n", b"")
    again = repair(repaired.head)
    assert (again.head, again.violations) == (repaired.head, frozenset())


def test_a_framing_field_is_never_put_right_by_guessing() -> None:
    """What is not a space to every reader must not become one where it decides about the end of the body."""
    for field in (b"Content-Length: 2\x0b", b"Content-Length: \x002", b"Transfer-Encoding: chunked\x7f", b"Transfer-Encoding: \rchunked"):
        with pytest.raises(Malformed):
            repair(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\n")


def test_one_offence_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever looks for the reason finds it, and a server that commits it with every answer does not fill the log."""
    violations = ProtocolViolations("http://payments:8000")
    with caplog.at_level(logging.INFO):
        for second in range(3):
            violations.repaired({Violation.FOLDED}, float(second))
            violations.refused("lengths that differ", float(second))
        violations.repaired({Violation.FOLDED}, INTERVAL)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
    assert "http://payments:8000" in caplog.text
    assert "a folded line" in caplog.text
    assert "lengths that differ" in caplog.text


async def test_the_log_names_what_was_wrong_with_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """With an answer that was thrown away, and with one that was taken."""
    async with Stub(raw(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok")) as stub:
        client = HttpUpstream(UpstreamSettings(stub.url))
        with caplog.at_level(logging.INFO):
            assert await call(client) == (200, b"ok")
            stub.script = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokx")
            with pytest.raises(InDoubt) as caught:
                await client.send(request(), allow)
        await client.close()
    assert caught.value.reason is DoubtReason.INVALID_RESPONSE
    assert stub.url in caplog.text
    assert Violation.BARE_LF.value in caplog.text
    assert "lengths that differ" in caplog.text
    assert stub.connections == 2
