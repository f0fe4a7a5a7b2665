"""One request on its way through the proxy, from the head that has come to the log line."""

import re
from collections.abc import Mapping

from gateway.core.client_address import client_address
from gateway.core.cors import Cors
from gateway.core.decision import Label
from gateway.core.fingerprint import Content, ReadHead
from gateway.core.headers import Fields, Hop, to_upstream, uncoded
from gateway.core.host import asked_for, effective_host, normal_host
from gateway.core.key import Key
from gateway.core.key_location import Parts
from gateway.core.key_policy import ForwardKey
from gateway.core.model import Fingerprint, RecordKey
from gateway.core.policy import Policy
from gateway.core.reconcile.capture import capture
from gateway.core.reconcile.policy import OWN_KEY, OWN_PRINCIPAL
from gateway.core.routes import split_target
from gateway.core.scope import Scope, derived_key
from gateway.core.splice import JsonText
from gateway.core.trace_context import Trace, carry
from gateway.engine.answers import Reply
from gateway.engine.request import Client, Held
from gateway.http.body import Pace, expect_continue
from gateway.http.request import Connection, Request, RequestBody
from gateway.http.request_shapes import RequestShape
from gateway.plan import GuardPlan
from gateway.ports import Body
from gateway.proxy.known_head import KnownHead
from gateway.proxy.routing import UNMATCHED, Place, Routing

_WHOLE_SERVER = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


