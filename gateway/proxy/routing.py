"""Everything of the configuration that a request needs, in one immutable value: a reload swaps it whole."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.core.policy import Route
from gateway.core.routes import RouteTable
from gateway.ports import Upstream

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

UNMATCHED = "unmatched"
"""The route label of requests that no route takes."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The route map in force. `kept` names, for each guarded route, the lower-case fields that `Connection` cannot strip."""

    table: RouteTable
    upstreams: Mapping[str, Upstream]
    secret: bytes
    trusted_proxies: tuple[Network, ...] = ()
    kept: Mapping[str, frozenset[bytes]] = field(default_factory=dict)

    def trusts(self, peer: str) -> bool:
        """Whether `peer` may speak for the client behind it. A peer without an address (a unix socket) is on this host, yet not trusted."""
        if not self.trusted_proxies:
            return False
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self.trusted_proxies)


def make_routing(
    routes: tuple[Route, ...], upstreams: Mapping[str, Upstream], secret: bytes, trusted_proxies: tuple[Network, ...]
) -> Routing:
    """Compile a route map."""
    kept = {
        route.id: frozenset(
            name.lower().encode() for name in (route.policy.key.header, *route.policy.principal, *route.policy.fingerprint.headers)
        )
        for route in routes
        if route.policy is not None
    }
    return Routing(RouteTable(routes), upstreams, secret, trusted_proxies, kept)
