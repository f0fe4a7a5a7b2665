"""A configuration, resolved. Durations are seconds, sizes are bytes. Secrets are kept out of every `repr`."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.config.mistakes import Mistake
from gateway.core.cors import Cors
from gateway.core.fingerprint import VERSION
from gateway.core.headers import Forwarding
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
class TlsServer:
    """TLS on a listener. Paths are absolute; `key_file` is `cert_file` where one file holds both.

    With `client_ca_file` every client needs a certificate from one of its authorities. `stamp` digests the files' contents: settings
    that differ in nothing else mean a renewed certificate.
    """

    cert_file: str
    key_file: str
    client_ca_file: str | None
    min_version: str
    stamp: str


@dataclass(frozen=True, slots=True)
class TlsClient:
    """TLS toward an upstream. Paths are absolute; `cert_file` and `key_file` are both given or both None, and may be one file.

    Without `ca_file` the system's authorities count; without `server_name` the target's own host is asked for and verified.
    `stamp` is as in `TlsServer`.
    """

    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    server_name: str | None
    min_version: str
    verify: bool
    stamp: str


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin listener. `token` is None only on a loopback listener; `tls` None means plain HTTP."""

    listen: Listener
    token: str | None = field(default=None, repr=False, metadata={"secret": True})
    tls: TlsServer | None = None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client connection may take: time in each state, and size. `max_header_size` counts the whole head of a request.
    `min_rate` is in bytes a second, both ways; 0 is no least one. `half_close_timeout` is for clients that have ended their sending.

    `max_connections_per_address` 0 means no limit of its own.
    """

    header_timeout: float
    body_timeout: float
    send_timeout: float
    min_rate: int
    half_close_timeout: float
    idle_timeout: float
    max_connections: int
    max_connections_per_address: int
    max_header_size: int
    max_headers: int


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """`total` bounds the bodies that one process holds in memory; `spill_directory` None is the system's temporary directory."""

    total: int
    spill_directory: str | None


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
    """One upstream API. Each of `targets` (one or more, distinct) is scheme, host and optional port, or `unix:/path`, nothing else.

    `max_execution` is how long after its lease lapsed a request may still be running there. `host` is `forward` (the Host line as
    received), `target` (each target's own) or the Host line's literal value. `forwards_overrides`: it knows no other path or method than
    the request line's, so what asks for one goes on. `tls` is None unless the targets are `https://`, and may
    be None then too. A target that failed `failures` times in a row is left alone for `cooldown`; 0 means never. `circuit`: requests are
    refused while no target can be connected to; None means if there are several. `stream_idle` bounds the silence in event streams and
    tunnels.
    """

    name: str
    targets: tuple[str, ...]
    connect: float
    first_byte: float
    read_idle: float
    total: float
    max_execution: float
    keepalive: float
    max_connections: int
    host: str
    forwards_overrides: bool
    tls: TlsClient | None
    failures: int
    cooldown: float
    circuit: bool | None
    stream_idle: float
    slot_wait: float


@dataclass(frozen=True, slots=True)
class Config:
    """One valid configuration file. `redis` None means Postgres alone; `warnings` are findings that do not stop anything.

    `routes` are in file order, which is the order in which they match. Every `Route.upstream` is a key of `upstreams`. `name` is this
    gateway's in Via and Proxy-Status, a token. `tls` None means that the proxy listener speaks plain HTTP. `webhook_listen` None: webhooks
    are taken on the proxy listener. Of `encryption_keys` the first seals, and each of them opens. `fingerprint_version` is that
    of new records.
    """

    name: str
    listen: Listener
    tls: TlsServer | None
    admin: Admin
    workers: int
    trusted_proxies: tuple[Network, ...]
    forwarded: Forwarding
    proxy_status: bool
    cors: Cors | None
    client: ClientSettings
    memory: MemorySettings
    postgres: PostgresSettings
    redis: RedisSettings | None
    digest_secret: bytes | None = field(repr=False, metadata={"secret": True})
    problem_base: str
    access_log: bool
    drain: DrainSettings
    upstreams: Mapping[str, UpstreamConfig]
    routes: tuple[Route, ...]
    webhook_listen: Listener | None = None
    encryption_keys: tuple[bytes, ...] = field(default=(), repr=False, metadata={"secret": True})
    warnings: tuple[Mistake, ...] = ()
    fingerprint_version: int = VERSION
