"""The run of `scripts/alerts`, short: a real Prometheus, one real fault."""

import os
import shutil

import pytest

from tests.system.alerts.prometheus import RULES, hurried
from tests.system.alerts.run import FAULTS, drill, stage


@pytest.mark.skipif(shutil.which("prometheus") is None and "CI" not in os.environ, reason="no prometheus here")
@pytest.mark.timeout(240)
async def test_an_alert_fires_by_its_fault_and_clears() -> None:
    """Redis is killed, and started again. What else fires is not judged here: in hurried time a busy machine alone makes alerts."""
    async with stage(200.0) as staged:
        row = await drill(staged, FAULTS[0])
    assert row.fired is not None
    assert row.cleared is not None


def test_hurried_rules_are_the_same_but_for_time() -> None:
    """Windows and `for` are divided; factors of time within an expression, and texts, are not."""
    rules = RULES.read_text("utf-8")
    assert hurried("        expr: rate(a[5m]) > 300\n        for: 1m\n", 60) == "        expr: rate(a[5000ms]) > 300\n        for: 1000ms\n"
    ours, theirs = (text.splitlines() for text in (rules, hurried(rules, 60)))
    assert len(ours) == len(theirs)
    changed = [line for line, other in zip(ours, theirs, strict=True) if line != other]
    assert len(changed) == sum(("[" in line and "m]" in line) or "        for: " in line for line in ours) > 20
