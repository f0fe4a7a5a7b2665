"""Findings that stop nothing: settings that are valid and that rarely mean what they say."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from gateway.config.check_cors import warn_of_cors
from gateway.config.edge_warnings import warn_of_edges
from gateway.config.fields import ConfigFields, RouteFields
from gateway.config.guard_warnings import warn_of_guards
from gateway.config.kinds import did_you_mean
from gateway.config.mistakes import Place
from gateway.config.model import Listener, UnixListener
from gateway.config.policy_warnings import warn_of_policies
from gateway.config.reconcile_warnings import warn_of_reconciliation
from gateway.config.resolve import ResolvedRoute
from gateway.config.resolve_edges import targets_of
from gateway.config.shapes import Section
from gateway.config.units import format_duration
from gateway.config.upstream_fields import TimeoutFields, UpstreamFields

METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"}
    | {"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH"}
)
"""Registered methods (IANA HTTP Method Registry) that an API may use: those of HTTP itself, QUERY and WebDAV's."""


def find_warnings(routes: Sequence[ResolvedRoute], root: Section) -> tuple[tuple[Place, str], ...]:
    """Every warning once, also where several routes take it from `defaults`. `root` is the whole file."""
    found = [*_warn_of_upstreams(root), *warn_of_edges(routes, root), *warn_of_cors(root, routes)]
    for one in routes:
        found += _warn_of_methods(one)
    found += warn_of_guards(routes)
    found += warn_of_policies(routes)
    found += warn_of_reconciliation(routes, root)
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
