"""Everything of the configuration that a request needs, in one immutable value: a reload swaps it whole."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.core.client_address import Network, trusted
from gateway.core.cors import Cors
from gateway.core.fingerprint import VERSION
from gateway.core.headers import Forwarding
from gateway.core.key_policy import QueryKey
from gateway.core.memo import Memo
from gateway.core.policy import Route
from gateway.core.principal_source import principal_headers
from gateway.core.reach import Servers
from gateway.core.routes import Match, Matched, NoRoute, RefusedTarget, RouteTable
from gateway.core.trace_context import Sampling
from gateway.http.response import PATIENT, Patience
from gateway.plan import RoutePlan, make_plans
from gateway.ports import Upstream
from gateway.principal import Identifier

UNMATCHED = "unmatched"
"""The route label of requests that no route takes."""


PLACES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Edge:
    """How this gateway behaves toward clients and names itself. Durations are seconds, rates bytes a second. `cors` is of answers that no
    route is behind. `operations` is where clients look for their operations; None if no route tells them to. Without `tracing` requests
    are not traced.
    """

    name: bytes = b"idempotency-gateway"
    forwarding: Forwarding = Forwarding.X_FORWARDED
    proxy_status: bool = False
    body_timeout: float = 60.0
    min_rate: int = 240
    patience: Patience = PATIENT
    half_closed_patience: Patience = PATIENT
    cors: Cors | None = None
    operations: bytes | None = None
    tracing: Sampling | None = None


class Place:
    """Where plain heads (`head.is_plain`) with one method, target and Host lead: to the route of `plan`. `kind` is that of all plans by
    which a head comes to the same. `taken`: the route takes them, and neither method nor target asks for anything else. `under` and
    `guards` are what `gateway.proxy.elsewhere` has found out: what the path comes under with any method, and whether that is a guard
    elsewhere.
    """

    __slots__ = ("guards", "kind", "plan", "taken", "under")

    def __init__(self, plan: RoutePlan) -> None:
        self.plan = plan
        self.kind = (None if plan.guard is None else plan.id, plan.overrides is None)
        self.taken = False
        self.under: Sequence[Match] | None = None
        self.guards: bool | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """The route map in force. `plans` are by route id. `key_fields` are the lower-case names of all fields that hold a key somewhere;
    `keys_in_query` says whether some route has its key in the query. `kept` are the fields that a client's `Connection` cannot strip on
    some route. `places` are remembered by method, target and Host.
    """

    table: RouteTable
    plans: Mapping[str, RoutePlan]
    secret: bytes
    trusted_proxies: tuple[Network, ...] = ()
    key_fields: frozenset[bytes] = frozenset()
    keys_in_query: bool = False
    kept: frozenset[bytes] = frozenset()
    edge: Edge = field(default_factory=Edge)
    identifier: Identifier | None = None
    places: Memo[tuple[str, bytes, bytes], Place] = field(default_factory=lambda: Memo(PLACES_MAX), compare=False, repr=False)

    def find(self, method: str, target: bytes, host: bytes) -> RoutePlan | NoRoute | RefusedTarget:
        """The plan of the route that a request belongs to; `host` as for `RouteTable.match`."""
        matched = self.table.match(method, target, host)
        return self.plans[matched.route.id] if isinstance(matched, Matched) else matched

    def trusts(self, peer: str) -> bool:
        """Whether `peer` may speak for the client behind it. A peer without an address (a unix socket) is on this host, yet not trusted."""
        return trusted(peer, self.trusted_proxies)


def key_fields(routes: Iterable[Route]) -> frozenset[bytes]:
    """The lower-case names of all fields that hold a key on some route."""
    policies = [route.policy for route in routes if route.policy is not None]
    return frozenset(name.lower().encode() for policy in policies for name in policy.key.headers)


def varying_fields(routes: Iterable[Route]) -> frozenset[bytes]:
    """The lower-case names of the fields whose values differ from request to request on some route, or from caller to caller."""
    policies = [route.policy for route in routes if route.policy is not None]
    return key_fields(routes).union([name.lower().encode() for policy in policies for name in principal_headers(policy.principal)])


def make_routing(
    routes: tuple[Route, ...],
    upstreams: Mapping[str, Upstream],
    secret: bytes,
    trusted_proxies: tuple[Network, ...],
    edge: Edge,
    identifier: Identifier | None = None,
    *,
    version: int = VERSION,
    forwards_overrides: Collection[str] = (),
    prefixed: Collection[str] = (),
    servers: Servers | None = None,
    before: Routing | None = None,
) -> Routing:
    """Compile a route map. What is not said here is as for `make_plans`."""
    policies = [route.policy for route in routes if route.policy is not None]
    plans = make_plans(
        routes,
        upstreams,
        secret,
        version=version,
        forwards_overrides=forwards_overrides,
        prefixed=prefixed,
        servers=servers,
        before=None if before is None else before.plans,
    )
    return Routing(
        RouteTable(routes),
        plans,
        secret,
        trusted_proxies,
        key_fields=key_fields(routes),
        keys_in_query=any(isinstance(policy.key.place, QueryKey) for policy in policies),
        kept=frozenset[bytes]().union(*(plan.guard.kept for plan in plans.values() if plan.guard is not None)),
        edge=edge,
        identifier=identifier,
    )
