"""The one table of everything that a configuration file may say. The loader, the JSON Schema and the tests of the examples read it.

The fields of a listener, of its clients, of upstreams and of a route's policy are in `edge_fields`, `upstream_fields` and `policy_fields`;
this is where they come together.
"""

from gateway.config import reconcile_texts, texts
from gateway.config.cors_fields import CORS
from gateway.config.edge_fields import TLS_SERVER, ClientFields, MemoryFields
from gateway.config.kinds import Choice, Duration, Flag, Size, Text, Whole
from gateway.config.model import Listener, Network, TcpListener
from gateway.config.named import files_of
from gateway.config.one_or_many import OneOrMany
from gateway.config.policy_fields import IDEMPOTENCY
from gateway.config.shapes import Field, ListOf, MapOf, Section, Struct
from gateway.config.upstream_fields import UpstreamFields
from gateway.core.fingerprint import VERSION, WRITABLE
from gateway.core.headers import Forwarding
from gateway.core.route_hosts import parse_host

_NAME = Text("a name", texts.name, texts.NAME_PATTERN)


class RouteFields:
    """`routes[]`."""

    ID = Field(
        "id", Text("a route id", texts.route_id, texts.NAME_PATTERN), "The route's name in metrics, logs and records.", required=True
    )
    METHODS = Field(
        "methods",
        ListOf(Text("a method", texts.method, texts.METHOD_PATTERN), at_least=1),
        "HTTP methods. Default: POST and PATCH for a guarded route, any for an unguarded one.",
    )
    HOST = Field(
        "host",
        OneOrMany(Text("a host name", parse_host)),
        "The host, or a list: shop.example, or *.example for all names below it; for any port. Default: any host.",
    )
    PATH = Field(
        "path",
        Text("a path pattern", texts.path_pattern, r"^/"),
        "Literals, {parameters} that fill one segment, and a closing /** for zero or more further segments.",
        required=True,
    )
    UPSTREAM = Field("upstream", _NAME, "A name among `upstreams`.", required=True)
    CORS: Field[Section] = Field("cors", CORS, "Which pages of other origins may read its answers. Default: as the file's `cors`.")
    IDEMPOTENCY: Field[Section] = Field("idempotency", IDEMPOTENCY, "How the route is guarded. Without it requests pass straight through.")


_ENCRYPTION_KEY = Text("text of 32 characters or more", reconcile_texts.encryption_key, secret=True)
_ADDRESS: Text[Listener] = Text("an address such as 127.0.0.1:8080 or unix:/run/gateway.sock", texts.listener)


class AdminFields:
    """`admin`."""

    LISTEN = Field("listen", _ADDRESS, "Where health, metrics and the admin API are served.", TcpListener("127.0.0.1", 9464))
    TOKEN = Field("token", Text("text", texts.admin_token, secret=True), "Bearer token; required off loopback.", twin=True)
    TLS: Field[Section] = Field("tls", TLS_SERVER, "Serve HTTPS. Without it: plain HTTP.")


class PostgresFields:
    """`postgres`."""

    DSN = Field("dsn", Text("text", texts.postgres_dsn, secret=True), "postgresql://user:password@host:5432/db.", required=True, twin=True)
    POOL_SIZE = Field("pool_size", Whole(1, 1000), "Connections of one process.", 8)
    TIMEOUT = Field("timeout", Duration("10ms", "1m"), "For one statement, waiting for a connection included.", 2.0)
    PREPARED_STATEMENTS = Field("prepared_statements", Flag(), "false behind a pooler in transaction mode.", default=True)
    ALLOW_UNSAFE = Field(
        "allow_unsafe",
        ListOf(Choice({word: word for word in ("fsync_off", "synchronous_commit_off", "in_recovery")})),
        "Server settings that would otherwise be refused, since they can lose a committed record.",
        (),
    )


class RedisFields:
    """`redis`."""

    URL = Field("url", Text("text", texts.redis_url, secret=True), "redis://host:6379/0; empty: Postgres alone.", twin=True)
    TIMEOUT = Field("timeout", Duration("1ms", "10s"), "For one command; then Postgres answers alone.", 0.1)
    LEASE = Field("lease", Duration("100ms", "5m"), "How long a key is marked as running; much shorter than a route's lease.", 5.0)
    REPLAY_TTL = Field("replay_ttl", Duration("1s", "7d"), "How long a completed answer is kept at most.", 900.0)
    MAX_VALUE = Field("max_value", Size("64MiB"), "Answers with more bytes are not kept in Redis.", 64 * 1024)


