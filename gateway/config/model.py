"""A configuration: what the file says of everything but the routes, declared (`gateway.core.setting`) and resolved.
Durations are seconds, sizes are bytes. What is kept out of a `repr` is a secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from gateway.config import addresses
from gateway.config.addresses import Listener, Network, TcpListener
from gateway.config.mistakes import Mistake
from gateway.core import texts
from gateway.core.common_kinds import NAME
from gateway.core.cors import Cors
from gateway.core.fingerprint import VERSION, WRITABLE
from gateway.core.headers import Forwarding
from gateway.core.kinds import (
    Choice,
    Duration,
    FromFile,
    Inline,
    ListOf,
    LocalPath,
    MapOf,
    Named,
    SectionOf,
    SetOf,
    Size,
    Tag,
    Text,
    Whole,
    shorten,
)
from gateway.core.policy import Policy, Route
from gateway.core.roles import Role
from gateway.core.second_approval import SecondApproval
from gateway.core.setting import Form, Key, Shape
from gateway.core.shards import BatchBy
from gateway.core.user_token import DIGEST_PATTERN

_EVERY_INTERFACE = TcpListener("0.0.0.0", 8080)  # noqa: S104 - a proxy serves every interface
_LOOPBACK = TcpListener("127.0.0.1", 9464)
_FILE = LocalPath("a file path")
_ADDRESS = Text("an address such as 127.0.0.1:8080 or unix:/run/gateway.sock", addresses.listener)
_TARGET = Text("a URL", texts.upstream_url, addresses.TARGET_PATTERN)
_USER_NAME = Text("a name such as ana", addresses.user_name, addresses.USER_PATTERN)
_TOKEN_DIGEST = Text("a digest such as sha256:…, made by `idempotency-gateway users token`", addresses.token_digest, DIGEST_PATTERN)
_CLAIM = Text("the name of a claim")
_GROUP = Text("the name of a group")
_ISSUER = Text("an https URL, such as https://login.example", addresses.issuer)
_SESSION_SECRET = Text("text of 32 characters or more", addresses.session_secret, secret=True)
_ORIGIN = Text("scheme and host, such as https://gateway-admin.example", addresses.origin)
_ENCRYPTION_KEY = Text("text of 32 characters or more", addresses.encryption_key, secret=True)


@dataclass(frozen=True)
class _TlsVersion(Choice):
    """A version of TLS: a word that looks like a number, quoted or not."""

    accepts: ClassVar[frozenset[Tag]] = frozenset({Tag.TEXT, Tag.NUMBER})

    def spellings(self) -> list[object]:
        return [*self.words, *map(float, self.words)]

    def parse(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(f'"{shorten(text)}" is not spoken here; {" and ".join(self.words)} are')
        return text


_TLS_VERSION = _TlsVersion({word: word for word in ("1.2", "1.3")})


@dataclass(frozen=True, slots=True)
class TlsServer:
    """TLS on a listener. Paths are absolute; `key_file` is `cert_file` where one file holds both.

    With `client_ca_file` every client needs a certificate from one of its authorities. `stamp` digests the files'
    contents: settings that differ in nothing else mean a renewed certificate.
    """

    SHAPE: ClassVar = Shape(meant={"ca_file": "client_ca_file"})

    cert_file: Annotated[str, _FILE, "PEM: the listener's certificate, then its issuers."]
    key_file: Annotated[str, _FILE, "PEM: the certificate's key, without a passphrase. Default: `cert_file` holds it too."] = ""
    client_ca_file: Annotated[str | None, _FILE, "PEM: with it every client needs a certificate from one of these authorities."] = None
    min_version: Annotated[str, _TLS_VERSION, "The oldest TLS version that is spoken."] = "1.2"
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class TlsClient:
    """TLS toward an upstream. Paths are absolute; `cert_file` and `key_file` are both given or both None, and may be
    one file.

    Without `ca_file` the system's authorities count; without `server_name` the target's own host is asked for and
    verified. `stamp` is as in `TlsServer`.
    """

    SHAPE: ClassVar = Shape(meant={"client_ca_file": "ca_file"})

    ca_file: Annotated[str | None, _FILE, "PEM: the authorities that are trusted. Default: the system's."] = None
    cert_file: Annotated[str | None, _FILE, "PEM: the certificate that the gateway shows, then its issuers."] = None
    key_file: Annotated[str | None, _FILE, "PEM: the certificate's key, without a passphrase. Default: `cert_file` holds it too."] = None
    server_name: Annotated[
        str | None, Text("a host name", addresses.server_name), "The name asked for (SNI) and verified. Default: the target's host."
    ] = None
    min_version: Annotated[str, _TLS_VERSION, "The oldest TLS version that is spoken."] = "1.2"
    verify: Annotated[bool, "false: any certificate will do, also an attacker's."] = True
    stamp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A named user of the admin listener and of the commands. The configuration knows the digest of the token alone."""

    name: Annotated[str, _USER_NAME, "As the audit table names this user."]
    role: Annotated[Role, "viewer, operator, approver or admin; each may do what those before it may."]
    token_digest: Annotated[bytes, _TOKEN_DIGEST, "The digest of the user's token; `idempotency-gateway users token` makes both."] = field(
        repr=False
    )
    subject: Annotated[str | None, Text("a `sub`", addresses.subject), "The `sub` of the same person at the provider (`oidc`)."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Sessions of browsers. Without a `secret` the key of their cookies is made of `encryption_key`; without either, of chance."""

    idle: Annotated[float, Duration("1m", "24h"), "How long a browser's session lasts without a request."] = 900.0
    absolute: Annotated[float, Duration("1m", "7d"), "How long one lasts in any case; then its user logs in again."] = 43200.0
    secret: Annotated[
        bytes | None,
        _SESSION_SECRET,
        "The key of their cookies, the same at all gateways that one console is served by. Default: made of `encryption_key`.",
    ] = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """A provider whose users may use the console: OpenID Connect's code flow, with PKCE. `roles` are pairs of group and role."""

    issuer: Annotated[str, _ISSUER, "Who the provider is; its metadata is at <issuer>/.well-known/openid-configuration."]
    client_id: Annotated[str, Text("text"), "As the provider knows the gateway."]
    client_secret: Annotated[
        str | None, Text("text", addresses.optional_text, secret=True), "The gateway's secret there. Without it: a public client."
    ] = field(default=None, repr=False)
    scopes: Annotated[tuple[str, ...], ListOf(Text("a scope")), "What is asked for beside `openid`."] = ("profile", "groups")
    name_claim: Annotated[str, _CLAIM, "The claim by which the audit table names a user; one that users cannot change."] = (
        "preferred_username"
    )
    groups_claim: Annotated[str, _CLAIM, "The claim with the user's groups."] = "groups"
    roles: Annotated[
        tuple[tuple[str, Role], ...], Named(_GROUP, Choice.of(Role)), "Which role each group has; the highest one counts, and none is none."
    ]


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin listener. Only a loopback listener may do without `token` and `users`; `tls` None means plain HTTP.

    `token` is that of a user `admin` with the role admin. `url` is where browsers reach the listener, None: where they say they do.
    """

    listen: Annotated[Listener, _ADDRESS, "Where health, metrics and the admin API are served."] = _LOOPBACK
    token: Annotated[str | None, Text("text", addresses.admin_token, secret=True), "Bearer token; required off loopback."] = field(
        default=None, repr=False
    )
    tls: Annotated[TlsServer | None, "Serve HTTPS. Without it: plain HTTP."] = None
    users: Annotated[tuple[User, ...], ListOf(SectionOf(User), unique=False), "Who may do what there, and by the commands."] = ()
    url: Annotated[str | None, _ORIGIN, "Where browsers reach this listener, if a proxy with TLS stands before it."] = None
    sessions: Annotated[SessionSettings, "How long browsers stay logged in."] = field(default_factory=SessionSettings)
    oidc: Annotated[OidcSettings | None, "Users of an OpenID Connect provider; needs the `oidc` extra, and `url`."] = None
    second_approval: Annotated[SecondApproval | None, "Which verdicts another user must confirm."] = None

    @property
    def open(self) -> bool:
        """Whether whoever reaches the listener may do everything."""
        return self.token is None and not self.users and self.oidc is None


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
class PostgresSettings:
    """The authority. `timeout` bounds one statement; `allow_unsafe` names what start would otherwise refuse in the
    server.
    """

    dsn: Annotated[str, Text("text", addresses.postgres_dsn, secret=True), "postgresql://user:password@host:5432/db."] = field(repr=False)
    pool_size: Annotated[int, Whole(1, 1000), "Connections of one process."] = 8
    timeout: Annotated[float, Duration("10ms", "1m"), "For one statement, waiting for a connection included."] = 2.0
    prepared_statements: Annotated[bool, "false behind a pooler in transaction mode."] = True
    allow_unsafe: Annotated[
        frozenset[str],
        SetOf(Choice.of(("fsync_off", "synchronous_commit_off", "synchronous_commit_remote_write", "in_recovery"))),
        "Server settings that would otherwise be refused, since they can lose a committed record.",
    ] = frozenset()
    require_standby: Annotated[bool, "true: refuse a server whose commits wait for no synchronous standby."] = False
    batch_by: Annotated[BatchBy, "What the records of one statement share: nothing, their partition, or their Citus shard."] = BatchBy.ANY
    shards: Annotated[int, Whole(2, 100_000), "How many partitions or shards `batch_by` means."] = 32
    clock_skew: Annotated[float, Duration("0s", "500ms"), "By how much clocks of a distributed database's nodes may differ."] = 0.0


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The hot path. Responses over `max_value` bytes are not cached; `replay_ttl` caps how long one is."""

    url: Annotated[
        str,
        Text("text", addresses.redis_url, secret=True),
        "redis://host:6379/0, redis+sentinel://, redis+cluster://; empty: Postgres alone.",
    ] = field(default="", repr=False)
    timeout: Annotated[float, Duration("1ms", "10s"), "For one command; then Postgres answers alone."] = 0.1
    lease: Annotated[float, Duration("100ms", "5m"), "How long a key is marked as running; much shorter than a route's lease."] = 5.0
    replay_ttl: Annotated[float, Duration("1s", "7d"), "How long a completed answer is kept at most."] = 900.0
    max_value: Annotated[int, Size("64MiB"), "Answers with more bytes are not kept in Redis."] = 64 * 1024


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """`delay` is how long a stopping process goes on accepting while it is not ready; `timeout` bounds what follows."""

    delay: Annotated[float, Duration("0s", "10m"), "On SIGTERM: how long to go on accepting while not ready."] = 5.0
    timeout: Annotated[float, Duration("0s", "25h"), "Then: how long running requests may take."] = 75.0


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """How long each step of an exchange may take. `stream_idle` bounds the silence in event streams and tunnels."""

    connect: Annotated[float, Duration("1ms", "5m"), "For a connection: resolving, connecting, TLS."] = 2.0
    first_byte: Annotated[float, Duration("1ms", "1h"), "From the request's end to the response's head."] = 30.0
    read_idle: Annotated[float, Duration("1ms", "1h"), "Between two pieces of a response."] = 30.0
    stream_idle: Annotated[float, Duration("1ms", "7d"), "Silence in event streams and tunnels."] = 3600.0
    total: Annotated[float, Duration("1ms", "24h"), "For the whole exchange."] = 60.0


@dataclass(frozen=True, slots=True)
class UpstreamHealth:
    """A target that failed `failures` times in a row is left alone for `cooldown`; 0 means never. `circuit`: requests
    are refused while no target can be connected to; None means if there are several.
    """

    failures: Annotated[int, Whole(0, 1000), "Failures in a row after which a target is left alone; 0: never."] = 10
    cooldown: Annotated[float, Duration("10ms", "1h"), "How long it is left alone before one request tries it."] = 5.0
    circuit: Annotated[bool | None, "Whether requests are refused while no target can be connected to. Default: with several targets."] = (
        None
    )


@dataclass(frozen=True, slots=True)
class Targets(Form[tuple[str, ...]]):
    """The targets of an upstream, however the file spells them."""

    url: Annotated[
        str | None,
        _TARGET,
        "http(s)://host:port, with a path to stand before every path if need be, or unix:/path. Either this or `targets`.",
    ] = None
    targets: Annotated[
        tuple[str, ...] | None, ListOf(_TARGET, at_least=1), "Several URLs of one API, tried in turn. Either this or `url`."
    ] = None

    def value(self) -> tuple[str, ...]:
        return (self.url,) if self.url else self.targets or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One upstream API. Each of `targets` (one or more, distinct) is scheme, host, optional port and optional path, or
    `unix:/path`, nothing else.

    `max_execution` is how long after its lease lapsed a request may still be running there. `host` is `forward` (the
    Host line as received), `target` (each target's own) or the Host line's literal value. `forwards_overrides`: it
    knows no other path or method than the request line's, so what asks for one goes on. `tls` is None unless the
    targets are `https://`, and may be None then too.
    """

    name: str
    targets: Annotated[tuple[str, ...], Inline(Targets)]
    host: Annotated[str, Text("a host name", addresses.host_line), "The Host line: forward (as received), target (its own) or a name."] = (
        "forward"
    )
    forwards_overrides: Annotated[
        bool,
        Key("overrides"),
        Choice({"refuse": False, "forward": True}),
        "Fields and parameters that ask for another path or method: refuse what could lead around a guarded route, or forward all.",
    ] = False
    tls: Annotated[TlsClient | None, "How https:// targets are spoken to."] = None
    health: Annotated[UpstreamHealth, "When a failing target is left alone."] = field(default_factory=UpstreamHealth)
    timeouts: Annotated[UpstreamTimeouts, "How long each step may take."] = field(default_factory=UpstreamTimeouts)
    max_execution: Annotated[float, Duration("0s", "7d"), "After this the upstream has surely finished or dropped a request."] = 120.0
    keepalive: Annotated[float, Duration("0s", "1h"), "How long an idle connection is kept; less than the upstream keeps it."] = 4.0
    max_connections: Annotated[int, Whole(1, 65535), "Connections of one process to each target."] = 256
    slot_wait: Annotated[float, Duration("0s", "5m"), "How long a request waits while all of them are taken."] = 1.0

    @property
    def servers(self) -> frozenset[tuple[str, str]]:
        """Its servers, each with the path in front. Two upstreams that name one server are one to whoever asks what a request reaches."""
        return frozenset(map(_server, self.targets))

    @property
    def fronts(self) -> tuple[str, ...]:
        """The paths that its targets put in front of every request's, without a closing slash; "" for none."""
        return tuple(dict.fromkeys(_server(target)[1] for target in self.targets))

    @property
    def prefixed(self) -> bool:
        """Whether some target puts a path in front of every request's."""
        return self.fronts != ("",)


def _server(target: str) -> tuple[str, str]:
    if target.startswith("unix:"):
        return target, ""
    url = urlsplit(target)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    return f"{(url.hostname or '').lower()}:{port}", url.path.removesuffix("/")


@dataclass(frozen=True, slots=True)
class EncryptionKeys(Form[tuple[bytes, ...]]):
    """The first of them seals, and each of them opens."""

    encryption_key: Annotated[bytes | None, _ENCRYPTION_KEY, "The secret under which requests and answers are encrypted."] = field(
        default=None, repr=False
    )
    former_encryption_keys: Annotated[
        tuple[bytes, ...],
        ListOf(_ENCRYPTION_KEY, unique=False),
        "Earlier ones, for what was encrypted under them: until its records are resolved.",
    ] = field(default=(), repr=False)
    former_encryption_key_files: Annotated[
        tuple[bytes, ...] | None, ListOf(FromFile(_ENCRYPTION_KEY), at_least=1, unique=False), "Earlier ones, each in a file of its own."
    ] = field(default=None, repr=False)

    def value(self) -> tuple[bytes, ...]:
        keys = (self.encryption_key, *self.former_encryption_keys, *(self.former_encryption_key_files or ()))
        return tuple(dict.fromkeys(key for key in keys if key))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionSettings:
    """What of records is encrypted, under `encryption_key`."""

    answers: Annotated[bool, "Encrypt answers, captured values and targets of new records, in Postgres and Redis alike."] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSettings:
    """The listener for upstreams that take part."""

    listen: Annotated[
        Listener, _ADDRESS, "Where upstreams tell how far they have come, in plain HTTP. The token of the attempt is all it takes."
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
    listen: Annotated[Listener, _ADDRESS, "Where requests are taken."] = _EVERY_INTERFACE
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
