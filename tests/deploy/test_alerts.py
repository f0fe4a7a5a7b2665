"""deploy/prometheus/alerts.yml asks for metrics that exist, and docs/incident.md tells what to do about each alert."""

import re
from typing import Any

import pytest
import yaml

from gateway.core.decision import Label
from gateway.observe import sets
from gateway.observe.observer import MetricsObserver
from tests.deploy.support import ROOT, services

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_its_metrics_exist(rule: dict[str, Any]) -> None:
    """Every metric of an expression is one that a gateway without any traffic shows already."""
    shown = {line.split("{")[0].split(" ")[0] for line in MetricsObserver([]).exposition()[0].decode().splitlines() if line[:1] != "#"}
    wanted = set(re.findall(r"idempotency_\w+", rule["expr"]))
    assert wanted
    assert wanted <= shown


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_its_label_values_exist(rule: dict[str, Any]) -> None:
    """A misspelled result would be an alert that never fires."""
    known = {*sets.RECONCILED, *sets.WEBHOOK_RESULTS, *(label.value for label in Label)}
    for _, values in re.findall(r'(result|decision)=~?"([^"]*)"', rule["expr"]):
        assert set(values.split("|")) <= known


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_somebody_is_told_what_to_do(rule: dict[str, Any]) -> None:
    """Each has a severity, a summary, and its place in the page for whoever is on call."""
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    assert rule["alert"] in (ROOT / "docs" / "incident.md").read_text()


def test_the_compose_file_mounts_them() -> None:
    """Where the Prometheus of the compose file looks for rules is where they are mounted."""
    targets = dict(mount.split(":")[:2] for mount in services()["prometheus"]["volumes"])
    configured = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text())["rule_files"]
    assert configured == [targets["./deploy/prometheus/alerts.yml"]]
