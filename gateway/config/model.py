"""A configuration, resolved. Durations are seconds, sizes are bytes. Secrets are kept out of every `repr`."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.config.mistakes import Mistake
from gateway.core.policy import Route

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class TcpListener:
    """`host` is a name or an address without brackets; `port` 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect. A name other than `localhost` counts as reachable from outside."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A Unix socket at an absolute path."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"

    @property
    def loopback(self) -> bool:
        return True


Listener: TypeAlias = TcpListener | UnixListener


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin listener. `token` is None only on a loopback listener."""

    listen: Listener
    token: str | None = field(default=None, repr=False, metadata={"secret": True})


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The authority. `timeout` bounds one statement; `allow_unsafe` names what start would otherwise refuse in the server."""

    dsn: str = field(repr=False, metadata={"secret": True})
    pool_size: int
    timeout: float
    prepared_statements: bool
    allow_unsafe: frozenset[str]


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The hot path. Responses over `max_value` bytes are not cached; `replay_ttl` caps how long one is."""

    url: str = field(repr=False, metadata={"secret": True})
    timeout: float
    lease: float
    replay_ttl: float
    max_value: int


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """`delay` is how long a stopping process goes on accepting while it is not ready; `timeout` bounds what follows."""

    delay: float
    timeout: float


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """One upstream API. `url` is scheme, host and optional port, nothing else.

    `max_execution` is how long after its lease lapsed a request may still be running there.
    """

    name: str
    url: str
    connect: float
    first_byte: float
    read_idle: float
    total: float
    max_execution: float
    keepalive: float
    max_connections: int


@dataclass(frozen=True, slots=True)
class Config:
    """One valid configuration file. `redis` None means Postgres alone; `warnings` are findings that do not stop anything.

    `routes` are in file order, which is the order in which they match. Every `Route.upstream` is a key of `upstreams`.
    """

    listen: Listener
    admin: Admin
    workers: int
    trusted_proxies: tuple[Network, ...]
    postgres: PostgresSettings
    redis: RedisSettings | None
    digest_secret: bytes | None = field(repr=False, metadata={"secret": True})
    problem_base: str
    access_log: bool
    drain: DrainSettings
    upstreams: Mapping[str, UpstreamConfig]
    routes: tuple[Route, ...]
    warnings: tuple[Mistake, ...] = ()
