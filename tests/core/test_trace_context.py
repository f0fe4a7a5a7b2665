"""Trace context: what is read, what is told to the upstream, and where attempts are anchored."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.trace_context import TRACE_PARENT, Anchor, Sampling, Trace, anchor, carry, told_to_upstream, trace_id_of

tokens = st.binary(min_size=16, max_size=16)
spans, traces = st.integers(1, 2**64 - 1).map("{:016x}".format), st.integers(1, 2**128 - 1).map("{:032x}".format)


@given(trace=traces, parent=spans, flags=st.integers(0, 255), token=tokens)
def test_a_clients_trace_goes_on(trace: str, parent: str, flags: int, token: bytes) -> None:
    """Its trace id and its decision to sample stay, whatever our own share is; its span becomes the parent of ours."""
    told = f"00-{trace}-{parent}-{flags:02x}".encode()
    for share in (0.0, 1.0):
        begun = Sampling(share).begin(told, "request-1", token)
        assert (begun.trace_id, begun.parent, begun.sampled) == (trace, parent, bool(flags & 1))
        assert begun.span_id + begun.exchange == token.hex()
        found = TRACE_PARENT.fullmatch(begun.field())
        assert found is None or (found[1].decode(), found[2].decode()) == (trace, begun.exchange)


@given(trace=traces, parent=spans, more=st.sampled_from([b"", b"-", b"-what-a-later-version-has" * 9, b"0"]), cut=st.integers(0, 55))
def test_a_trace_is_known_by_its_id(trace: str, parent: str, more: bytes, cut: int) -> None:
    """However often it is asked for, and however long the field is; not if it is cut short."""
    told = f"00-{trace}-{parent}-01".encode()
    for _ in range(2):
        assert trace_id_of(told + more) == (None if more == b"0" else trace)
        assert trace_id_of(told[:cut].ljust(cut, b"-")) is None or cut == 55


@pytest.mark.parametrize(
    ("parent", "read"),
    [
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", True),
        (b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-later-versions-have", True),
        (b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", False),
        (b"00-00000000000000000000000000000000-00f067aa0ba902b7-01", False),
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", False),
        (b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", False),
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011", False),
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", False),
        (b"", False),
    ],
)
def test_what_is_no_trace_context_is_no_trace(parent: bytes, read: bool) -> None:
    """As W3C Trace Context says in section 3.2; what a client sends cannot put anything else into a line of the log."""
    assert (trace_id_of(parent) is not None) == read


@given(st.binary(max_size=80))
def test_a_trace_is_32_hex_digits_or_none(parent: bytes) -> None:
    """Whatever stands in the field."""
    trace = trace_id_of(parent)
    assert trace is None or (re.fullmatch("[0-9a-f]{32}", trace) and trace.encode() in parent)


@given(parent=st.none() | st.binary(max_size=60), request_id=st.text(min_size=1, max_size=40), token=tokens)
def test_without_a_trace_one_begins(parent: bytes | None, request_id: str, token: bytes) -> None:
    """Under an id that follows from the request's, whatever stands in the field."""
    if parent is not None and TRACE_PARENT.match(parent):
        return
    begun = Sampling(1.0).begin(parent, request_id, token)
    assert (begun.trace_id, begun.parent, begun.sampled) == (anchor(request_id).trace_id, None, True)
    assert not Sampling(0.0).begin(parent, request_id, token).sampled


def test_the_share_is_that_of_many() -> None:
    """Of ten thousand requests about as many are sampled as was said."""
    sampled = sum(Sampling(0.25).begin(None, f"request-{n}", bytes(16)).sampled for n in range(10_000))
    assert 2300 < sampled < 2700


@given(one=st.text(max_size=40), other=st.text(max_size=40))
def test_an_anchor_follows_from_the_request_id(one: str, other: str) -> None:
    """The same in every process, another one for another request, and of the length that the standard asks for."""
    assert re.fullmatch("[0-9a-f]{32}", anchor(one).trace_id)
    assert re.fullmatch("[0-9a-f]{16}", anchor(one).span_id)
    assert (anchor(one) == anchor(other)) == (one == other)


@given(lines=st.lists(st.tuples(st.sampled_from([b"Host", b"traceparent", b"TraceParent", b"tracestate", b"a"]), st.binary(max_size=4))))
def test_the_upstream_gets_one_trace(lines: list[tuple[bytes, bytes]]) -> None:
    """Ours, in the place of any that came, in whatever spelling; all other fields stay, in order."""
    trace = Sampling(1.0).begin(None, "request-1", b"t" * 16)
    sent = carry(tuple(lines), trace)
    assert sent[-1] == (b"traceparent", trace.field())
    assert sent[:-1] == tuple(line for line in lines if line[0].lower() != b"traceparent")


@given(st.binary(min_size=16, max_size=16).filter(any), st.binary(min_size=8, max_size=8).filter(any), st.booleans())
def test_what_an_upstream_was_told_is_read_back(trace_id: bytes, span: bytes, sampled: bool) -> None:
    """Of a trace that is not sampled nothing is: there is no span below which anything could stand."""
    told = Trace(trace_id.hex(), None, "1" * 16, span.hex(), sampled).field()
    assert told_to_upstream(told) == (Anchor(trace_id.hex(), span.hex()) if sampled else None)
    assert told_to_upstream(None) is told_to_upstream(told[:-1]) is None
