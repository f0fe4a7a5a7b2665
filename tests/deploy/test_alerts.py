"""The rules of deploy/prometheus ask for metrics that exist, and docs/incident.md tells what to do about each alert."""

import functools
import itertools
import re
from typing import Any

import pytest
import yaml

from gateway.core.decision import Label
from gateway.core.policy import Execution, Policy, Route
from gateway.core.principal_source import ForwardAuthPrincipal
from gateway.core.reconcile.policy import StripeSignature, Webhook
from gateway.observe import sets
from gateway.observe.metrics import Families
from gateway.observe.observer import MetricsObserver
from gateway.run.supervisor.merged import MergedMetrics
from tests.deploy.support import ROOT, services
from tests.documents.test_prose import anchors
from tests.observe.support import Series, parse


def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


RULES = rules("alerts.yml")
RECORDED = rules("recording.yml")
TOLD = Webhook("/webhooks/payments", StripeSignature((b"s" * 16,)), "/id", "/data/id", ())
ASKED = ForwardAuthPrincipal("auth", "/who", "X-User")
GUARDED = Route(
    "create-charge", "/v1/charges", "payments", frozenset({"POST"}), Policy("charges", (ASKED,), webhook=TOLD, execution=Execution.ASYNC)
)
"""A route on which everything may happen that alerts are for."""
NAMES = [rule["alert"] for rule in RULES]


@functools.cache
def shown() -> Series:
    """What a gateway with workers shows before any traffic."""
    observer = MetricsObserver([GUARDED])
    observer.update_targets({"payments": ["http://payments:8000"]})
    observer.update_certificates({"tls.cert_file": 1.0})
    fleet = MergedMetrics()
    return {**parse(observer.exposition()[0]), **parse(fleet.exposition()[0])}


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_its_metrics_exist(rule: dict[str, Any]) -> None:
    """Every series of an expression is there before any traffic: of one that appears with its first event no increase is ever seen."""
    wanted = re.findall(r"(idempotency_\w+|up)\{([^}]*)\}|(idempotency_\w+)", rule["expr"])
    assert wanted
    wanted = [(name or bare, selector) for name, selector, bare in wanted if name != "up"]
    for name, selector in wanted:
        matchers = re.findall(r'(\w+)=~?"([^"]*)"', selector)
        found = [dict(labels) for one, labels in shown() if one == name]
        for words in itertools.product(*([(label, word) for word in values.split("|")] for label, values in matchers)):
            assert any(labels.items() >= dict(words).items() for labels in found), (name, words)


@pytest.mark.parametrize("rule", [*RULES, *RECORDED], ids=lambda rule: rule.get("alert") or rule["record"])
def test_its_label_values_exist(rule: dict[str, Any]) -> None:
    """A misspelled result would be an alert that never fires."""
    known = {*sets.RECONCILED, *sets.WEBHOOK_RESULTS, *sets.SETTLEMENTS, *(label.value for label in Label)}
    for _, values in re.findall(r'(result|decision|settlement)=~?"([^"]*)"', rule["expr"]):
        assert set(values.split("|")) <= known


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_somebody_is_told_what_to_do(rule: dict[str, Any]) -> None:
    """Each has a severity, a summary, and its place in the page for whoever is on call."""
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    page, _, anchor = rule["annotations"]["runbook_url"].removeprefix("{{ $externalLabels.runbooks }}").partition("#")
    assert anchor in anchors(ROOT / page)
    (row,) = (line for line in (ROOT / page).read_text().splitlines() if line.startswith("|") and f"`{rule['alert']}`" in line)
    assert f"(#{anchor})" in row


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_the_page_says_how_urgent_it_is_and_when_it_fires(rule: dict[str, Any]) -> None:
    """Its row has the severity, and the time in all: the least age that the expression asks for, and `for`."""
    (row,) = (line for line in (ROOT / "docs" / "incident.md").read_text().splitlines() if line.startswith(f"| `{rule['alert']}` |"))
    aged = sum(int(seconds) for seconds in re.findall(r"(?:age|timestamp)_seconds\) > (\d+)", rule["expr"]))
    held = rule.get("for", "0m")
    minutes = aged // 60 + int(held[:-1]) * {"m": 1, "h": 60}[held[-1]]
    said = "at once" if not minutes else f"{minutes} min" if minutes % 60 else f"{minutes // 60} h"
    assert [cell.strip() for cell in row.split("|")][2:4] == [rule["labels"]["severity"], said]


@pytest.mark.parametrize("rule", RECORDED, ids=lambda rule: rule["record"])
def test_what_is_recorded_exists(rule: dict[str, Any]) -> None:
    """The family does, and the page on what can be seen says which of its series the name stands for."""
    (name,) = re.findall(r"idempotency_\w+", rule["expr"])
    assert name.removesuffix("_total") in {family.name for family in Families().collector.families}
    assert f"`{rule['record']}`" in (ROOT / "docs" / "observability.md").read_text()


def test_the_compose_file_mounts_them() -> None:
    """Where the Prometheus of the compose file looks for rules is where they are mounted."""
    targets = dict(mount.split(":")[:2] for mount in services()["prometheus"]["volumes"])
    configured = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text())["rule_files"]
    assert configured == [targets[f"./deploy/prometheus/{name}.yml"] for name in ("alerts", "recording")]
