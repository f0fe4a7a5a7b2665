"""From the configuration of an upstream to the client that reaches it."""

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlsplit

from gateway.config import UpstreamConfig
from gateway.tls import client_context
from gateway.upstream import Balancer, Health, HttpUpstream, UpstreamSettings

OnHealth = Callable[[str, str, bool], None]
"""Told of (upstream, target, whether it is healthy) at each change."""


def make_upstreams(configs: Mapping[str, UpstreamConfig], on_health: OnHealth) -> dict[str, Balancer]:
    """The clients of all upstreams. Raises `gateway.tls.TlsError`."""
    return {name: make_upstream(config, partial(on_health, name)) for name, config in configs.items()}


def make_upstream(config: UpstreamConfig, on_health: Callable[[str, bool], None]) -> Balancer:
    """The client of one upstream, over all its targets."""
    secure = any(target.startswith("https://") for target in config.targets)
    context = client_context(config.tls) if secure else None
    server_name = None if config.tls is None else config.tls.server_name
    targets = [
        (
            target,
            HttpUpstream(_settings(config, target), ssl_context=context, server_name=server_name),
            Health(config.health.failures, config.health.cooldown),
        )
        for target in config.targets
    ]
    circuit = len(targets) > 1 if config.health.circuit is None else config.health.circuit
    return Balancer(targets, on_health, circuit=circuit)


def _settings(config: UpstreamConfig, target: str) -> UpstreamSettings:
    return UpstreamSettings(
        url=target,
        connect=config.timeouts.connect,
        first_byte=config.timeouts.first_byte,
        read_idle=config.timeouts.read_idle,
        total=config.timeouts.total,
        keepalive=config.keepalive,
        max_connections=config.max_connections,
        slot_wait=config.slot_wait,
        stream_idle=config.timeouts.stream_idle,
        host=_host(config.host, target),
    )


def _host(rule: str, target: str) -> bytes | None:
    """The Host line toward this target; None: as received. A unix socket has no name of its own."""
    match rule:
        case "forward":
            return None
        case "target":
            return urlsplit(target).netloc.encode() or b"localhost"
        case literal:
            return literal.encode()
