"""Which header fields cross the hop, which are stored, which are replayed, in both directions (RFC 9110 section 7.6.1).

`gateway.core.field_names` lists the names, one set for each fate. Here they become one table, name → fate, so that each direction reads the
field lines once: `to_upstream` for a request, `cross` for an answer.
"""

import enum
from collections.abc import Callable, Iterator, KeysView, Sequence, Set
from functools import lru_cache
from typing import NamedTuple, Self, TypeAlias

from gateway.core.field_names import (
    ALWAYS_KEPT,
    FORWARDED,
    FORWARDED_FAMILIES,
    FRAMING,
    HOP_BY_HOP,
    OURS,
    PER_EXCHANGE,
    PER_EXCHANGE_FAMILIES,
    REPLACED,
    WRITTEN,
)
from gateway.core.forwarded import closes_quotes, element, for_value
from gateway.core.model import Headers
from gateway.core.via import forwarders

Spelled: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names of fields, each as it is spelled and in lower case."""


class Fields:
    """Field lines with an index, for the many look-ups that one request's head gets. Names are lower-case bytes."""

    __slots__ = ("_first", "_lines", "_repeats", "_spelled", "first")

    first: Callable[[bytes], bytes | None]
    """The value of the first line with this name. The index's own method, since a head is asked so ten times."""

    def __init__(self, lines: Headers) -> None:
        self._lines: Headers | None = lines
        self._spelled: Spelled = ()
        self._first = {name.lower(): value for name, value in reversed(lines)}
        self.first = self._first.get
        self._repeats = len(self._first) != len(lines)

    @classmethod
    def indexed(cls, lines: Headers, first: dict[bytes, bytes], *, repeated: bool) -> Self:
        """An index that the caller has made already: the value of each name's `first` line, and whether a name is
        `repeated`.
        """
        fields = cls.__new__(cls)
        fields._lines, fields._first, fields.first, fields._repeats = lines, first, first.get, repeated
        return fields

    @classmethod
    def spelled(cls, names: Spelled, first: dict[bytes, bytes]) -> Self:
        """Lines of different names, in this order. They are made when they are asked for, which most are not."""
        fields = cls.__new__(cls)
        fields._lines, fields._spelled, fields._first, fields.first, fields._repeats = None, names, first, first.get, False
        return fields

    @property
    def lines(self) -> Headers:
        """The field lines, in order."""
        lines = self._lines
        if lines is None:
            first = self._first
            lines = self._lines = tuple([(name, first[lower]) for name, lower in self._spelled])
        return lines

    @property
    def repeated(self) -> bool:
        """Whether a name is there more than once."""
        return self._repeats

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.lines)

    def names(self) -> KeysView[bytes]:
        """Each name once."""
        return self._first.keys()

    def single(self, name: bytes) -> bytes | None:
        """The value of the one line with this name; None if there is none, or more than one, or some name is there twice."""
        return None if self._repeats else self._first.get(name)

    def values(self, name: bytes) -> list[bytes]:
        """The values of all lines with this name, in order."""
        value = self._first.get(name)
        if value is None:
            return []
        return [line for field, line in self.lines if field.lower() == name] if self._repeats else [value]


# What becomes of a field, as bits: plain integers, since both directions test them for each field line.
_HOP = 1 << 0  # about one connection: crosses in neither direction
_FRAMING = 1 << 1  # computed anew on each side
_LENGTH = 1 << 2  # the framing field that an answer without a body keeps
_OURS = 1 << 3  # only the gateway sends it to clients
_ONCE = 1 << 4  # goes out with the first answer, is not stored
_REQUEST_ID = 1 << 5  # an answer has one, the gateway's
_WRITTEN_UP = 1 << 6  # the gateway writes it toward the upstream
_CLIENT = 1 << 7  # says who the client is: believed from trusted proxies
_NO_NAME = 1 << 8
_CONNECTION = 1 << 9
_VIA = 1 << 10
_HOP_COUNT = 1 << 11
_DATE = 1 << 12

