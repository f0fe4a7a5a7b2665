"""From the sections of a file to the values of the model. Nothing here judges: `checks` and `warnings` do."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.config.cors_fields import resolve_cors
from gateway.config.dialect_files import DialectFile
from gateway.config.fields import (
    AdminFields,
    ConfigFields,
    DrainFields,
    PostgresFields,
    RedisFields,
    RouteFields,
)
from gateway.config.mistakes import Mistake
from gateway.config.model import Admin, Config, DrainSettings, PostgresSettings, RedisSettings, UpstreamConfig
from gateway.config.policy_fields import IdempotencyFields
from gateway.config.resolve_edges import resolve_client, resolve_memory, resolve_tls
from gateway.config.resolve_policy import resolve_policy
from gateway.config.shapes import Section
from gateway.config.upstream_fields import UpstreamFields
from gateway.core.policy import Dialect, Route

GUARDED_METHODS = ("POST", "PATCH")


@dataclass(frozen=True, slots=True)
class ResolvedRoute:
    """A route, where it was written, and its policy section with `defaults` and the dialect filled in (None: unguarded).

    Fields whose mistakes were reported hold their defaults in `route`; ask the sections whether a field is sound.
    """

    route: Route
    section: Section
    idempotency: Section | None


def resolve_routes(
    root: Section, upstreams: Mapping[str, UpstreamConfig], dialects: Mapping[str, DialectFile]
) -> tuple[ResolvedRoute, ...]:
    """`dialects` holds the files that are named and could be read, by what names them."""
    defaults = root.sub(ConfigFields.DEFAULTS)
    cors = root.sub(ConfigFields.CORS)
    return tuple(_resolve_route(section, defaults, cors, upstreams, dialects) for section in root.get(ConfigFields.ROUTES) or ())


def _resolve_route(
    section: Section, defaults: Section, cors: Section, upstreams: Mapping[str, UpstreamConfig], dialects: Mapping[str, DialectFile]
) -> ResolvedRoute:
    guarded = section.given(RouteFields.IDEMPOTENCY)
    idempotency = section.sub(RouteFields.IDEMPOTENCY).over(defaults) if guarded else None
    dialect = dialects.get(idempotency.get(IdempotencyFields.DIALECT)) if idempotency is not None else None
    if idempotency is not None and dialect is not None:
        idempotency = replace(idempotency, under=dialect.idempotency)
    upstream = upstreams.get(section.get(RouteFields.UPSTREAM))
    max_execution = UpstreamFields.MAX_EXECUTION.default if upstream is None else upstream.max_execution
    assert max_execution is not None
    route_id = section.get(RouteFields.ID)
    methods = section.get(RouteFields.METHODS)
    return ResolvedRoute(
        Route(
            id=route_id,
            path=section.get(RouteFields.PATH),
            upstream=section.get(RouteFields.UPSTREAM),
            methods=frozenset(methods or (GUARDED_METHODS if guarded else ())),
            policy=None
            if idempotency is None
            else resolve_policy(idempotency, dialect.dialect if dialect else Dialect(), route_id, max_execution),
            hosts=_hosts(section),
            cors=resolve_cors(section.sub(RouteFields.CORS).over(cors)),
        ),
        section,
        idempotency,
    )


def _hosts(section: Section) -> tuple[str, ...]:
    hosts = section.get(RouteFields.HOST)
    return tuple(dict.fromkeys(hosts or ()))


def resolve_config(
    root: Section, upstreams: Mapping[str, UpstreamConfig], routes: tuple[Route, ...], warnings: tuple[Mistake, ...]
) -> Config:
    """The whole, for a root section without any mistake."""
    admin, postgres, drain = root.sub(ConfigFields.ADMIN), root.sub(ConfigFields.POSTGRES), root.sub(ConfigFields.DRAIN)
    dsn, allow_unsafe = postgres.get(PostgresFields.DSN), postgres.get(PostgresFields.ALLOW_UNSAFE)
    assert dsn is not None
    return Config(
        name=root.get(ConfigFields.NAME),
        listen=root.get(ConfigFields.LISTEN),
        tls=resolve_tls(root, ConfigFields.TLS),
        admin=Admin(admin.get(AdminFields.LISTEN), admin.get(AdminFields.TOKEN), resolve_tls(admin, AdminFields.TLS)),
        workers=root.get(ConfigFields.WORKERS),
        trusted_proxies=root.get(ConfigFields.TRUSTED_PROXIES),
        forwarded=root.get(ConfigFields.FORWARDED),
        proxy_status=root.get(ConfigFields.PROXY_STATUS),
        cors=resolve_cors(root.sub(ConfigFields.CORS)),
        client=resolve_client(root.sub(ConfigFields.CLIENT)),
        memory=resolve_memory(root.sub(ConfigFields.MEMORY)),
        postgres=PostgresSettings(
            dsn=dsn,
            pool_size=postgres.get(PostgresFields.POOL_SIZE),
            timeout=postgres.get(PostgresFields.TIMEOUT),
            prepared_statements=postgres.get(PostgresFields.PREPARED_STATEMENTS),
            allow_unsafe=frozenset(allow_unsafe),
        ),
        redis=_redis(root.sub(ConfigFields.REDIS)),
        digest_secret=root.get(ConfigFields.DIGEST_SECRET),
        problem_base=root.get(ConfigFields.PROBLEM_BASE),
        access_log=root.get(ConfigFields.ACCESS_LOG),
        drain=DrainSettings(drain.get(DrainFields.DELAY), drain.get(DrainFields.TIMEOUT)),
        upstreams=upstreams,
        routes=routes,
        warnings=warnings,
        webhook_listen=root.get(ConfigFields.WEBHOOK_LISTEN),
        encryption_keys=_encryption_keys(root),
        fingerprint_version=root.get(ConfigFields.FINGERPRINT_VERSION),
    )


def _encryption_keys(root: Section) -> tuple[bytes, ...]:
    former = root.get(ConfigFields.FORMER_ENCRYPTION_KEYS), root.get(ConfigFields.FORMER_ENCRYPTION_KEY_FILES)
    keys = (root.get(ConfigFields.ENCRYPTION_KEY), *former[0], *(former[1] or ()))
    return tuple(dict.fromkeys(key for key in keys if key))


def _redis(section: Section) -> RedisSettings | None:
    url = section.get(RedisFields.URL)
    if url is None:
        return None
    return RedisSettings(
        url=url,
        timeout=section.get(RedisFields.TIMEOUT),
        lease=section.get(RedisFields.LEASE),
        replay_ttl=section.get(RedisFields.REPLAY_TTL),
        max_value=section.get(RedisFields.MAX_VALUE),
    )
