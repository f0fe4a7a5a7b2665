"""deploy/prometheus/alerts.yml asks for metrics that exist, and docs/incident.md tells what to do about each alert."""

import itertools
import re
from typing import Any

import pytest
import yaml

from gateway.core.decision import Label
from gateway.core.policy import ForwardAuthPrincipal, Policy, Route
from gateway.core.reconcile.policy import StripeSignature, Webhook
from gateway.observe import sets
from gateway.observe.observer import MetricsObserver
from tests.deploy.support import ROOT, services
from tests.observe.support import parse

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
TOLD = Webhook("/webhooks/payments", StripeSignature((b"s" * 16,)), "/id", "/data/id", ())
ASKED = ForwardAuthPrincipal("auth", "/who", "X-User")
GUARDED = Route("create-charge", "/v1/charges", "payments", frozenset({"POST"}), Policy("charges", (ASKED,), webhook=TOLD))
"""A route on which everything may happen that alerts are for."""
NAMES = [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_its_metrics_exist(rule: dict[str, Any]) -> None:
    """Every series of an expression is there before any traffic: of one that appears with its first event no increase is ever seen."""
    shown = parse(MetricsObserver([GUARDED]).exposition()[0])
    wanted = re.findall(r"(idempotency_\w+)(?:\{([^}]*)\})?", rule["expr"])
    assert wanted
    for name, selector in wanted:
        matchers = re.findall(r'(\w+)=~?"([^"]*)"', selector)
        found = [dict(labels) for one, labels in shown if one == name]
        for words in itertools.product(*([(label, word) for word in values.split("|")] for label, values in matchers)):
            assert any(labels.items() >= dict(words).items() for labels in found), (name, words)


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
