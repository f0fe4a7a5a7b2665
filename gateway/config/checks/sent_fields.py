"""Fields that a route sets or removes: none that its key stands in, and none twice."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import ANSWER_FIELDS, POLICY, ROUTE, SENT_FIELDS
from gateway.core.key_policy import HeaderKey
from gateway.core.policy import Policy


def check_sent_fields(routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        changes, section = one.route.request_headers, one.section.sub(ROUTE.request_headers)
        if changes is None or section.broken or not one.section.sound(ROUTE.request_headers):
            continue
        keys = _keys(one.route.policy) if one.guard is not None and one.guard[0].sound(POLICY.key, POLICY.forward_key_in) else set()
        seen: dict[str, str] = {}
        for field, names in ((SENT_FIELDS.added, [name for name, _ in changes.added]), (SENT_FIELDS.removed, changes.removed)):
            for name in names:
                first = seen.setdefault(_folded(name), name)
                if first is not name:
                    yield section.place_of(field), f"{first} and {name} are one field; keep one of them"
                if _folded(name) in keys:
                    yield section.place_of(field), f"{name} holds the key; `forward_key` says what the upstream sees of it"


def check_answer_fields(routes: Sequence[ResolvedRoute]) -> Findings:
    for one in routes:
        changes, section = one.route.answer_headers, one.section.sub(ROUTE.answer_headers)
        if changes is None or section.broken or not one.section.sound(ROUTE.answer_headers):
            continue
        seen: dict[str, str] = {}
        for field, names in ((ANSWER_FIELDS.added, [name for name, _ in changes.added]), (ANSWER_FIELDS.removed, changes.removed)):
            for name in names:
                first = seen.setdefault(name.lower(), name)
                if first is not name:
                    yield section.place_of(field), f"{first} and {name} are one field; keep one of them"


def _keys(policy: Policy | None) -> set[str]:
    places = () if policy is None else (policy.key.place, policy.key_goes_to)
    return {_folded(name) for place in places if isinstance(place, HeaderKey) for name in place.names}


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")