class DrainFields:
    """`drain`."""

    DELAY = Field("delay", Duration("0s", "10m"), "On SIGTERM: how long to go on accepting while not ready.", 5.0)
    TIMEOUT = Field("timeout", Duration("0s", "25h"), "Then: how long running requests may take.", 75.0)


class ConfigFields:
    """The file itself."""

    NAME = Field(
        "name",
        Text("a name", texts.pseudonym, texts.PSEUDONYM_PATTERN),
        "This gateway's name in Via and Proxy-Status; gateways in a chain need different ones.",
        "idempotency-gateway",
    )
    LISTEN = Field("listen", _ADDRESS, "Where requests are taken.", TcpListener("0.0.0.0", 8080))  # noqa: S104 - a proxy serves every interface
    TLS: Field[Section] = Field("tls", TLS_SERVER, "Serve HTTPS. Without it: plain HTTP.")
    WEBHOOK_LISTEN = Field(
        "webhook_listen",
        Text("an address such as 127.0.0.1:8081 or unix:/run/webhooks.sock", texts.optional_listener),
        "Where webhooks are taken, in plain HTTP. Empty: on `listen`.",
    )
    ADMIN: Field[Section] = Field("admin", Struct.of(AdminFields), "The second listener: health, metrics, admin API.")
    WORKERS = Field("workers", Whole(1, 256), "Processes.", 1)
    TRUSTED_PROXIES: Field[tuple[Network, ...]] = Field(
        "trusted_proxies", ListOf(Text("a network", texts.network)), "Networks whose forwarded headers are believed.", ()
    )
    FORWARDED = Field(
        "forwarded",
        Choice({word.value: word for word in Forwarding}),
        "Which fields tell upstreams about the client: X-Forwarded-*, Forwarded (RFC 7239), both or none.",
        Forwarding.X_FORWARDED,
    )
    PROXY_STATUS = Field("proxy_status", Flag(), "Add Proxy-Status (RFC 9209) to answers; it tells clients what is behind.", default=False)
    CORS: Field[Section] = Field("cors", CORS, "Which pages of other origins may read the gateway's own answers, and replays.")
    CLIENT: Field[Section] = Field("client", Struct.of(ClientFields), "What a client connection may take: time and size.")
    MEMORY: Field[Section] = Field("memory", Struct.of(MemoryFields), "Where bodies are while they pass.")
    POSTGRES: Field[Section] = Field("postgres", Struct.of(PostgresFields), "The authority for every record.", required=True)
    REDIS: Field[Section] = Field("redis", Struct.of(RedisFields), "The hot path.")
    DIGEST_SECRET = Field(
        "digest_secret",
        Text("text of 16 characters or more", texts.digest_secret, secret=True),
        "The secret under which credentials and fingerprints are digested. Must never change while records live.",
        twin=True,
    )
    FINGERPRINT_VERSION = Field(
        "fingerprint_version",
        Whole(min(WRITABLE), max(WRITABLE)),
        "The version of the fingerprints of new records. 2 while gateways of a release before version 3 share the database.",
        VERSION,
    )
    ENCRYPTION_KEY = Field(
        "encryption_key", _ENCRYPTION_KEY, "The secret under which stored requests are encrypted (`probe: resend`).", twin=True
    )
    FORMER_ENCRYPTION_KEYS = Field(
        "former_encryption_keys",
        ListOf(_ENCRYPTION_KEY, unique=False),
        "Earlier ones, for what was encrypted under them: until its records are resolved.",
        (),
    )
    FORMER_ENCRYPTION_KEY_FILES = Field(
        "former_encryption_key_files", files_of(_ENCRYPTION_KEY), "Earlier ones, each in a file of its own."
    )
    PROBLEM_BASE = Field(
        "problem_base",
        Text("an absolute URI", texts.problem_base),
        "The start of the `type` of every problem document.",
        "urn:idempotency-gateway:problem:",
    )
    ACCESS_LOG = Field("access_log", Flag(), "One JSON line for each request.", default=True)
    DRAIN: Field[Section] = Field("drain", Struct.of(DrainFields), "How a process stops.")
    UPSTREAMS = Field("upstreams", MapOf(_NAME, Struct.of(UpstreamFields)), "The APIs behind the gateway, by name.", required=True)
    DEFAULTS: Field[Section] = Field("defaults", IDEMPOTENCY, "Fields of `idempotency` for routes that do not say otherwise.")
    ROUTES = Field(
        "routes",
        ListOf(Struct.of(RouteFields), at_least=1, unique=False, keep=True),
        "The route map; the first match counts.",
        required=True,
    )


CONFIG = Struct.of(ConfigFields)
