"""Everything of the configuration that a request needs, in one immutable value: a reload swaps it whole."""

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.core.cors import Cors
from gateway.core.field_names import SELECTING
from gateway.core.forwarded import address_of
from gateway.core.headers import Forwarding
from gateway.core.overrides import Overrides, make_overrides
from gateway.core.policy import QueryKey, Route, principal_headers
from gateway.core.routes import RouteTable
from gateway.http.response import PATIENT, Patience
from gateway.ports import Upstream
from gateway.principal import Identifier

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

UNMATCHED = "unmatched"
"""The route label of requests that no route takes."""


@dataclass(frozen=True, slots=True)
class Edge:
    """How this gateway behaves toward clients and names itself. Durations are seconds, rates bytes a second. `cors` is of answers that no
    route is behind.
    """

    name: bytes = b"idempotency-gateway"
    forwarding: Forwarding = Forwarding.X_FORWARDED
    proxy_status: bool = False
    body_timeout: float = 60.0
    min_rate: int = 240
    patience: Patience = PATIENT
    half_closed_patience: Patience = PATIENT
    cors: Cors | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """The route map in force. `kept` names, for each guarded route, the lower-case fields that `Connection` cannot strip. `overrides` has
    the upstreams of guarded routes; `key_fields` are the lower-case names of all fields that hold a key somewhere; `keys_in_query` says
    whether some route has its key in the query.
    """

    table: RouteTable
    upstreams: Mapping[str, Upstream]
    secret: bytes
    trusted_proxies: tuple[Network, ...] = ()
    kept: Mapping[str, frozenset[bytes]] = field(default_factory=dict)
    overrides: Mapping[str, Overrides] = field(default_factory=dict)
    key_fields: frozenset[bytes] = frozenset()
    keys_in_query: bool = False
    edge: Edge = field(default_factory=Edge)
    identifier: Identifier | None = None

    def trusts(self, peer: str) -> bool:
        """Whether `peer` may speak for the client behind it. A peer without an address (a unix socket) is on this host, yet not trusted."""
        return trusted(peer, self.trusted_proxies)


def trusted(peer: str, networks: tuple[Network, ...]) -> bool:
    """Whether an address lies in one of the networks; an IPv4 address that came mapped into IPv6 counts as itself."""
    if not networks:
        return False
    address = address_of(peer)
    if address is None:
        return False
    ip = ipaddress.ip_address(address)
    return any(ip in network for network in networks)


def make_routing(
    routes: tuple[Route, ...],
    upstreams: Mapping[str, Upstream],
    secret: bytes,
    trusted_proxies: tuple[Network, ...],
    edge: Edge,
    identifier: Identifier | None = None,
    *,
    forwards_overrides: Collection[str] = (),
) -> Routing:
    """Compile a route map. `forwards_overrides` names the upstreams of which the operator says that they know none."""
    kept = {
        route.id: frozenset(
            name.lower().encode()
            for name in (*route.policy.key.headers, *principal_headers(route.policy.principal), *route.policy.fingerprint.headers)
        )
        | SELECTING
        for route in routes
        if route.policy is not None
    }
    guards = [(route.upstream, route.policy) for route in routes if route.policy is not None]
    overrides = {
        name: make_overrides([policy for upstream, policy in guards if upstream == name], refuse=name not in forwards_overrides)
        for name in {upstream for upstream, _ in guards}
    }
    return Routing(
        RouteTable(routes),
        upstreams,
        secret,
        trusted_proxies,
        kept,
        overrides,
        key_fields=frozenset(name.lower().encode() for _, policy in guards for name in policy.key.headers),
        keys_in_query=any(isinstance(policy.key.place, QueryKey) for _, policy in guards),
        edge=edge,
        identifier=identifier,
    )
