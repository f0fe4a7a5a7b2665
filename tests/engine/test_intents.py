"""What all intents of one route share."""

from dataclasses import replace

import pytest

from gateway.core.model import Terms
from gateway.core.policy import Mode, OnExpired, OnUnknown
from gateway.engine.intents import terms_of
from tests.engine.stage import POLICY


def test_terms_are_made_once_for_a_policy() -> None:
    """A store may compare terms by identity; a reload brings another policy and so other terms."""
    first = terms_of("a", POLICY)
    assert terms_of("a", POLICY) is first
    assert terms_of("b", POLICY).route_id == "b"
    again = terms_of("a", replace(POLICY, lease=7.0))
    assert again is not first
    assert again.lease == 7.0


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
    plain = Terms("a", POLICY.lease, POLICY.max_execution, POLICY.reconcilable)
    assert terms_of("a", replace(POLICY, **change)) == replace(plain, **wanted)  # type: ignore[arg-type]  # settings by name
