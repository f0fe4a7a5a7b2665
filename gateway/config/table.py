"""The resolved routes as people read them, and the settings around them."""

from collections.abc import Iterator, Sequence
from typing import Any

from gateway.config.dialect_files import builtin_dialect
from gateway.config.edge_fields import ClientFields, MemoryFields, TlsServerFields
from gateway.config.fields import ConfigFields
from gateway.config.model import Config, UpstreamConfig
from gateway.config.policy_table import key_words, policy_lines, principal_words, shown
from gateway.config.shapes import Field, Struct
from gateway.config.units import format_duration
from gateway.config.upstream_fields import HealthFields, TimeoutFields, TlsClientFields, UpstreamFields
from gateway.core.policy import InFlight, Route
from gateway.dialects import names

_HEADINGS = ("ROUTE", "METHODS", "PATH", "UPSTREAM", "MODE", "SCOPE", "PRINCIPAL", "KEY", "IN FLIGHT", "LEASE", "RETENTION", "STORE OUTAGE")


def route_table(routes: Sequence[Route]) -> str:
    """One line a route, in matching order, under a line of headings. An unguarded route has dashes where its policy would be."""
    return _align([_HEADINGS, *(_row(route) for route in routes)])


def settings_table(config: Config) -> str:
    """What is not by default and not in the table of routes: one line a setting, by its path, under a line of headings.

    Empty if all is as by default. A route's settings stand under its id, whether the route, `defaults` or its dialect has them.
    """
    rows = list(_edges(config))
    for route in config.routes:
        if route.policy is not None:
            rows += [(f"routes.{route.id}.{path}", value) for path, value in policy_lines(route.policy)]
    for upstream in config.upstreams.values():
        rows += _upstream(f"upstreams.{upstream.name}", upstream)
    return _align([("SETTING", "VALUE"), *rows]) if rows else ""


def dialect_table() -> str:
    """The dialects that come with the gateway: one line each, its name and what it says of itself, under a line of headings."""
    return _align([("DIALECT", "ABOUT"), *((name, builtin_dialect(name).about) for name in names())])


def _edges(config: Config) -> Iterator[tuple[str, str]]:
    names = ConfigFields
    yield from _changed("", config, names.NAME, names.WEBHOOK_LISTEN, names.TRUSTED_PROXIES, names.FORWARDED, names.PROXY_STATUS)
    yield from _changed("", config, names.FINGERPRINT_VERSION)
    for path, tls in (("tls", config.tls), ("admin.tls", config.admin.tls)):
        if tls is not None:
            yield from _given(path, tls, TlsServerFields)
    yield from _changed("client", config.client, *Struct.of(ClientFields).table)
    yield from _changed("memory", config.memory, *Struct.of(MemoryFields).table)


def _upstream(path: str, upstream: UpstreamConfig) -> Iterator[tuple[str, str]]:
    names = UpstreamFields
    if len(upstream.targets) > 1:
        yield f"{path}.targets", " ".join(upstream.targets)
    yield from _changed(path, upstream, names.HOST)
    if upstream.tls is not None:
        yield from _given(f"{path}.tls", upstream.tls, TlsClientFields)
    yield from _changed(f"{path}.health", upstream, *Struct.of(HealthFields).table)
    yield from _changed(f"{path}.timeouts", upstream, *Struct.of(TimeoutFields).table)
    yield from _changed(path, upstream, names.MAX_EXECUTION, names.KEEPALIVE, names.MAX_CONNECTIONS, names.SLOT_WAIT)


def _changed(path: str, owner: object, *fields: Field[Any]) -> Iterator[tuple[str, str]]:
    """The fields whose value, the owner's attribute of the same name, is not the default."""
    for field in fields:
        value = getattr(owner, field.name)
        if value != field.default:
            yield f"{path}.{field.name}".lstrip("."), shown(field, value)


def _given(path: str, owner: object, namespace: type) -> Iterator[tuple[str, str]]:
    for field in Struct.of(namespace).table:
        value = getattr(owner, field.name)
        if value is not None:
            yield f"{path}.{field.name}", shown(field, value)


def _align(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _row(route: Route) -> tuple[str, ...]:
    first = (route.id, ",".join(sorted(route.methods)) or "any", ",".join(route.hosts) + route.path, route.upstream)
    policy = route.policy
    if policy is None:
        return first + ("-",) * (len(_HEADINGS) - len(first))
    in_flight = f"wait {format_duration(policy.wait)}" if policy.in_flight is InFlight.WAIT else policy.in_flight.value
    return (
        *first,
        policy.mode.value,
        policy.scope,
        principal_words(policy),
        key_words(policy),
        in_flight,
        format_duration(policy.lease),
        format_duration(policy.retention),
        policy.on_store_outage.value,
    )
