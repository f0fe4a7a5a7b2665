"""One request on its way through the proxy: what came in, and what has become known of it so far."""

import re
from dataclasses import dataclass

from aiohttp.web_request import BaseRequest

from gateway.core.headers import Fields, Hop
from gateway.core.routes import split_target
from gateway.proxy.routing import UNMATCHED, Routing

_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")


@dataclass(slots=True)
class Call:
    """`raw` is the request target as received, `fields` the field lines likewise. The fields from `route` on are filled in on the way."""

    request: BaseRequest
    routing: Routing
    request_id: str
    started: float
    raw: bytes
    fields: Fields
    route: str = UNMATCHED
    mode: str = "off"
    key_digest: str | None = None
    request_bytes: int = 0

    @property
    def target(self) -> bytes:
        """The origin-form that is forwarded, byte for byte."""
        return split_target(self.raw)[2]

    def hop(self) -> Hop:
        """What this hop tells the upstream about the client. Host follows the target where that names one (RFC 9112 section 3.2.2)."""
        peer = self.request.protocol.peername  # which asks the kernel once for each connection
        address = peer[0] if isinstance(peer, tuple) else "unix"
        absolute = None if self.raw.startswith(b"/") else _AUTHORITY.match(self.raw)
        host = absolute[1].rpartition(b"@")[2] if absolute else (self.fields.first(b"host") or b"")
        scheme = b"https" if self.request.secure else b"http"
        return Hop(address.encode(), scheme, host, self.routing.trusts(address), self.request_id.encode())
