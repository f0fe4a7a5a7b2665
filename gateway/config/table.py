"""The resolved routes as people read them, and the settings around them, each as the file would say it."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from gateway.config import words
from gateway.config.dialect_files import builtin_dialect
from gateway.config.model import Config
from gateway.config.settings.tls import TlsClient, TlsServer
from gateway.core.dialect_model import Dialect
from gateway.core.key_policy import KeyPlace
from gateway.core.policy import InFlight, Policy, Route
from gateway.core.reconcile.policy import Cancel, Lookup, Manual, Reconcile, Webhook
from gateway.core.redaction import redact_text
from gateway.core.setting import Setting, declared
from gateway.core.units import format_duration
from gateway.dialects import names

Rows: TypeAlias = Iterator[tuple[str, str]]

_HEADINGS = ("ROUTE", "METHODS", "PATH", "UPSTREAM", "MODE", "SCOPE", "PRINCIPAL", "KEY", "IN FLIGHT", "LEASE", "RETENTION", "STORE OUTAGE")
_IN_COLUMNS = frozenset({"scope", "principal", "mode", "in_flight", "wait", "lease", "retention", "on_store_outage", "combine"})
_IN_COLUMNS_OF_KEY = frozenset({"place", "required"})
_SAID_WHOLE = (TlsServer, TlsClient)
"""Sections of which the defaults are shown, too: what of TLS is spoken is worth a line."""


def route_table(routes: Sequence[Route]) -> str:
    """One line a route, in matching order, under a line of headings. An unguarded route has dashes where its policy
    would be.
    """
    return _align([_HEADINGS, *(_row(route) for route in routes)])


def settings_table(config: Config) -> str:
    """What is not by default and not in the table of routes: one line a setting, by its path, under a line of headings.
    No secret is shown.

    Empty if all is as by default. A route's settings stand under its id, whether the route, `defaults` or its dialect
    has them.
    """
    rows = list(_changed("", config, skip=frozenset({"upstreams", "routes"})))
    for route in config.routes:
        if route.policy is not None:
            rows += _policy(f"routes.{route.id}.", route.policy)
        if route.request_headers is not None:
            rows += _changed(f"routes.{route.id}.request_headers.", route.request_headers)
        if route.answer_headers is not None:
            rows += _changed(f"routes.{route.id}.answer_headers.", route.answer_headers)
        if route.cors != config.cors and route.cors is not None:
            rows += _changed(f"routes.{route.id}.cors.", route.cors)
    for upstream in config.upstreams.values():
        if len(upstream.targets) > 1:
            rows.append((f"upstreams.{upstream.name}.targets", " ".join(upstream.targets)))
        rows += _changed(f"upstreams.{upstream.name}.", upstream, skip=frozenset({"targets"}))
    return _align([("SETTING", "VALUE"), *rows]) if rows else ""


def dialect_table() -> str:
    """The dialects that come with the gateway: one line each, its name and what it says of itself, under a line of
    headings.
    """
    return _align([("DIALECT", "ABOUT"), *((name, builtin_dialect(name).about) for name in names())])


def _changed(path: str, owner: Any, skip: frozenset[str] = frozenset()) -> Rows:
    fields = {field.name: field for field in dataclasses.fields(owner)}
    for one in declared(type(owner)):
        field, value = fields[one.attribute], getattr(owner, one.attribute)
        said = isinstance(owner, _SAID_WHOLE) or value != _default(field)
        if said and value is not None and field.repr and one.attribute not in skip:
            yield from _rows(f"{path}{one.name}", one, value)


def _default(field: "dataclasses.Field[Any]") -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _rows(path: str, one: Setting, value: Any) -> Rows:
    match value:
        case Reconcile():
            yield from _reconcile(path, value)
        case Webhook():
            yield from _webhook(path, value)
        case _ if isinstance(value, KeyPlace):
            yield path, words.place(value)
        case _ if declared(type(value)):
            yield from _changed(f"{path}.", value)
        case _:
            yield path, _shown(one, value)


def _shown(one: Setting, value: object) -> str:
    written = one.write(value)
    if isinstance(written, bool):
        return str(written).lower()
    if isinstance(written, dict):
        return ", ".join(f"{name}: {item}" for name, item in written.items())
    return redact_text((" ".join(map(str, written)) if isinstance(written, list) else str(written)) or "none")


def _policy(path: str, policy: Policy) -> Rows:
    if policy.dialect.name != Dialect().name:
        yield f"{path}dialect", policy.dialect.name
    yield from _changed(f"{path}key.", policy.key, _IN_COLUMNS_OF_KEY)
    for hint in policy.hints:
        yield f"{path}hints", words.hint(hint)
    yield from _changed(path, policy, _IN_COLUMNS | {"dialect", "key", "hints"})


def _reconcile(path: str, reconcile: Reconcile) -> Rows:
    """Header fields are named, without their values."""
    probe = reconcile.probe
    if not isinstance(probe, Manual):
        yield f"{path}.probe", words.probe(probe)
    for rule in probe.rules if isinstance(probe, Lookup | Cancel) else ():
        yield f"{path}.rules", words.rule(rule)
    for name, pointer in reconcile.capture:
        yield f"{path}.capture.{name}", pointer
    yield from _changed(f"{path}.", reconcile.pace)


def _webhook(path: str, webhook: Webhook) -> Rows:
    yield path, f"POST {webhook.path}, signed {words.signature(webhook.signature)}, event id {webhook.event_id}"
    yield f"{path}.find", f"{webhook.find} as {webhook.by}"
    for rule in webhook.rules:
        yield f"{path}.rules", words.rule(rule)
    yield from _changed(f"{path}.", webhook, frozenset({"path", "signature", "event_id", "find", "by", "rules"}))


def _align(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _path(route: Route) -> str:
    return route.path if route.rewrite is None else f"{route.path} ({route.rewrite.prefix} -> {route.rewrite.to})"


def _row(route: Route) -> tuple[str, ...]:
    first = (route.id, ",".join(sorted(route.methods)) or "any", ",".join(route.hosts) + _path(route), route.upstream)
    policy = route.policy
    if policy is None:
        return first + ("-",) * (len(_HEADINGS) - len(first))
    in_flight = f"wait {format_duration(policy.wait)}" if policy.in_flight is InFlight.WAIT else policy.in_flight.value
    return (
        *first,
        policy.mode.value,
        policy.scope,
        words.principal(policy),
        words.key(policy),
        in_flight,
        format_duration(policy.lease),
        format_duration(policy.retention),
        policy.on_store_outage.value,
    )