_FATES_BY_SET: tuple[tuple[int, Set[bytes]], ...] = (
    (_HOP, HOP_BY_HOP),
    (_FRAMING, FRAMING),
    (_LENGTH, frozenset({b"content-length"})),
    (_OURS, OURS),
    (_ONCE, PER_EXCHANGE),
    (_REQUEST_ID, frozenset({b"x-request-id"})),
    (_WRITTEN_UP, REPLACED),
    (_CLIENT, FORWARDED),
    (_NO_NAME, frozenset({b""})),
    (_CONNECTION, frozenset({b"connection"})),
    (_VIA, frozenset({b"via"})),
    (_HOP_COUNT, frozenset({b"max-forwards"})),
    (_DATE, frozenset({b"date"})),
)
_NAMED = {
    name: sum(fate for fate, members in _FATES_BY_SET if name in members)
    for name in frozenset[bytes]().union(*(members for _, members in _FATES_BY_SET))
}
_FAMILIES: tuple[tuple[int, tuple[bytes, ...]], ...] = ((_ONCE, PER_EXCHANGE_FAMILIES), (_CLIENT, FORWARDED_FAMILIES))

_seen: dict[bytes, int] = {}
"""Fates by names as they were spelled on the wire: the same few spellings come again and again."""

_SEEN_MAX = 256
_SEEN_LONGEST = 64


def _learn(name: bytes) -> int:
    """The fate of a name in a spelling that is not in `_seen`. What clients invent cannot fill the memory: `_seen` is bounded."""
    lower = name.lower()
    fate = _NAMED.get(lower, 0)
    for family, prefixes in _FAMILIES:
        if lower.startswith(prefixes):
            fate |= family
    if len(name) <= _SEEN_LONGEST:
        if len(_seen) >= _SEEN_MAX:
            _seen.clear()
        _seen[name] = fate
    return fate


def _fate(name: bytes) -> int:
    fate = _seen.get(name)
    return _learn(name) if fate is None else fate


@lru_cache(maxsize=1024)
def wire_name(name: str) -> bytes:
    """A configured field name as look-ups want it."""
    return name.lower().encode()


def nominated(headers: Headers) -> frozenset[bytes]:
    """The lower-case field names that `Connection` lines nominate, all lines considered (an empty first line hides
    nothing).

    The options `close`, `keep-alive` and `upgrade` are left out: fields of these names never cross a hop anyway.
    """
    return _names([value for name, value in headers if len(name) == 10 and name.lower() == b"connection"])


def _names(connection: list[bytes]) -> frozenset[bytes]:
    names = {token.strip().lower() for value in connection if value not in _OPTIONS for token in value.split(b",")}
    return frozenset(names - _OPTIONS) if names else _NOTHING


_NOTHING: frozenset[bytes] = frozenset()
_OPTIONS = frozenset({b"", b"close", b"keep-alive", b"upgrade"})


class Forwarding(enum.StrEnum):
    """In which fields the upstream is told who the client is: the older `X-Forwarded-*`, `Forwarded` (RFC 7239), both,
    or neither.
    """

    X_FORWARDED = "x-forwarded"
    FORWARDED = "forwarded"
    BOTH = "both"
    NONE = "none"


class Hop(NamedTuple):  # made for every request, and a frozen dataclass of this size takes three times as long to make
    """What this hop adds toward the upstream: the peer, and how its request came in.

    `name` is this gateway's pseudonym in `Via`, a token; `version` is the HTTP version of the request as received,
    without `HTTP/`.
    """

    peer: bytes
    scheme: bytes
    host: bytes
    trusted: bool
    request_id: bytes
    forwarding: Forwarding = Forwarding.X_FORWARDED
    name: bytes = b"idempotency-gateway"
    version: bytes = b"1.1"


