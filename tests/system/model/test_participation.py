"""Upstreams that take part, every interleaving: the rules keep the promises, and without any of them a promise is broken."""

from dataclasses import fields

import pytest

from tests.system.model.participation import Rules, broken, explore

BREAKS = {
    "commits_are_fenced": "at most once",
    "resume_waits": "one attempt after the other",
    "tells_the_point": "at most once",
    "commits_together": "no doubt after the commit",
    "settle_is_fenced": "what is committed stays",
    "answers_what_is_stored": "every client gets what is stored",
}


def test_the_rules_keep_the_promises() -> None:
    """Of all states that deaths, lost answers and one overlong upstream can lead to."""
    found = explore(Rules())
    assert found.broken == {}
    assert found.complete
    assert found.states > 300


@pytest.mark.parametrize("rule", [rule.name for rule in fields(Rules)])
def test_each_rule_is_needed(rule: str) -> None:
    """The explorer comes upon what the rule is there for."""
    assert BREAKS[rule] in explore(broken(rule)).broken
