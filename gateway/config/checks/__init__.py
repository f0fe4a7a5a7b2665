"""What only shows when several values are seen together, by subject: mistakes, and findings that stop nothing, which
rarely mean what they say. Each check skips what was already reported as broken.
"""

from collections.abc import Mapping, Sequence

from gateway.config.checks.accepted import check_accepted
from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.checks.cors import check_cors, warn_of_cors
from gateway.config.checks.listeners import check_listeners, warn_of_listeners
from gateway.config.checks.overlap import check_overlap, warn_of_overlap
from gateway.config.checks.participation import check_participation, warn_of_participation
from gateway.config.checks.policy import check_policy, warn_of_policies
from gateway.config.checks.quotas import check_quotas, warn_of_quotas
from gateway.config.checks.recovery import check_recovery, warn_of_recovery
from gateway.config.checks.rewrites import check_rewrites, warn_of_rewrites
from gateway.config.checks.routes import check_routes, warn_of_routes
from gateway.config.checks.sent_fields import check_answer_fields, check_sent_fields
from gateway.config.checks.tracing import check_tracing
from gateway.config.checks.upstreams import check_upstreams, warn_of_upstreams
from gateway.config.checks.users import check_users
from gateway.config.checks.webhooks import check_webhooks, warn_of_webhooks
from gateway.config.mistakes import Place
from gateway.config.section import Section
from gateway.config.settings.upstreams import UpstreamConfig

__all__ = ["ResolvedRoute", "find_mistakes", "find_warnings"]


def find_mistakes(root: Section, upstreams: Mapping[str, UpstreamConfig], routes: Sequence[ResolvedRoute]) -> Findings:
    """Every mistake between sections. `root` is the whole file."""
    yield from check_listeners(root, routes)
    yield from check_upstreams(root)
    yield from check_routes(root, upstreams, routes)
    yield from check_overlap(routes)
    yield from check_rewrites(routes)
    yield from check_sent_fields(routes)
    yield from check_answer_fields(routes)
    yield from check_cors(root, routes)
    for one in routes:
        if one.guard is not None:
            yield from check_policy(root, *one.guard)
    yield from check_accepted(root, routes)
    yield from check_quotas(routes)
    yield from check_recovery(root, routes)
    yield from check_webhooks(root, routes)
    yield from check_participation(root, routes)
    yield from check_tracing(root)
    yield from check_users(root, routes)


def find_warnings(
    routes: Sequence[ResolvedRoute], root: Section, upstreams: Mapping[str, UpstreamConfig] | None = None
) -> tuple[tuple[Place, str], ...]:
    """Every warning once, also where several routes take it from `defaults`. `root` is the whole file."""
    servers = {name: upstream.servers for name, upstream in (upstreams or {}).items()}
    found = [
        *warn_of_listeners(root, routes),
        *warn_of_upstreams(root, routes),
        *warn_of_cors(root, routes),
        *warn_of_routes(routes),
        *warn_of_overlap(routes, servers),
        *warn_of_rewrites(routes, servers),
        *warn_of_policies(routes),
        *warn_of_quotas(root, routes),
        *warn_of_recovery(root, routes),
        *warn_of_webhooks(routes, root),
        *warn_of_participation(root, routes),
    ]
    return tuple(dict.fromkeys(found))
