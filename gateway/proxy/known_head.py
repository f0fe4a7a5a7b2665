"""What was found out of a request's head and holds for all of its shape (`gateway.http.request_shapes`): no value that varies can change
it.
"""

import re
from collections.abc import Callable, Sequence

from gateway.core.fingerprint import ReadHead
from gateway.core.headers import Fields, Hop, to_upstream
from gateway.core.memo import Memo
from gateway.core.principal_source import principal_headers
from gateway.core.routes import Match
from gateway.core.scope import Scope
from gateway.http.request import Connection
from gateway.http.request_shapes import RequestShape
from gateway.plan import RoutePlan
from gateway.proxy.routing import Routing

_PEERS = 16
"""From so many clients' addresses heads of one shape are remembered as the upstream gets them."""

_PLACE = re.compile(rb"\0([^\0]*)\0")
"""Stands where a value goes, with the name of its field: no field has such a byte in its value."""

_NOTHING: frozenset[bytes] = frozenset()


class KnownHead:
    """A plain head that was judged, found its route, and is not refused there. `routing` is the route map by which that was so: under
    another it is judged anew. `scope` is the caller's, once it was found by fields that do not vary; `under` and `may_mislead` are what
    `gateway.proxy.elsewhere` has found out.
    """

    __slots__ = ("_lines", "_shape", "may_mislead", "plan", "read_head", "routing", "scope", "tells_scope", "under")

    def __init__(self, routing: Routing, plan: RoutePlan, shape: RequestShape) -> None:
        guard = plan.guard
        self.routing = routing
        self.plan = plan
        self.scope: Scope | None = None
        self.read_head: ReadHead | None = None
        self.under: Sequence[Match] | None = None
        self.may_mislead: bool | None = None
        names = () if guard is None else principal_headers(guard.policy.principal)
        self.tells_scope = not any(name.lower().encode() in shape.varies for name in names)
        self._shape = shape
        self._lines: Memo[tuple[str | None, bool], tuple[bytes, tuple[bytes, ...]]] = Memo(_PEERS)

    def reading(self, fields: Fields) -> ReadHead | None:
        """What the fields of this shape come to for the fingerprint: remembered, unless one that varies counts there."""
        guard = self.plan.guard
        if guard is None or any(guard.fingerprinter.head_reader.counts(name) for name in self._shape.varies):
            return None
        self.read_head = guard.fingerprinter.read_head(fields)
        return self.read_head

    def lines(self, connection: Connection, fields: Fields, hop: Callable[[], Hop], request_id: str) -> bytes:
        """The field lines of a request of this shape as the upstream gets them, if nothing but `to_upstream` has a say in them."""
        peer = connection.address, connection.secure
        template, names = self._lines.get(peer) or self._lines.keep(peer, self._template(fields, hop()))
        return template % (*map(fields.first, names), request_id.encode())

    def _template(self, fields: Fields, hop: Hop) -> tuple[bytes, tuple[bytes, ...]]:
        """With a place for each value that varies, then one for the request id, which stands last; and the names of the fields of the
        others.
        """
        varies, guard = self._shape.varies, self.plan.guard
        marked = tuple([(name, b"\0%b\0" % name.lower() if name.lower() in varies else value) for name, value in fields.lines])
        sent = to_upstream(marked, hop._replace(request_id=b"\0\0"), _NOTHING if guard is None else guard.kept)
        parts = _PLACE.split(b"".join([b"%b: %b\r\n" % field for field in sent]))
        *names, last = parts[1::2]
        assert last == b"", "the request id is in the last line"
        return b"%b".join([between.replace(b"%", b"%%") for between in parts[::2]]), tuple(names)
