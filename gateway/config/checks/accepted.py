"""Accepted work: what a route must have for it, and what makes no sense beside it."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import ENCRYPTION_KEYS, LIMITS, POLICY
from gateway.config.section import Section
from gateway.core.policy import Mode, OnStoreOutage, Policy

LARGEST_BODY = 1024 * 1024
"""Bytes of a request that is kept until it is run, at most."""


def check_accepted(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        if one.guard is None:
            continue
        section, policy = one.guard
        if policy.accepts:
            yield from _check_execution(root, section, policy)
        if policy.has_status and policy.mode is Mode.OBSERVE and section.sound(POLICY.mode):
            yield section.place_of(POLICY.mode), "an observing route answers nothing itself, hence accepts nothing; write `mode: enforce`"


def _check_execution(root: Section, section: Section, policy: Policy) -> Findings:
    place, words = section.place_of(POLICY.execution), f"`execution: {policy.execution}`"
    if root.sound(ENCRYPTION_KEYS.encryption_key) and root.get(ENCRYPTION_KEYS.encryption_key) is None:
        yield place, f"{policy.execution} keeps each request until it is run, and only encrypted: it needs `encryption_key`"
    limits = section.sub(POLICY.limits)
    if policy.limits.request_body > LARGEST_BODY and limits.sound(LIMITS.request_body):
        yield limits.place_of(LIMITS.request_body), f"{words} keeps requests with bodies of up to 1MiB, and takes no larger ones"
    if policy.stream and section.sound(POLICY.stream):
        yield section.place_of(POLICY.stream), f"{words} has nobody to relay an answer to as it comes; remove this"
    if policy.on_store_outage is OnStoreOutage.FORWARD and section.sound(POLICY.on_store_outage):
        yield section.place_of(POLICY.on_store_outage), f"{words} promises what is in Postgres alone; write `on_store_outage: reject`"