class Call(Request):
    """A client's request, and what has become known of it so far; the engine's `GuardedRequest`, and in the end the observer's
    `FinishedRequest`.

    `begin` must be called first. `fields` are the field lines without what would mislead the upstream; `doubles` the folded names of those
    that came in a second spelling, which is gone. `origin_form` is the target as received, in origin-form; `effective_host` the host
    that the request is for, as received; `hops` what `hops_left` says. `route` and `mode` are as logs call them. `guarded`: the request is
    under its route's `guard`. `sent_key` is the key that the head has; `scope` the caller's; `key` where its record is, known once there is
    a `key_digest`, which is its key as logs show it; `principal` who asks, where the route keeps that. `payload` is the body once it was
    read (`body_read`), `held` what holds it, and `parts` as in `gateway.http.body.Taken`; `text` is what is known of it as JSON. `unlisted`
    is the policy that a keyed request missed by its method; `under` is what other methods come to, once it was looked up. `waited_for`: the
    client asked before it sends its body (`Expect: 100-continue`) and was not told to go on. `meaning`, `content`, `captured`,
    `correlation`, `sealed`, `original`, `later` and `patience` are as in `GuardedRequest`. `trace` is there if requests are traced,
    `place` is where a plain head leads, `known` what is known of it by its shape.
    What only a `FinishedRequest` has is known after `end`.
    """

    __slots__ = (
        "attempt",
        "body_read",
        "captured",
        "client_gone",
        "content",
        "correlation",
        "cors",
        "decision",
        "doubles",
        "effective_host",
        "guard",
        "guarded",
        "held",
        "hops",
        "key",
        "key_digest",
        "known",
        "later",
        "meaning",
        "mode",
        "origin_form",
        "original",
        "parts",
        "patience",
        "payload",
        "place",
        "principal",
        "reason",
        "request_bytes",
        "request_id",
        "response_bytes",
        "route",
        "routing",
        "scope",
        "sealed",
        "sent_key",
        "settlement",
        "started",
        "status",
        "store_seconds",
        "text",
        "total_seconds",
        "trace",
        "trace_id",
        "unlisted",
        "upstream_seconds",
        "upstream_started",
        "upstream_status",
        "waited_for",
    )

    routing: Routing
    request_id: str
    trace_id: str | None
    started: float
    origin_form: bytes
    effective_host: bytes
    guard: GuardPlan
    key: RecordKey
    meaning: Fingerprint
    decision: Label
    status: int
    total_seconds: float
    store_seconds: float
    upstream_seconds: float | None
    upstream_started: float | None
    upstream_status: int | None
    settlement: str | None
    reason: str | None
    attempt: int | None
    response_bytes: int
    client_gone: bool

    def __init__(  # noqa: PLR0917 - positional, since it is called for every request; for that reason it calls no other
        self,
        connection: Connection,
        method: str,
        target: bytes,
        version: tuple[int, int],
        fields: Fields,
        body: RequestBody,
        keep_alive: bool,  # noqa: FBT001 - as above
        shape: RequestShape | None = None,
    ) -> None:
        self.connection = connection
        self.method = method
        self.target = target
        self.version = version
        self.fields = fields
        self.body = body
        self.keep_alive = keep_alive
        self.shape = shape
        self.cors: Cors | None = None
        self.route = UNMATCHED
        self.mode = "off"
        self.hops: int | None = None
        self.guarded = False
        self.sent_key: Key | None = None
        self.scope: Scope | None = None
        self.key_digest: str | None = None
        self.principal: str | None = None
        self.payload: bytes | Body = b""
        self.body_read = False
        self.held: Held | None = None
        self.parts: bytes | None = None
        self.text: JsonText | None = None
        self.request_bytes = 0
        self.waited_for = False
        self.doubles: frozenset[bytes] = frozenset()
        self.place: Place | None = None
        self.unlisted: Policy | None = None
        self.content: Content | None = None
        self.captured: Mapping[str, str] | None = None
        self.correlation: str | None = None
        self.sealed: bytes | None = None
        self.later = False
        self.patience = 0
        self.original: str | None = None
        self.known: KnownHead | None = None
        self.trace: Trace | None = None

    def begin(self, routing: Routing, request_id: str, now: float) -> None:
        """From here on it is handled, by this route map."""
        self.routing = routing
        self.request_id = request_id
        self.started = now
        expected, host = self.fields.first(b"expect"), self.fields.first(b"host")
        if expected is not None:
            self.waited_for = expected.strip(b" \t").lower() == b"100-continue"
        if self.target.startswith(b"/"):
            self.origin_form, self.effective_host = self.target, host or b""
        else:
            self.origin_form, self.effective_host = _origin_form(self.method, self.target), effective_host(self.target, host)

    # ---- of its head

    @property
    def host(self) -> bytes:
        """Whom the request is for, in one spelling: the host that goes upstream, and the one that a trusted proxy says it was asked for."""
        host = normal_host(self.effective_host, b"https" if self.connection.secure else b"http")
        if not self.routing.trusted_proxies or not self.routing.trusts(self.connection.address or "unix"):
            return host
        return asked_for(host, self.fields)

    @property
    def client_address(self) -> str | None:
        """The nearest address that is no trusted proxy, for logs; None on a unix socket that no trusted word has come through."""
        peer, routing = self.connection.address, self.routing
        if peer is None or not routing.trusted_proxies:
            return peer
        return client_address(self.fields, peer, routing.trusts, routing.edge.forwarding)

    def hop(self) -> Hop:
        """What this hop tells the upstream about the client. Host follows the target where that names one (RFC 9112 section 3.2.2)."""
        address = self.connection.address or "unix"
        scheme = b"https" if self.connection.secure else b"http"
        edge, trusted = self.routing.edge, bool(self.routing.trusted_proxies) and self.routing.trusts(address)
        version = b"1.1" if self.version == (1, 1) else b"%d.%d" % self.version
        return Hop(address.encode(), scheme, self.effective_host, trusted, self.request_id.encode(), edge.forwarding, edge.name, version)

    # ---- of its body

    def go_on(self) -> None:
        """The body is really wanted: say so to a client that asked first."""
        if self.waited_for:
            expect_continue(self, expected=True)
            self.waited_for = False

    def pace(self) -> Pace:
        """How long the client is waited for while its body comes."""
        return Pace(self.routing.edge.body_timeout, self.routing.edge.min_rate)

    def take(self, payload: bytes | Body, held: Held | None = None, parts: bytes | None = None) -> None:
        """The body was read."""
        self.payload, self.held, self.parts, self.body_read = payload, held, parts, True
        self.request_bytes = len(payload) if isinstance(payload, bytes) else payload.length

    def close(self) -> None:
        """Nobody needs the body any more. Idempotent."""
        held, self.held, self.payload, self.content, self.text = self.held, None, b"", None, None
        if held is not None:
            held.close()

    # ---- for the observer

    def end(self, reply: Reply, status: int, sent: int, seconds: float, *, gone: bool) -> None:
        """It was answered after so many seconds, with so many bytes of a body; or the client was `gone`."""
        self.decision = reply.label
        self.status = status
        self.total_seconds = seconds
        self.store_seconds = reply.store_seconds
        self.upstream_seconds = reply.upstream_seconds
        self.upstream_started = reply.upstream_started
        self.upstream_status = reply.upstream_status
        self.settlement = reply.settlement
        self.reason = reply.reason
        self.attempt = reply.attempt
        self.response_bytes = sent
        self.client_gone = gone
        self.request_bytes = self.request_bytes or self.body.received

    # ---- for the engine

    @property
    def client(self) -> Client:
        return self.connection

    def capture(self) -> None:
        """Its key as the upstream sees it, and named values."""
        policy, key, body = self.guard.policy, self.key, self.payload
        wanted = policy.reconcile.capture
        captured = capture(body if isinstance(body, bytes) else None, self.fields.first(b"content-type"), wanted) if wanted else {}
        derived = policy.forward_key is ForwardKey.DERIVED
        captured[OWN_KEY] = derived_key(self.routing.secret, key.scope_id, key.key).decode() if derived else key.key
        if self.principal is not None:
            captured[OWN_PRINCIPAL] = self.principal
        self.captured = captured
        self.correlation = None if policy.webhook is None else captured.get(policy.webhook.by)

    @property
    def read_head(self) -> ReadHead | None:
        """What its fields come to for the plan's fingerprinter, where that is known."""
        known = self.known
        return None if known is None else known.reading(self.fields)

    def lines(self) -> bytes | None:
        """The field lines that the upstream shall see, where `to_upstream` alone makes them, and its work is known."""
        known = self.known
        return None if known is None or not known.has_lines or self.trace is not None else known.lines(self.fields, self.hop())

    def forward(self) -> Parts:
        parts = self.forwarded()
        assert parts is not None, "judged before anything was reserved"
        return parts

    def forwarded(self) -> Parts | None:
        """The request as the upstream shall see it, with the key as the route says. None if its body cannot take it."""
        guard = self.guard
        headers = to_upstream(self.fields.lines, self.hop(), guard.kept, hops=self.hops)
        if guard.uncoded:
            headers = uncoded(headers)
        if self.trace is not None:
            headers = carry(headers, self.trace)
        if guard.sent is not None:
            headers = guard.sent.apply(headers)
        body = self.payload if guard.changes_body and isinstance(self.payload, bytes) else None
        target = self.origin_form if guard.rewriting is None else guard.rewriting.apply(self.origin_form)
        parts = Parts(headers, target, body, self.text)
        return parts if guard.carry_key is None else guard.carry_key(parts, self.key)


def _origin_form(method: str, target: bytes) -> bytes:
    """OPTIONS for a whole server is about `*` (RFC 9112 section 3.2.4)."""
    return b"*" if method == "OPTIONS" and _WHOLE_SERVER.fullmatch(target) else split_target(target)[2]
