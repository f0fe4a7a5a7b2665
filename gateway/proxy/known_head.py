"""What was found out of a request's head and holds for all of its shape (`gateway.http.request_shapes`): no value that varies can change
it.
"""

import re
from typing import NamedTuple

from gateway.core.fingerprint import ReadHead
from gateway.core.forwarded import for_value
from gateway.core.headers import Fields, Forwarding, Hop, to_upstream
from gateway.http.request_shapes import RequestShape
from gateway.plan import RoutePlan
from gateway.proxy.routing import Place, Routing

_PLACE = re.compile(rb"\0([^\0]*)\0")
"""Stands where a value goes, with the name of its field: no field has such a byte in its value."""

_PEER = b"\0:\0"
"""Where the client's address goes."""

_LAST = b"\0\0"
"""Where the request id goes."""

_TOLD = (Forwarding.X_FORWARDED, Forwarding.NONE)
"""`Forwarded` writes an address as its kind wants it: no one template has a place for all of them."""

_HEAD_COST, _SIZE_COST = 1500, 3
"""Bytes that a `KnownHead` takes, and for each byte of the head: it stands in a template for either kind of peer, and in what counts for
the fingerprint. Measured.
"""

_NOTHING: frozenset[bytes] = frozenset()


class Template(NamedTuple):
    """Field lines with places: for the values of the fields of these names, in this order, then for the peer if it is `told`, and last for
    the request id.
    """

    text: bytes
    names: tuple[bytes, ...]
    told: bool


class KnownShape:
    """What was found out of the heads of a shape under one route map: under another they are judged anew. `heads` are by kind of place."""

    __slots__ = ("heads", "routing")

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self.heads: dict[tuple[str | None, bool], KnownHead] = {}

    def on(self, place: Place, shape: RequestShape) -> "KnownHead | None":
        """That of such a place, if there is room for it. Those that are known stay."""
        known = self.heads.get(place.kind)
        if known is None and shape.take(_HEAD_COST + _SIZE_COST * shape.size):
            known = self.heads[place.kind] = KnownHead(self.routing, place.plan, shape)
        return known


class KnownHead:
    """Plain heads of one shape at places of one kind, in which no field misleads anybody. `has_lines`: what the hop tells of a client has a
    place in a template. `asks_in_body` is what `gateway.proxy.elsewhere` has found out: whether a POST may ask for another method in its
    body.
    """

    __slots__ = ("_counts", "_plan", "_shape", "_templates", "asks_in_body", "has_lines", "read_head")

    def __init__(self, routing: Routing, plan: RoutePlan, shape: RequestShape) -> None:
        guard = plan.guard
        self.read_head: ReadHead | None = None
        self.asks_in_body: bool | None = None
        self.has_lines = routing.edge.forwarding in _TOLD
        self._counts = guard is None or any(guard.fingerprinter.head_reader.counts(name) for name in shape.varies)
        self._plan = plan
        self._shape = shape
        self._templates: dict[tuple[bool, bool], Template] = {}

    def reading(self, fields: Fields) -> ReadHead | None:
        """What the fields of this shape come to for the fingerprint: remembered, unless one that varies counts there."""
        if self.read_head is None and not self._counts:
            assert self._plan.guard is not None, "of others nothing counts"
            self.read_head = self._plan.guard.fingerprinter.read_head(fields)
        return self.read_head

    def lines(self, fields: Fields, hop: Hop) -> bytes:
        """The field lines of a request of this shape as the upstream gets them, if nothing but `to_upstream` has a say in them, and they
        have a template.
        """
        way = hop.scheme == b"https", hop.trusted
        template = self._templates.get(way)
        if template is None:
            template = self._templates[way] = self._template(fields, hop)
        peer = (for_value(hop.peer),) if template.told else ()
        return template.text % (*map(fields.first, template.names), *peer, hop.request_id)

    def _template(self, fields: Fields, hop: Hop) -> Template:
        varies, guard = self._shape.varies, self._plan.guard
        marked = tuple([(name, b"\0%b\0" % name.lower() if name.lower() in varies else value) for name, value in fields.lines])
        sent = to_upstream(marked, hop._replace(peer=_PEER, request_id=_LAST), _NOTHING if guard is None else guard.kept)
        parts = _PLACE.split(b"".join([b"%b: %b\r\n" % field for field in sent]))
        *names, last = parts[1::2]
        assert last == b"", "the request id is in the last line"
        told = bool(names) and names[-1] == b":"  # behind all fields that come from the client
        if told:
            names.pop()
        return Template(b"%b".join([between.replace(b"%", b"%%") for between in parts[::2]]), tuple(names), told)
