"""Accepted work, every interleaving: the rules keep the promises, and without any of them a promise is broken."""

from dataclasses import fields

import pytest

from tests.system.model.accepted import Rules, broken, explore


def test_the_rules_keep_the_promises() -> None:
    """Of all states that one death and one lost reply can lead to."""
    found = explore(Rules())
    assert found.broken == {}
    assert found.complete
    assert found.states > 1000


@pytest.mark.parametrize("rule", [rule.name for rule in fields(Rules)])
def test_each_rule_is_needed(rule: str) -> None:
    """The explorer comes upon what the rule is there for."""
    assert explore(broken(rule), until_broken=True).broken
