"""A configuration: what the file says of everything but the routes, declared (`gateway.core.setting`) and resolved. The
larger sections are in `gateway.config.settings`. Durations are seconds, sizes are bytes. What is kept out of a `repr`
is a secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from gateway.config import addresses
from gateway.config.addresses import ADDRESS, Listener, Network, TcpListener
from gateway.config.mistakes import Mistake
from gateway.config.settings.admin import Admin
from gateway.config.settings.stores import EncryptionKeys, EncryptionSettings, PostgresSettings, RedisSettings
from gateway.config.settings.tls import TlsServer
from gateway.config.settings.upstreams import UpstreamConfig
from gateway.core import texts
from gateway.core.common_kinds import NAME
from gateway.core.cors import Cors
from gateway.core.fingerprint import VERSION, WRITABLE
from gateway.core.headers import Forwarding
from gateway.core.kinds import Duration, Inline, ListOf, LocalPath, MapOf, SectionOf, Size, Text, Whole
from gateway.core.policy import Policy, Route

_EVERY_INTERFACE = TcpListener("0.0.0.0", 8080)  # noqa: S104 - a proxy serves every interface


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client connection may take: time in each state, and size. `max_header_size` counts the whole head of a
    request. `min_rate` is in bytes a second, both ways; 0 is no least one. `half_close_timeout` is for clients that
    have ended their sending.

    `max_connections_per_address` 0 means no limit of its own.
    """

    header_timeout: Annotated[float, Duration("10ms", "10m"), "For the whole head of a request, from its first byte."] = 15.0
    body_timeout: Annotated[float, Duration("10ms", "1h"), "How long a client may send nothing of a request's body."] = 60.0
    send_timeout: Annotated[float, Duration("10ms", "1h"), "How long a client may take nothing of an answer."] = 60.0
    min_rate: Annotated[
        int, Size("1MiB"), "Bytes a second that a client must send of a body, or take of an answer, on the whole; 0: no least."
    ] = 240
    half_close_timeout: Annotated[
        float,
        Duration("10ms", "1h"),
        "How long an answer that streams may be silent when the client has ended its sending, and may be gone.",
    ] = 30.0
    idle_timeout: Annotated[float, Duration("10ms", "1h"), "How long a connection is kept between two requests."] = 75.0
    max_connections: Annotated[int, Whole(1, 1_000_000), "Client connections of one process."] = 10_000
    max_connections_per_address: Annotated[int, Whole(0, 1_000_000), "Of these, from one address; 0: no limit of its own."] = 0
    max_header_size: Annotated[int, Size("1MiB", "1KiB"), "The largest head of a request; above it: 431."] = 64 * 1024
    max_headers: Annotated[int, Whole(1, 10_000), "The most header lines of a request; above it: 431."] = 256


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """`total` bounds the bodies that one process holds in memory; `spill_directory` None is the system's temporary
    directory.

    `replay_cache` is how many bytes of `total` completed answers may take, of which each is told for `replay_cache_ttl`
    seconds; without one of the two there is no such cache.
    """

    total: Annotated[int, Size("1024GiB", "16MiB"), "Bodies that one process holds in memory; beyond it new work gets 503."] = (
        256 * 1024 * 1024
    )
    spill_directory: Annotated[
        str | None, LocalPath("a folder path"), "Where large bodies wait on disk. Default: the system's temporary directory."
    ] = None
    replay_cache: Annotated[int, Size("1GiB"), "Of `total`, an eighth at most: completed answers that replays are told from."] = (
        16 * 1024 * 1024
    )
    replay_cache_ttl: Annotated[float, Duration("0s", "5s"), "How long one is; as long may a deleted one still be replayed. 0: off."] = 3.0

    @property
    def cached_seconds(self) -> float:
        """How long a process may tell a completed answer from its own memory; 0 if it keeps none."""
        return self.replay_cache_ttl if self.replay_cache else 0.0


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """`delay` is how long a stopping process goes on accepting while it is not ready; `timeout` bounds what follows."""

    delay: Annotated[float, Duration("0s", "10m"), "On SIGTERM: how long to go on accepting while not ready."] = 5.0
    timeout: Annotated[float, Duration("0s", "25h"), "Then: how long running requests may take."] = 75.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSettings:
    """The listener for upstreams that take part."""

    listen: Annotated[
        Listener, ADDRESS, "Where upstreams tell how far they have come, in plain HTTP. The token of the attempt is all it takes."
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """Spans for OpenTelemetry. `sample_percent` is of traces that begin here; a client's own decision counts."""

    endpoint: Annotated[
        str, Text("an http:// or https:// URL", addresses.collector), "Where a collector takes OTLP over HTTP, with its path."
    ]
    sample_percent: Annotated[int, Whole(0, 100), "How many in a hundred requests without a trace of their client are traced."] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteMap:
    """The routes, and what fills in what they leave out."""

    defaults: Annotated[Policy | None, "Fields of `idempotency` for routes that do not say otherwise."] = None
    routes: Annotated[
        tuple[Route, ...],
        ListOf(SectionOf(Route), at_least=1, unique=False, keep=True, include=True),
        "The route map; the first match counts. {include: FILE} stands for the list of routes in another file.",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One valid configuration file. `redis` None means Postgres alone; `warnings` are findings that do not stop
    anything.

    `routes` are in file order, which is the order in which they match. Every `Route.upstream` is a key of `upstreams`.
    `name` is this gateway's in Via and Proxy-Status, a token. `tls` None means that the proxy listener speaks plain
    HTTP. `webhook_listen` None: webhooks are taken on the proxy listener. `progress` None: no upstream
    tells how far it has come. Of `encryption_keys` the first seals, and
    each of them opens. `fingerprint_version` is that of new records.
    """

    name: Annotated[
        str,
        Text("a name", addresses.pseudonym, addresses.PSEUDONYM_PATTERN),
        "This gateway's name in Via and Proxy-Status; gateways in a chain need different ones.",
    ] = "idempotency-gateway"
    listen: Annotated[Listener, ADDRESS, "Where requests are taken."] = _EVERY_INTERFACE
    webhook_listen: Annotated[
        Listener | None,
        Text("an address such as 127.0.0.1:8081 or unix:/run/webhooks.sock", addresses.optional_listener),
        "Where webhooks are taken, in plain HTTP. Empty: on `listen`.",
    ] = None
    progress: Annotated[ProgressSettings | None, "A listener for upstreams that take part (`participate: {progress: true}`)."] = None
    workers: Annotated[int, Whole(1, 256), "Processes."] = 1
    trusted_proxies: Annotated[
        tuple[Network, ...], ListOf(Text("a network", addresses.network)), "Networks whose forwarded headers are believed."
    ] = ()
    forwarded: Annotated[Forwarding, "Which fields tell upstreams about the client: X-Forwarded-*, Forwarded (RFC 7239), both or none."] = (
        Forwarding.X_FORWARDED
    )
    proxy_status: Annotated[bool, "Add Proxy-Status (RFC 9209) to answers; it tells clients what is behind."] = False
    cors: Annotated[Cors | None, "Which pages of other origins may read the gateway's own answers, and replays."] = None
    tls: Annotated[TlsServer | None, "Serve HTTPS. Without it: plain HTTP."] = None
    admin: Annotated[Admin, "The second listener: health, metrics, admin API."] = field(default_factory=Admin)
    client: Annotated[ClientSettings, "What a client connection may take: time and size."] = field(default_factory=ClientSettings)
    memory: Annotated[MemorySettings, "Where bodies are while they pass."] = field(default_factory=MemorySettings)
    postgres: Annotated[PostgresSettings, "The authority for every record."]
    redis: Annotated[RedisSettings | None, "The hot path."] = None
    digest_secret: Annotated[
        bytes | None,
        Text("text of 16 characters or more", addresses.digest_secret, secret=True),
        "The secret under which credentials and fingerprints are digested. Must never change while records live.",
    ] = field(default=None, repr=False)
    fingerprint_version: Annotated[
        int,
        Whole(min(WRITABLE), max(WRITABLE)),
        "The version of the fingerprints of new records. 2 while gateways of a release before version 3 share the database.",
    ] = VERSION
    encryption_keys: Annotated[tuple[bytes, ...], Inline(EncryptionKeys)] = field(default=(), repr=False)
    encryption: Annotated[EncryptionSettings, "What is encrypted beside kept requests, which always are."] = field(
        default_factory=EncryptionSettings
    )
    problem_base: Annotated[str, Text("an absolute URI", addresses.problem_base), "The start of the `type` of every problem document."] = (
        "urn:idempotency-gateway:problem:"
    )
    operations_path: Annotated[
        str,
        Text("a path", texts.plain_path, r"^/"),
        "Where clients look for accepted operations; below it no route is served, if some route accepts or tells of them.",
    ] = "/.idempotency/operations"
    access_log: Annotated[bool, "One JSON line for each request."] = True
    access_log_user_agent: Annotated[bool, "With what the client calls itself (User-Agent)."] = False
    tracing: Annotated[TracingSettings | None, "Spans for OpenTelemetry; needs the `otel` extra."] = None
    drain: Annotated[DrainSettings, "How a process stops."] = field(default_factory=DrainSettings)
    upstreams: Annotated[Mapping[str, UpstreamConfig], MapOf(NAME, UpstreamConfig), "The APIs behind the gateway, by name."]
    routes: Annotated[tuple[Route, ...], Inline(RouteMap)]
    warnings: tuple[Mistake, ...] = ()
