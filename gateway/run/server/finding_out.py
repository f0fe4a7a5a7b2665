"""Builds what reconciliation needs from a configuration: its own clients of the upstreams, and the key that opens
sealed requests.
"""

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from gateway.config import Config, UpstreamConfig
from gateway.core.policy import Route
from gateway.core.reconcile.policy import Cancel, Lookup, Manual, Pace, Resend
from gateway.ports.reconciliation import Sealer
from gateway.run.server.upstreams import make_upstream
from gateway.runtime.sealing import AesSealer
from gateway.upstream import Balancer


def make_sealer(config: Config) -> Sealer | None:
    """What encrypts stored requests; None without a key. Raises `gateway.runtime.sealing.MissingSealing`."""
    return AesSealer(config.encryption_keys) if config.encryption_keys else None


def make_probes(config: Config) -> dict[str, Balancer]:
    """Clients for probes alone, of the upstreams that probes ask: a probe takes no connection from traffic, nor its
    breaker a target; and it has its own time, not that of requests.

    Raises `gateway.tls.TlsError`.
    """
    paces: dict[str, list[Pace]] = {}
    for route in config.routes:
        name = probed(route)
        if name is not None and route.policy is not None:
            paces.setdefault(name, []).append(route.policy.reconcile.pace)
    return {name: make_upstream(_for_probes(config.upstreams[name], asking), _unheard) for name, asking in paces.items()}


def make_probe(config: Config, name: str, pace: Pace) -> Balancer:
    """A client of one upstream for one look. Raises `gateway.tls.TlsError`."""
    return make_upstream(_for_probes(config.upstreams[name], [pace]), _unheard)


def _for_probes(upstream: UpstreamConfig, paces: Sequence[Pace]) -> UpstreamConfig:
    """Places for each route's looks, and the longest time of any; each look ends by its own."""
    longest = max(pace.timeout for pace in paces)
    count = max(pace.concurrency for pace in paces)
    timeouts = replace(upstream.timeouts, first_byte=longest, read_idle=longest, total=longest)
    return replace(upstream, max_connections=count, timeouts=timeouts)


def probed(route: Route) -> str | None:
    """The upstream that a route's probe asks; None for a route without one."""
    if route.policy is None:
        return None
    match route.policy.reconcile.probe:
        case Lookup(upstream=other) | Cancel(upstream=other):
            return other or route.upstream
        case Resend():
            return route.upstream
        case Manual():
            return None


def host_of(config: Config, name: str) -> bytes:
    """The Host line of a request of our own making: there is no client whose line could be forwarded."""
    upstream = config.upstreams[name]
    if upstream.host not in {"forward", "target"}:
        return upstream.host.encode()
    return urlsplit(upstream.targets[0]).netloc.encode() or b"localhost"


def _unheard(target: str, healthy: bool) -> None:  # noqa: FBT001 - the balancer's way to tell
    """The gauge of targets tells of traffic's own view."""