def to_upstream(headers: Headers, hop: Hop, keep: frozenset[bytes] = _NOTHING, *, hops: int | None = None) -> Headers:
    """A client's fields as the upstream sees them: end-to-end ones as received, plus Host, Via, the forwarded family
    and the request id.

    `Connection` cannot nominate away the fields in `keep`. The forwarded family of a peer that is no trusted proxy
    goes, so that no client can speak for another address (RFC 7239 section 8.1). The family of a trusted proxy goes on
    as it stands, except that the lines to which `hop.forwarding` has this hop append become one, in order (without
    lines of `Forwarded` in which a quoted string is not closed). `hops` is what `hops_left` found, at least 1:
    `Max-Forwards` goes on with one less.
    """
    special = _NOT_TO_UPSTREAM if hops is None else _NOT_TO_UPSTREAM | _HOP_COUNT
    connection: list[bytes] = []
    via: list[bytes] = []
    said: dict[bytes, list[bytes]] = {}
    fields: list[tuple[bytes, bytes]] = [(b"Host", hop.host)]
    for field in headers:
        fate = _seen.get(field[0])
        if fate is None:
            fate = _learn(field[0])
        if not fate & special:
            fields.append(field)
        elif fate & _CONNECTION:
            connection += [] if field[1] in _OPTIONS else [field[1]]
        elif fate & _VIA:
            via += [field[1]] if field[1] else []
        elif fate & _HOP_COUNT and hops is not None:
            fields.append((field[0], b"%d" % max(0, hops - 1)))
        elif fate & _CLIENT and _stands(field[0].lower(), field[1], hop, keep, said):
            fields.append(field)
    if connection and (gone := _names(connection) - keep - ALWAYS_KEPT):
        fields = [field for field in fields if field[0].lower() not in gone or _fate(field[0]) & special]
    via.append(hop.version + b" " + hop.name)
    fields.append((b"Via", b", ".join(via)))
    _add_forwarded(fields, hop, said)
    fields.append((b"X-Request-Id", hop.request_id))
    return tuple(fields)


def _stands(name: bytes, value: bytes, hop: Hop, keep: frozenset[bytes], said: dict[bytes, list[bytes]]) -> bool:
    """Whether a field of the forwarded family goes on as it is. `said` collects what a trusted proxy says in it."""
    if not hop.trusted:
        return name in keep and name not in WRITTEN
    if value:
        said.setdefault(name, []).append(value)
    return hop.forwarding not in _APPENDED.get(name, ())


def _add_forwarded(fields: list[tuple[bytes, bytes]], hop: Hop, said: dict[bytes, list[bytes]]) -> None:
    """What this hop says of the client, after what trusted hops `said` of it, by lower-case name."""
    if hop.forwarding in _OLDER:
        fields.append((b"X-Forwarded-For", b", ".join([*said.get(b"x-forwarded-for", ()), for_value(hop.peer)])))
        if b"x-forwarded-proto" not in said:
            fields.append((b"X-Forwarded-Proto", hop.scheme))
        if b"x-forwarded-host" not in said:
            fields.append((b"X-Forwarded-Host", hop.host))
    if hop.forwarding in _NEWER:
        elements = [value for value in said.get(b"forwarded", ()) if closes_quotes(value)]
        fields.append((b"Forwarded", b", ".join([*elements, element(hop.peer, hop.host, hop.scheme)])))


_OLDER = (Forwarding.X_FORWARDED, Forwarding.BOTH)
_NEWER = (Forwarding.FORWARDED, Forwarding.BOTH)
_APPENDED = {b"x-forwarded-for": _OLDER, b"forwarded": _NEWER}
_NOT_TO_UPSTREAM = _HOP | _FRAMING | _WRITTEN_UP | _CLIENT | _NO_NAME


class Crossed(NamedTuple):
    """An upstream's fields behind this hop: `to_client` for the first answer, `to_store` for the record."""

    to_client: Headers
    to_store: Headers


_NOT_TO_CLIENT = _HOP | _FRAMING | _OURS | _REQUEST_ID


