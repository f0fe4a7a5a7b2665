"""Quotas: what counts differently than it reads."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import CONFIG, POLICY, QUOTA, REDIS
from gateway.config.section import Section
from gateway.core.policy import Execution, Mode, Policy


def check_quotas(routes: Sequence[ResolvedRoute]) -> Findings:
    by_scope: dict[str, tuple[ResolvedRoute, Policy]] = {}
    for one, section, policy in _limited(routes):
        if policy.quota is not None and policy.quota.in_flight is not None and policy.execution is Execution.ASYNC:
            place = section.sub(POLICY.quota).place_of(QUOTA.in_flight)
            yield place, "counts what clients wait for, and here none does; `max_pending` and `concurrency` limit accepted work"
        first, its = by_scope.setdefault(policy.scope, (one, policy))
        if policy.quota != its.quota:
            words = f"this route shares the scope `{policy.scope}` with `{first.route.id}`, and callers have one quota in it"
            yield section.place_of(POLICY.quota), f"{words}; write the same quota at both, or at one of them alone"


def warn_of_quotas(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    for _, section, policy in _limited(routes):
        place = section.place_of(POLICY.quota)
        if not policy.principal:
            yield place, "with `principal: none` all callers share one quota"
        redis = root.sub(CONFIG.redis)
        if redis.sound(REDIS.url) and not redis.get(REDIS.url):
            yield place, "without `redis` each process counts for itself: N of them let in N times as much"


def _limited(routes: Sequence[ResolvedRoute]) -> list[tuple[ResolvedRoute, Section, Policy]]:
    guards = [(one, *one.guard) for one in routes if one.guard is not None]
    return [
        (one, section, policy)
        for one, section, policy in guards
        if policy.quota is not None and policy.mode is Mode.ENFORCE and section.sound(POLICY.quota)
    ]
