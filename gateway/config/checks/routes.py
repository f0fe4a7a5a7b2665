"""Routes: mistakes between them and with what they lean on elsewhere, and what is rarely meant."""

from collections.abc import Mapping, Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.checks.policy import identity
from gateway.config.checks.upstreams import unknown_upstream
from gateway.config.names import CONFIG, DRAIN, POLICY, ROUTE, TIMEOUTS, UPSTREAM
from gateway.config.section import Section
from gateway.config.settings.upstreams import UpstreamConfig
from gateway.core.kinds import did_you_mean
from gateway.core.policy import Policy
from gateway.core.units import format_duration

METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"}
    | {"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH"}
)
"""Registered methods (IANA HTTP Method Registry) that an API may use: those of HTTP itself, QUERY and WebDAV's."""


def check_routes(root: Section, upstreams: Mapping[str, UpstreamConfig], routes: Sequence[ResolvedRoute]) -> Findings:
    yield from _check_ids(routes)
    for one in routes:
        if one.section.sound(ROUTE.upstream) and (unknown := unknown_upstream(one.route.upstream, root)):
            yield one.section.place_of(ROUTE.upstream), unknown
    yield from _check_scopes(routes)
    yield from _check_drain(root, upstreams, routes)


def _check_ids(routes: Sequence[ResolvedRoute]) -> Findings:
    seen: dict[str, ResolvedRoute] = {}
    for one in routes:
        if one.section.sound(ROUTE.id) and (first := seen.setdefault(one.route.id, one)) is not one:
            place = one.section.place_of(ROUTE.id)
            yield place, f"duplicate route id `{one.route.id}` (first in {first.section.place_of(ROUTE.id).told(place)})"


def _check_scopes(routes: Sequence[ResolvedRoute]) -> Findings:
    """Records of one scope must not depend on the route that made them."""
    seen: dict[str, tuple[ResolvedRoute, Policy]] = {}
    for one in routes:
        if one.guard is None or not one.section.sound(ROUTE.id):
            continue
        section, policy = one.guard
        sound = section.sound(POLICY.principal, POLICY.combine, POLICY.key, POLICY.scope) and not section.sub(POLICY.key).broken
        first, other = seen.setdefault(policy.scope, (one, policy)) if sound else (one, policy)
        if identity(other) != identity(policy):
            place = section.place_of(POLICY.scope) if section.given(POLICY.scope) else one.section.place_of(ROUTE.id)
            words = f"the scope `{policy.scope}` has another principal or other key settings in route `{first.route.id}`"
            yield place, f"{words} ({first.section.place.told(place)}); a scope means one thing"


def _check_drain(root: Section, upstreams: Mapping[str, UpstreamConfig], routes: Sequence[ResolvedRoute]) -> Findings:
    drain, sections = root.sub(CONFIG.drain), root.by_name(CONFIG.upstreams)
    longest, what = 0.0, ""
    for one in routes:
        upstream = upstreams.get(one.route.upstream)
        if upstream is None or not sections[upstream.name].sub(UPSTREAM.timeouts).sound(TIMEOUTS.total):
            continue
        takes, words = upstream.timeouts.total, f"the total timeout of upstream `{upstream.name}`"
        words += f", {format_duration(takes)}"
        if one.guard is not None and one.guard[0].sound(POLICY.settle_timeout):
            settle = one.guard[1].settle_timeout
            takes, words = takes + settle, f"{words}, and the settle_timeout of route `{one.route.id}`, {format_duration(settle)}"
        if takes > longest:
            longest, what = takes, words
    timeout = drain.get(DRAIN.timeout)
    if timeout < longest and drain.sound(DRAIN.timeout) and root.sound(CONFIG.upstreams):
        words = f"{format_duration(timeout)} is too short for {what}; make it at least {format_duration(longest)}"
        yield drain.place_of(DRAIN.timeout), words


def warn_of_routes(routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        for method in sorted(one.route.methods - METHODS):
            words = f"`{method}` is not a registered HTTP method{did_you_mean(method, METHODS)}"
            yield one.section.place_of(ROUTE.methods), words
