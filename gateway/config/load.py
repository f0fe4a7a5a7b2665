"""The way from a file to a `Config`. Nothing else reads YAML or the environment."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gateway.config.addresses import Listener
from gateway.config.certificates import digest_files
from gateway.config.checks import ResolvedRoute, find_mistakes, find_warnings
from gateway.config.dialect_files import DialectFile, dialect_of, read_dialects
from gateway.config.mistakes import ConfigErrors, Mistake, Place, in_order
from gateway.config.model import Config
from gateway.config.names import ADMIN, CONFIG, ROUTE, ROUTE_MAP
from gateway.config.reader import Reader
from gateway.config.section import Section, value_of
from gateway.config.settings.admin import Admin
from gateway.config.settings.tls import TlsClient, TlsServer
from gateway.config.settings.upstreams import UpstreamConfig
from gateway.config.source import MapNode, Node, Unreadable, read_tree
from gateway.core.dialect_model import Dialect
from gateway.core.kinds import SectionOf
from gateway.core.policy import Policy, Route
from gateway.core.principal_source import JwksFile, JwtPrincipal, PrincipalSource
from gateway.core.reconcile.request import names_principal

T = TypeVar("T", TlsServer | None, TlsClient | None)

GUARDED_METHODS = frozenset({"POST", "PATCH"})


def load(path: Path, env: Mapping[str, str]) -> Config:
    """Read a configuration file with the variables of `env`, and the files that it names. Relative paths start at the
    file's folder.

    Raises `ConfigErrors` with every mistake that can be told at once, and nothing else.
    """
    file, root = str(path), _tree(path)
    reader = Reader(env, path.parent, included={os.path.realpath(path): Place(1, 1)})
    found = reader.read(SectionOf(Config), root, Place(root.line, root.column))
    config = None if found is None else _resolve(reader, file, found.value)
    if config is None or reader.mistakes:
        raise ConfigErrors(in_order(file, reader.mistakes))
    return config


def load_admin(path: Path, env: Mapping[str, str]) -> tuple[Listener, bool]:
    """The admin listener of a file, and whether it speaks TLS. Raises `ConfigErrors`.

    `health` asks a gateway that runs: a mistake elsewhere in a file that was changed since must not make it look ill.
    """
    root, reader = _tree(path), Reader(env, path.parent)
    entries = root.entries if isinstance(root, MapNode) else ()
    entry = next((entry for entry in entries if entry.key == "admin"), None)
    found = None if entry is None else reader.read(SectionOf(Admin), entry.value, Place(entry.line, entry.column))
    if reader.mistakes:
        raise ConfigErrors(in_order(str(path), reader.mistakes))
    admin = Section(Admin, Place(1, 1)) if found is None else found.value
    return admin.get(ADMIN.listen), admin.has(ADMIN.tls)


def _tree(path: Path) -> Node:
    try:
        return read_tree(path)
    except Unreadable as error:
        raise ConfigErrors((Mistake(str(path), error.place, error.message),)) from None


def _resolve(reader: Reader, file: str, root: Section) -> Config | None:
    upstreams = {name: section.make(UpstreamConfig, name=name) for name, section in root.by_name(CONFIG.upstreams).items()}
    dialects = read_dialects(reader, root)
    routes = tuple(_route(section, root, upstreams, dialects) for section in root.each(ROUTE_MAP.routes))
    reader.mistakes.extend(find_mistakes(root, upstreams, routes))
    if reader.mistakes:
        return None
    warnings = tuple(Mistake(place.file or file, place, message) for place, message in find_warnings(routes, root, upstreams))
    config = root.make(
        Config,
        upstreams={name: replace(one, tls=_tls_stamped(one.tls)) for name, one in upstreams.items()},
        routes=tuple(_stamped(one.route) for one in routes),
        warnings=warnings,
    )
    return replace(
        config,
        tls=_tls_stamped(config.tls),
        admin=replace(config.admin, tls=_tls_stamped(config.admin.tls)),
        cors=config.cors if config.cors and config.cors.origins else None,
        redis=config.redis if config.redis and config.redis.url else None,
    )


def _route(section: Section, root: Section, upstreams: Mapping[str, UpstreamConfig], dialects: Mapping[str, DialectFile]) -> ResolvedRoute:
    guarded = section.given(ROUTE.policy)
    idempotency = section.sub(ROUTE.policy).over(root.sub(ROUTE_MAP.defaults)) if guarded else None
    cors = value_of(section.sub(ROUTE.cors).over(root.sub(CONFIG.cors)))
    route = section.make(Route, policy=None, cors=cors if cors.origins else None)
    route = replace(route, methods=route.methods or (GUARDED_METHODS if guarded else frozenset()), hosts=tuple(dict.fromkeys(route.hosts)))
    if idempotency is None:
        return ResolvedRoute(route, section, None)
    dialect = dialects.get(dialect_of(idempotency))
    if dialect is not None:
        idempotency = replace(idempotency, under=dialect.idempotency)
    upstream = upstreams.get(route.upstream)
    known = {} if upstream is None else {"max_execution": upstream.max_execution}
    policy = idempotency.make(Policy, dialect=dialect.dialect if dialect else Dialect(), **known)
    keeps_principal = names_principal(policy.reconcile, policy.webhook)
    policy = replace(policy, scope=policy.scope or route.id, keeps_principal=keeps_principal)
    return ResolvedRoute(replace(route, policy=policy), section, idempotency)


def _stamped(route: Route) -> Route:
    """The route with digests of the files of keys that its policy names."""
    if route.policy is None:
        return route
    return replace(route, policy=replace(route.policy, principal=tuple(map(_source_stamped, route.policy.principal))))


def _source_stamped(source: PrincipalSource) -> PrincipalSource:
    if isinstance(source, JwtPrincipal) and isinstance(source.keys, JwksFile):
        return replace(source, keys=replace(source.keys, stamp=digest_files(source.keys.path)))
    return source


def _tls_stamped(tls: T) -> T:
    """The same with the file of its key, and a digest of its files."""
    if tls is None:
        return None
    key_file = tls.key_file or tls.cert_file
    authorities = tls.client_ca_file if isinstance(tls, TlsServer) else tls.ca_file
    return replace(tls, key_file=key_file, stamp=digest_files(tls.cert_file, key_file, authorities))
