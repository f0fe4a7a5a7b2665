"""Mistakes that only show when several values are seen together. Each check skips what was already reported as broken."""

from collections.abc import Mapping, Sequence

from gateway.config.check_cors import check_cors
from gateway.config.check_edges import check_edges
from gateway.config.check_policy import check_policy, identity
from gateway.config.check_reconcile import check_reconcile
from gateway.config.check_upstreams import check_upstreams
from gateway.config.check_webhook import check_webhooks
from gateway.config.fields import AdminFields, ConfigFields, DrainFields, RouteFields
from gateway.config.kinds import Reader, did_you_mean
from gateway.config.model import UpstreamConfig
from gateway.config.policy_fields import IdempotencyFields
from gateway.config.resolve import ResolvedRoute
from gateway.config.shadow import shadowing
from gateway.config.shapes import Section
from gateway.config.units import format_duration
from gateway.config.upstream_fields import TimeoutFields, UpstreamFields

_IDENTITY = (IdempotencyFields.PRINCIPAL, IdempotencyFields.PRINCIPAL_COMBINE, IdempotencyFields.KEY, IdempotencyFields.SCOPE)


def check(reader: Reader, root: Section, upstreams: Mapping[str, UpstreamConfig], routes: Sequence[ResolvedRoute]) -> None:
    """Report every mistake between sections."""
    _check_admin(reader, root)
    _check_ids(reader, routes)
    _check_upstream_names(reader, root, routes)
    check_upstreams(reader, root)
    check_edges(reader, root, routes)
    check_cors(reader, root, routes)
    _check_shadowing(reader, routes)
    _check_scopes(reader, routes)
    _check_drain(reader, root, upstreams, routes)
    for one in routes:
        if one.idempotency is not None and one.route.policy is not None:
            check_policy(reader, root, one.idempotency, one.route.policy)
    check_reconcile(reader, root, routes)
    check_webhooks(reader, root, routes)


def _check_admin(reader: Reader, root: Section) -> None:
    admin = root.sub(ConfigFields.ADMIN)
    if not admin.sound(AdminFields.LISTEN):
        return
    listen = admin.get(AdminFields.LISTEN)
    if admin.sound(AdminFields.TOKEN) and not listen.loopback and admin.get(AdminFields.TOKEN) is None:
        reader.report(admin.place_of(AdminFields.TOKEN), f"is required, since {listen} can be reached from other machines")
    if root.sound(ConfigFields.LISTEN) and str(root.get(ConfigFields.LISTEN)) == str(listen) and not str(listen).endswith(":0"):
        reader.report(admin.place_of(AdminFields.LISTEN), f"{listen} is the address of `listen` too")


def _check_ids(reader: Reader, routes: Sequence[ResolvedRoute]) -> None:
    seen: dict[str, ResolvedRoute] = {}
    for one in routes:
        if one.section.sound(RouteFields.ID) and (first := seen.setdefault(one.route.id, one)) is not one:
            line = first.section.place_of(RouteFields.ID).line
            reader.report(one.section.place_of(RouteFields.ID), f"duplicate route id `{one.route.id}` (first in line {line})")


def _check_upstream_names(reader: Reader, root: Section, routes: Sequence[ResolvedRoute]) -> None:
    if not root.sound(ConfigFields.UPSTREAMS):
        return
    names = root.get(ConfigFields.UPSTREAMS)
    for one in routes:
        if one.section.sound(RouteFields.UPSTREAM) and one.route.upstream not in names:
            message = f"unknown upstream `{one.route.upstream}`{did_you_mean(one.route.upstream, names)}"
            reader.report(one.section.place_of(RouteFields.UPSTREAM), message)


def _check_shadowing(reader: Reader, routes: Sequence[ResolvedRoute]) -> None:
    readable = [one for one in routes if one.section.sound(RouteFields.HOST, RouteFields.PATH, RouteFields.METHODS)]
    for index, later in enumerate(readable):
        taking = shadowing([one.route for one in readable[:index]], later.route)
        if taking:
            lines = [one.section.place.line for route in taking for one in readable[:index] if one.route is route]
            named = ", ".join(f"`{route.id}` (line {line})" for route, line in zip(taking, lines, strict=True))
            reader.report(later.section.place_of(RouteFields.PATH), f"this route can never match: all of its requests go to {named}")


def _check_scopes(reader: Reader, routes: Sequence[ResolvedRoute]) -> None:
    """Records of one scope must not depend on the route that made them."""
    seen: dict[str, ResolvedRoute] = {}
    for one in routes:
        section, policy = one.idempotency, one.route.policy
        if section is None or policy is None or not section.sound(*_IDENTITY) or not one.section.sound(RouteFields.ID):
            continue
        if section.sub(IdempotencyFields.KEY).broken:
            continue
        first = seen.setdefault(policy.scope, one)
        assert first.route.policy is not None
        if identity(first.route.policy) != identity(policy):
            place = (
                section.place_of(IdempotencyFields.SCOPE)
                if section.given(IdempotencyFields.SCOPE)
                else one.section.place_of(RouteFields.ID)
            )
            reader.report(
                place,
                f"the scope `{policy.scope}` has another principal or other key settings in route `{first.route.id}` "
                f"(line {first.section.place.line}); a scope means one thing",
            )


def _check_drain(reader: Reader, root: Section, upstreams: Mapping[str, UpstreamConfig], routes: Sequence[ResolvedRoute]) -> None:
    drain = root.sub(ConfigFields.DRAIN)
    if not drain.sound(DrainFields.TIMEOUT) or not root.sound(ConfigFields.UPSTREAMS):
        return
    timeout = drain.get(DrainFields.TIMEOUT)
    longest, what = 0.0, ""
    for one in routes:
        upstream = upstreams.get(one.route.upstream)
        if upstream is None or not _total_sound(root, upstream.name):
            continue
        settle, words = 0.0, f"the total timeout of upstream `{upstream.name}`, {format_duration(upstream.total)}"
        if one.route.policy is not None and one.idempotency is not None and one.idempotency.sound(IdempotencyFields.SETTLE_TIMEOUT):
            settle = one.route.policy.settle_timeout
            words += f", and the settle_timeout of route `{one.route.id}`, {format_duration(settle)}"
        if upstream.total + settle > longest:
            longest, what = upstream.total + settle, words
    if timeout < longest:
        message = f"{format_duration(timeout)} is too short for {what}; make it at least {format_duration(longest)}"
        reader.report(drain.place_of(DrainFields.TIMEOUT), message)


def _total_sound(root: Section, name: str) -> bool:
    return root.get(ConfigFields.UPSTREAMS)[name].sub(UpstreamFields.TIMEOUTS).sound(TimeoutFields.TOTAL)
