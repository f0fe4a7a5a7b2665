"""What all intents of one route share."""

from dataclasses import replace

import pytest

from gateway.core.model import Fingerprint, Terms
from gateway.core.policy import Mode, OnExpired, OnUnknown
from gateway.engine.intents import intent_of
from tests.engine.stage import KEY, POLICY
from tests.support.requests import StagedRequest, plan_of


def test_terms_are_made_once_for_a_plan() -> None:
    """A store may compare terms by identity; a reload makes another plan and so other terms."""
    plan = plan_of(POLICY)
    request = StagedRequest("r", plan, KEY, b"{}")
    intents = [intent_of(request, Fingerprint(1, b"", b""), owner) for owner in (b"1", b"2")]
    assert intents[0].terms is intents[1].terms is plan.terms
    assert plan_of(replace(POLICY, lease=7.0)).terms.lease == 7.0


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"on_expired": OnExpired.GONE, "tombstone": 60.0}, {"gone_for": 60.0}),
        ({"on_expired": OnExpired.EXECUTE, "tombstone": 60.0}, {"gone_for": None}),
        ({"mode": Mode.OBSERVE}, {"observed": True}),
        ({"on_unknown": OnUnknown.REEXECUTE}, {"reconcilable": True, "reexecute": True}),
    ],
)
def test_terms_say_what_the_policy_says(change: dict[str, object], wanted: dict[str, object]) -> None:
    """Each setting that a record is made by."""
    plain = Terms("charge", POLICY.lease, POLICY.max_execution, POLICY.reconcilable)
    assert plan_of(replace(POLICY, **change)).terms == replace(plain, **wanted)  # type: ignore[arg-type]  # settings by name
