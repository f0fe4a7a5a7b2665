"""W3C Trace Context: to which trace a request belongs, and by which names the spans of an attempt are known.

A client's trace goes on through the gateway to the upstream. Beside it each attempt has a span whose ids follow from its request id: its
*anchor*. A replay, a look, an event or a retry knows the request id of the attempt that it is about, and so links to the anchor, without a
column in any record.
"""

import hashlib
import re
from dataclasses import dataclass

from gateway.core.model import Headers

TRACE_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(?=-|\Z)")
"""Section 3.2: trace id, span id, flags. A later version may have more behind."""

_FIELD = b"traceparent"
_SAMPLED = 1
_WHOLE = 1 << 64


def trace_id_of(parent: bytes) -> str | None:
    """The trace that a request's `traceparent` names, in hex; None for what is no trace context."""
    found = TRACE_PARENT.match(parent)
    return None if found is None else found[1].decode()


@dataclass(frozen=True, slots=True)
class Anchor:
    """The span that stands for an attempt, in hex."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a request is in its trace, in hex: the span of the caller, if it told one; ours; and that of the exchange with the upstream."""

    trace_id: str
    parent: str | None
    span_id: str
    exchange: str
    sampled: bool

    def field(self) -> bytes:
        """What the upstream is told."""
        return f"00-{self.trace_id}-{self.exchange}-{int(self.sampled):02x}".encode()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How traces begin: `share` of those that no client has begun are kept. A client's own decision counts."""

    share: float

    def begin(self, parent: bytes | None, request_id: str, token: bytes) -> Trace:
        """The trace of a request. `token` is 16 fresh random bytes."""
        ids, found = token.hex(), None if parent is None else TRACE_PARENT.match(parent)
        if found is not None:
            sampled = bool(int(found[3], 16) & _SAMPLED)
            return Trace(found[1].decode(), found[2].decode(), ids[:16], ids[16:], sampled)
        trace_id = anchor(request_id).trace_id
        return Trace(trace_id, None, ids[:16], ids[16:], int(trace_id[16:], 16) < self.share * _WHOLE)


def anchor(request_id: str) -> Anchor:
    """The span that stands for the attempt of this request, in a trace of its own."""
    digest = hashlib.blake2b(request_id.encode("utf-8", "surrogateescape"), digest_size=24, person=b"gateway/anchor/1").hexdigest()
    return Anchor(digest[:32], digest[32:])


def told_to_upstream(field: bytes | None) -> Anchor | None:
    """The span that an upstream was told as its parent; None if it was told none, or one that is not sampled."""
    found = None if field is None else TRACE_PARENT.match(field)
    return None if found is None or not int(found[3], 16) & _SAMPLED else Anchor(found[1].decode(), found[2].decode())


def carry(headers: Headers, trace: Trace) -> Headers:
    """The fields with this trace in the place of the client's."""
    kept = [line for line in headers if len(line[0]) != len(_FIELD) or line[0].lower() != _FIELD]
    return (*kept, (_FIELD, trace.field()))
