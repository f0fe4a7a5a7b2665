"""Findings that stop nothing: settings that are valid and that rarely mean what they say."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from gateway.config.edge_warnings import warn_of_edges
from gateway.config.fields import ConfigFields, FingerprintFields, IdempotencyFields, RouteFields
from gateway.config.kinds import did_you_mean
from gateway.config.mistakes import Place
from gateway.config.model import Listener, UnixListener
from gateway.config.resolve import ResolvedRoute
from gateway.config.resolve_edges import targets_of
from gateway.config.shapes import Section
from gateway.config.units import format_duration
from gateway.config.upstream_fields import TimeoutFields, UpstreamFields
from gateway.core.policy import BodyMode, InFlight, Policy

SHORT_RETENTION = 3600.0
SHORT_LEASE = 3.0

METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"}
    | {"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH"}
)
"""Registered methods (IANA HTTP Method Registry) that an API may use: those of HTTP itself, QUERY and WebDAV's."""


def find_warnings(routes: Sequence[ResolvedRoute], root: Section) -> tuple[tuple[Place, str], ...]:
    """Every warning once, also where several routes take it from `defaults`. `root` is the whole file."""
    found = [*_warn_of_upstreams(root), *warn_of_edges(routes, root)]
    for one in routes:
        found += _warn_of_methods(one)
        if one.idempotency is not None and one.route.policy is not None:
            found += _warn(one.idempotency, one.route.policy)
    return tuple(dict.fromkeys(found))


def _warn_of_methods(one: ResolvedRoute) -> Iterator[tuple[Place, str]]:
    for method in sorted(one.route.methods - METHODS):
        yield (
            one.section.place_of(RouteFields.METHODS),
            f"`{method}` is not a registered HTTP method{did_you_mean(method, METHODS)}",
        )


def _warn_of_upstreams(root: Section) -> Iterator[tuple[Place, str]]:
    listen = root.get(ConfigFields.LISTEN)
    sections: Mapping[str, Section] = root.get(ConfigFields.UPSTREAMS) or {}
    for section in sections.values():
        if any(_is_own(target, listen) for target in targets_of(section)):
            place = section.place_of(UpstreamFields.URL if section.given(UpstreamFields.URL) else UpstreamFields.TARGETS)
            yield place, f"is the gateway's own listener, {listen}: requests would go round in a circle"
        timeouts = section.sub(UpstreamFields.TIMEOUTS)
        total, first_byte = timeouts.get(TimeoutFields.TOTAL), timeouts.get(TimeoutFields.FIRST_BYTE)
        if total < first_byte:
            given = TimeoutFields.TOTAL if timeouts.given(TimeoutFields.TOTAL) else TimeoutFields.FIRST_BYTE
            yield (
                timeouts.place_of(given),
                f"total ({format_duration(total)}) is shorter than first_byte ({format_duration(first_byte)}), which then never counts",
            )


def _is_own(url: str, listen: Listener) -> bool:
    """Whether what connects to `url` on this machine surely or very likely reaches `listen`."""
    if isinstance(listen, UnixListener) or url.startswith("unix:"):
        return url == str(listen)
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if port != listen.port:
        return False
    wanted, bound = (parts.hostname or "").lower(), listen.host.lower()
    if wanted == bound:
        return True
    here = {_kind(wanted), _kind(bound)}
    return "other" not in here and (here != {"loopback"} or "localhost" in {wanted, bound})


def _kind(host: str) -> str:
    """`loopback`, `any` (every address of this machine) or `other`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "loopback" if host == "localhost" else "other"
    if address.is_unspecified:
        return "any"
    return "loopback" if address.is_loopback else "other"


def _warn(section: Section, policy: Policy) -> Iterator[tuple[Place, str]]:
    names = IdempotencyFields
    retention = format_duration(policy.retention)
    recovery = policy.max_execution + (policy.wait if policy.in_flight is InFlight.WAIT else 0)
    if policy.retention < recovery:
        parts = "wait + max_execution" if policy.in_flight is InFlight.WAIT else "the upstream's max_execution"
        yield (
            section.place_of(names.RETENTION),
            f"{retention} is shorter than {parts} ({format_duration(recovery)}): a slow retry would execute again",
        )
    elif policy.retention < SHORT_RETENTION:
        yield section.place_of(names.RETENTION), f"{retention} is short: a retry after it executes again; most APIs keep keys for 24h"
    if policy.lease < SHORT_LEASE:
        yield (
            section.place_of(names.LEASE),
            f"{format_duration(policy.lease)} is short: a pause of a third of it can lapse a running attempt",
        )
    if any(name.lower() == "authorization" for name in policy.principal):
        yield (
            section.place_of(names.PRINCIPAL),
            "Authorization is a raw credential: a token refresh is a new scope, see the documentation on principals",
        )
    fingerprint = section.sub(names.FINGERPRINT)
    if policy.fingerprint.ignore and policy.fingerprint.body in {BodyMode.BYTES, BodyMode.NONE}:
        yield fingerprint.place_of(FingerprintFields.IGNORE), f"has no effect with `body: {policy.fingerprint.body}`"
