"""Which header fields cross the hop, which are stored, which are replayed. One table each, both directions (RFC 9110 section 7.6.1)."""

from dataclasses import dataclass
from functools import lru_cache

from gateway.core.model import Headers

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
        b"proxy-authorization",
        b"proxy-authenticate",
    }
)
"""Fields about one connection. `Content-Length` is not among them, but each hop computes its own framing: see `FRAMING`."""

FRAMING = frozenset({b"content-length", b"transfer-encoding"})

PER_EXCHANGE = frozenset(
    {
        b"set-cookie",
        b"www-authenticate",
        b"authentication-info",
        b"retry-after",
        b"ratelimit",
        b"server-timing",
        b"alt-svc",
        b"traceparent",
        b"tracestate",
        b"via",
        b"x-request-id",
        b"request-id",
    }
)
"""Fields that speak about one exchange, or hand out a session: passed on with the first answer, never stored."""

PER_EXCHANGE_FAMILIES = (b"ratelimit-", b"x-ratelimit-", b"x-rate-limit-")
"""Beginnings of names of which the same is true; everybody has a `Remaining-Something` of their own."""

OURS = frozenset({b"idempotent-replayed", b"original-request"})
"""Fields that only the gateway may send downstream; an upstream's own copies are removed."""

FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port", b"x-real-ip"})
"""What hops before us say about the client; believed only from trusted proxies, else replaced. What a trusted proxy says cannot be
nominated away: its client may have written the `Connection` line.
"""

ALWAYS_KEPT = frozenset({b"authorization", b"host", b"content-type", b"content-encoding", b"cookie"})
"""Fields that naming them in `Connection` does not strip: they say what a request means, or whose it is."""


class Fields:
    """Field lines with an index, for the many look-ups that one request's head gets. Names are lower-case bytes."""

    __slots__ = ("_first", "_repeats", "lines")

    def __init__(self, lines: Headers) -> None:
        self.lines = lines
        self._first = {name.lower(): value for name, value in reversed(lines)}
        self._repeats = len(self._first) != len(lines)

    def first(self, name: bytes) -> bytes | None:
        """The value of the first line with this name."""
        return self._first.get(name)

    def values(self, name: bytes) -> list[bytes]:
        """The values of all lines with this name, in order."""
        value = self._first.get(name)
        if value is None:
            return []
        return [line for field, line in self.lines if field.lower() == name] if self._repeats else [value]


@lru_cache(maxsize=1024)
def wire_name(name: str) -> bytes:
    """A configured field name as look-ups want it."""
    return name.lower().encode()


VIA = b"1.1 idempotency-gateway"


def nominated(headers: Headers) -> frozenset[bytes]:
    """The lower-case field names that `Connection` lines nominate, all lines considered (an empty first line hides nothing)."""
    names: set[bytes] = set()
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection":
            names.update(token.strip().lower() for token in value.split(b","))
    names.discard(b"")
    return frozenset(names)


def end_to_end(headers: Headers, keep: frozenset[bytes] = frozenset()) -> Headers:
    """The fields that go on to the next hop: without hop-by-hop, nominated and framing fields. `keep` cannot be nominated away."""
    dropped = HOP_BY_HOP | FRAMING | (nominated(headers) - keep)
    return tuple([field for field in headers if field[0].lower() not in dropped])


@dataclass(frozen=True, slots=True)
class Hop:
    """What this hop adds toward the upstream: who the peer is, and how it came in."""

    peer: bytes
    scheme: bytes
    host: bytes
    trusted: bool
    request_id: bytes


def to_upstream(headers: Headers, hop: Hop, keep: frozenset[bytes] = frozenset(), drop: frozenset[bytes] = frozenset()) -> Headers:
    """A client's fields as the upstream sees them: end-to-end ones as received, plus Host, Via, the forwarded family and the request id.

    Fields in `keep` cannot be nominated away, fields in `drop` are left out. From a peer that is no trusted proxy the
    forwarded family is replaced, never appended to, so that no client can speak for another address (RFC 7239 section 8.1).
    """
    named = nominated(headers)
    gone = _NOT_TO_UPSTREAM | drop | (named - keep - ALWAYS_KEPT) if named or drop else _NOT_TO_UPSTREAM
    via: list[bytes] = []
    chain: list[bytes] = []
    fields: list[tuple[bytes, bytes]] = [(b"Host", hop.host)]
    for field in headers:
        name = field[0].lower()
        if name in FORWARDED:
            if hop.trusted and name == b"x-forwarded-for":
                chain += [field[1]] if field[1] else []
            elif hop.trusted and name not in drop:
                fields.append(field)
        elif name == b"via":
            via.append(field[1])
        elif name not in gone:
            fields.append(field)
    fields.append((b"Via", b", ".join([*via, VIA])))
    fields.append((b"X-Forwarded-For", b", ".join([*chain, hop.peer])))
    if not (hop.trusted and first(headers, b"x-forwarded-proto")):
        fields.append((b"X-Forwarded-Proto", hop.scheme))
    if not (hop.trusted and first(headers, b"x-forwarded-host")):
        fields.append((b"X-Forwarded-Host", hop.host))
    fields.append((b"X-Request-Id", hop.request_id))
    return tuple(fields)


_REPLACED = frozenset({b"host", b"expect", b"x-request-id"})
"""Fields that are ours to write toward the upstream; we have answered `Expect` ourselves."""

_NOT_TO_UPSTREAM = HOP_BY_HOP | FRAMING | _REPLACED
_NOT_TO_CLIENT = HOP_BY_HOP | FRAMING | OURS


def to_client(headers: Headers) -> Headers:
    """An upstream's fields as the first answer carries them."""
    named = nominated(headers)
    dropped = _NOT_TO_CLIENT | named if named else _NOT_TO_CLIENT
    return tuple([field for field in headers if field[0].lower() not in dropped])


def to_store(headers: Headers) -> Headers:
    """Fields that `to_client` let through, as they are kept for replays: without what speaks of one exchange."""
    return tuple([field for field in headers if not _per_exchange(field[0].lower())])


def _per_exchange(name: bytes) -> bool:
    return name in PER_EXCHANGE or name.startswith(PER_EXCHANGE_FAMILIES)


def first(headers: Headers, name: bytes) -> bytes | None:
    """The value of the first line with this lower-case name."""
    for field, value in headers:
        if len(field) == len(name) and field.lower() == name:
            return value
    return None
