"""One request on its way through the proxy: what came in, and what has become known of it so far."""

import re
from dataclasses import dataclass

from gateway.core.client_address import client_address
from gateway.core.cors import Cors
from gateway.core.headers import Fields, Hop
from gateway.core.host import asked_for, effective_host, normal_host
from gateway.core.policy import Policy
from gateway.core.routes import split_target
from gateway.core.splice import JsonText
from gateway.engine.request import Held
from gateway.http.body import Pace, expect_continue
from gateway.http.request import Connection, Request
from gateway.ports import Body
from gateway.proxy.routing import UNMATCHED, Routing

_WHOLE_SERVER = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


@dataclass(slots=True)
class Call:
    """`raw` is the request target as received, `fields` the field lines likewise. The fields from `cors` on are filled in on the way.

    `policy` is that of a guarded route, `key` the key's text, `principal` who asks, where the route keeps that. `body` is one that was read
    already, `held` what holds it, and `parts` as in `gateway.http.body.Taken`; `text` is what is known of it as JSON. `doubles` are the
    folded names of fields that came in a second spelling, which is gone. `unlisted` is the policy that a keyed request missed by its
    method. `waited_for`: the client asked before it sends its body (`Expect: 100-continue`) and was not told to go on.
    """

    request: Request
    routing: Routing
    request_id: str
    started: float
    raw: bytes
    fields: Fields
    cors: Cors | None = None
    route: str = UNMATCHED
    mode: str = "off"
    key_digest: str | None = None
    policy: Policy | None = None
    key: str | None = None
    principal: str | None = None
    body: bytes | Body | None = None
    held: Held | None = None
    parts: bytes | None = None
    text: JsonText | None = None
    request_bytes: int = 0
    waited_for: bool = False
    doubles: frozenset[bytes] = frozenset()
    unlisted: Policy | None = None

    @property
    def target(self) -> bytes:
        """The origin-form that is forwarded, byte for byte. OPTIONS for a whole server is about `*` (RFC 9112 section 3.2.4)."""
        if self.request.method == "OPTIONS" and _WHOLE_SERVER.fullmatch(self.raw):
            return b"*"
        return split_target(self.raw)[2]

    @property
    def connection(self) -> Connection:
        return self.request.connection

    def go_on(self) -> None:
        """The body is really wanted: say so to a client that asked first."""
        expect_continue(self.request, expected=self.waited_for)
        self.waited_for = False

    def pace(self) -> Pace:
        """How long the client is waited for while its body comes."""
        return Pace(self.routing.edge.body_timeout, self.routing.edge.min_rate)

    def client(self) -> str | None:
        """The nearest address that is no trusted proxy, for logs; None on a unix socket that no trusted word has come through."""
        peer, routing = self.connection.address, self.routing
        if peer is None or not routing.trusted_proxies:
            return peer
        return client_address(self.fields, peer, routing.trusts, routing.edge.forwarding)

    def host(self) -> bytes:
        """Whom the request is for, in one spelling: the host that goes upstream, and the one that a trusted proxy says it was asked for."""
        host = normal_host(effective_host(self.raw, self.fields.first(b"host")), b"https" if self.connection.secure else b"http")
        if not self.routing.trusted_proxies or not self.routing.trusts(self.connection.address or "unix"):
            return host
        return asked_for(host, self.fields)

    def hop(self) -> Hop:
        """What this hop tells the upstream about the client. Host follows the target where that names one (RFC 9112 section 3.2.2)."""
        address = self.connection.address or "unix"
        host = effective_host(self.raw, self.fields.first(b"host"))
        scheme = b"https" if self.connection.secure else b"http"
        edge, version = self.routing.edge, b"%d.%d" % self.request.version
        trusted, request_id = self.routing.trusts(address), self.request_id.encode()
        return Hop(address.encode(), scheme, host, trusted, request_id, edge.forwarding, edge.name, version)