def cross(headers: Headers, date: bytes, *, bodiless: bool = False, removed: Set[bytes] = _NOTHING, added: Headers = ()) -> Crossed:
    """An upstream's fields as the first answer carries them and as its record keeps them, in one pass.

    As `to_client` and `to_store`; without the upstream's own `X-Request-Id` (the one answer has one, and it is the one in our log), without
    the lower-case names in `removed`, with the lines of `added` behind the others, and with a Date, `date` if the upstream sent none (RFC
    9110 section 6.6.1).
    """
    sent: list[tuple[bytes, bytes]] = []
    kept: list[tuple[bytes, bytes]] = []
    fates = 0
    for field in headers:
        fate = _seen.get(field[0])
        if fate is None:
            fate = _learn(field[0])
        fates |= fate
        if not fate & _NOT_TO_CLIENT or (bodiless and fate & _LENGTH):
            sent.append(field)
            if not fate & _ONCE:
                kept.append(field)
    gone = nominated(headers) | removed if fates & _CONNECTION else removed
    if gone:
        sent = [field for field in sent if field[0].lower() not in gone]
        kept = [field for field in kept if field[0].lower() not in gone]
    if added:
        sent += added
        kept += [field for field in added if not _fate(field[0]) & _ONCE]
    if not fates & _DATE or b"date" in gone:
        sent.append((b"Date", date))
        kept.append((b"Date", date))
    return Crossed(tuple(sent), tuple(kept))


def to_client(headers: Headers, *, bodiless: bool = False) -> Headers:
    """An upstream's fields as the first answer carries them, on every route: end-to-end ones as received, without marks
    that only we set.

    Every field that the response's `Connection` nominates goes (RFC 9110 section 7.6.1). `bodiless` is for answers to
    HEAD and for 304: their `Content-Length` frames nothing, but says what a GET would have got (section 8.6), so it is
    kept.
    """
    gone = nominated(headers)
    fields = [field for field in headers if not (fate := _fate(field[0])) & _NOT_BACK or (bodiless and fate & _LENGTH)]
    return tuple([field for field in fields if field[0].lower() not in gone] if gone else fields)


_NOT_BACK = _HOP | _FRAMING | _OURS


def uncoded(headers: Headers) -> Headers:
    """Request fields that ask for an answer without content coding (RFC 9110 section 12.5.3), where the gateway has to
    read its body.
    """
    return (*[field for field in headers if field[0].lower() != b"accept-encoding"], (b"Accept-Encoding", b"identity"))


def to_store(headers: Headers) -> Headers:
    """Fields that `to_client` let through, as a record keeps them: without fields about one exchange."""
    return tuple([field for field in headers if not _fate(field[0]) & _ONCE])


def first(headers: Headers, name: bytes) -> bytes | None:
    """The value of the first line with this lower-case name."""
    for field, value in headers:
        if len(field) == len(name) and field.lower() == name:
            return value
    return None


def looped(fields: Fields, name: bytes) -> bool:
    """Whether a gateway of this name has forwarded the request before: `Via` has it, letter case aside (RFC 9110
    section 7.6.3).
    """
    return fields.first(b"via") is not None and name.lower() in forwarders(fields.values(b"via"))


def hops_left(method: str, fields: Fields) -> int | None:
    """`Max-Forwards` of a TRACE or OPTIONS request (RFC 9110 section 7.6.2); 0 means that it is ours to answer.

    None for other methods, and where there is no such field or not just one number. A huge number counts as the largest
    we know.
    """
    if method not in {"TRACE", "OPTIONS"}:
        return None
    values = fields.values(b"max-forwards")
    if len(values) != 1 or not values[0].isdigit():
        return None
    digits = values[0].lstrip(b"0")
    return int(digits or b"0") if len(digits) < len(str(_MAX_FORWARDS)) else _MAX_FORWARDS


_MAX_FORWARDS = 1_000_000


def upgrade_of(method: str, fields: Fields, version: bytes = b"1.1") -> bytes | None:
    """The protocol that a client asks to switch to, if the gateway supports it: `websocket`, by GET, in HTTP/1.1 (RFC
    6455 section 4.1).

    `Connection` must nominate `upgrade` (RFC 9110 section 7.8). The gateway passes on no other protocol, such as h2c.
    """
    if method != "GET" or version == b"1.0" or fields.first(b"upgrade") is None:
        return None
    if b"upgrade" not in _tokens(fields.values(b"connection")):
        return None
    return b"websocket" if b"websocket" in _tokens(fields.values(b"upgrade")) else None


def _tokens(lines: list[bytes]) -> set[bytes]:
    """The elements of a comma-separated list over all its lines, in lower case."""
    return {token.strip(b" \t").lower() for line in lines for token in line.split(b",")}
