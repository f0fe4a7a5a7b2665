"""Upstreams that take part: mistakes, and findings that stop nothing."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import CONFIG, ENCRYPTION, PARTICIPATE, POLICY
from gateway.config.section import Section
from gateway.core.policy import Mode, OnUnknown, Policy


def check_participation(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        if one.guard is not None:
            yield from _check_route(root, *one.guard)


def _check_route(root: Section, section: Section, policy: Policy) -> Findings:
    participate = section.sub(POLICY.participate)
    if participate.broken or participate.lost:
        return
    progress, co_commit = policy.participate.progress, policy.participate.co_commit
    if progress and root.sound(CONFIG.progress) and not root.given(CONFIG.progress):
        yield participate.place_of(PARTICIPATE.progress), "needs `progress: {listen: 127.0.0.1:9465}`, where the upstream tells it"
    if policy.on_unknown is OnUnknown.RESUME and not (progress or co_commit):
        words = "resume needs an upstream that tells how far it has come: write `participate: {progress: true}`"
        yield section.place_of(POLICY.on_unknown), words
    if co_commit and root.sub(CONFIG.encryption).get(ENCRYPTION.answers) is True:
        words = "an upstream commits its answer in clear: SQL has no key; remove this, or `encryption: {answers: true}`"
        yield participate.place_of(PARTICIPATE.co_commit), words
    if co_commit and policy.stream and section.sound(POLICY.stream):
        words = "an answer that streams has left before it is known what is stored; remove this, or `stream`"
        yield participate.place_of(PARTICIPATE.co_commit), words


def warn_of_participation(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    policies = [one.guard for one in routes if one.guard is not None]
    for section, policy in policies:
        participate = section.sub(POLICY.participate)
        if (policy.participate.progress or policy.participate.co_commit) and policy.mode is Mode.OBSERVE:
            place = participate.place_of(PARTICIPATE.progress, PARTICIPATE.co_commit)
            yield place, "has no effect with `mode: observe`: an attempt that is only observed owns nothing"
    if root.given(CONFIG.progress) and not any(policy.participate.progress for _, policy in policies):
        yield root.place_of(CONFIG.progress), "has no effect: no route has `participate: {progress: true}`"
