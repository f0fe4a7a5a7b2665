"""From the configuration to what a request meets first: the compiled route map, the identifier of callers, and the
limits of connections.
"""

from collections.abc import Mapping
from dataclasses import replace

from gateway.config import Config
from gateway.core.principal_source import JwksUrl, JwtPrincipal
from gateway.core.trace_context import Sampling
from gateway.http.limits import ClientLimits
from gateway.http.response import Patience
from gateway.principal import Identifier
from gateway.proxy.routing import Edge, Routing, make_routing
from gateway.run.server.claims import guarded
from gateway.runtime.system import SystemClock
from gateway.tls import client_context
from gateway.upstream import Balancer


def make_identifier(config: Config, upstreams: Mapping[str, Balancer], before: Identifier | None = None) -> Identifier:
    """The identifier of callers. Raises `PrincipalError`."""
    policies = tuple(guarded(config))
    # The system's authorities take tens of milliseconds to load: they are for addresses of keys alone.
    asks = any(isinstance(source, JwtPrincipal) and isinstance(source.keys, JwksUrl) for policy in policies for source in policy.principal)
    return Identifier(policies, upstreams, SystemClock(), tls=client_context(None) if asks else None, before=before)


def make_map(config: Config, upstreams: Mapping[str, Balancer], identifier: Identifier, before: Routing | None = None) -> Routing:
    """The compiled route map; `before` is the last one."""
    client = config.client
    patience = Patience(client.send_timeout, client.min_rate)
    edge = Edge(
        config.name.encode(),
        config.forwarded,
        config.proxy_status,
        client.body_timeout,
        client.min_rate,
        patience,
        replace(patience, silence=client.half_close_timeout),
        config.cors,
        config.operations_path.encode() if any(policy.has_status for policy in guarded(config)) else None,
        None if config.tracing is None else Sampling(config.tracing.sample_percent / 100),
    )
    forwards = frozenset(name for name, upstream in config.upstreams.items() if upstream.forwards_overrides)
    secret = config.digest_secret or b""
    return make_routing(
        config.routes,
        upstreams,
        secret,
        config.trusted_proxies,
        edge,
        identifier,
        version=config.fingerprint_version,
        forwards_overrides=forwards,
        prefixed=frozenset(name for name, upstream in config.upstreams.items() if upstream.prefixed),
        servers={name: upstream.servers for name, upstream in config.upstreams.items()},
        before=before,
    )


def make_limits(config: Config, connections: int) -> ClientLimits:
    """What client connections may take, and how many of them there may be."""
    client = config.client
    return ClientLimits(
        header_timeout=client.header_timeout,
        idle_timeout=client.idle_timeout,
        max_connections=connections,
        max_connections_per_address=client.max_connections_per_address,
        max_header_size=client.max_header_size,
        max_headers=client.max_headers,
    )
