"""Each alert fires on the series of its fault, and keeps quiet on those of a good day and of a fault that is too small.

`promtool test rules` evaluates them: Prometheus' own engine, over series that are written here, one value a minute from instant 0 on.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.support import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"] if "alert" in rule
]
SEVERITY = {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
DAY = 86400

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None and "CI" not in os.environ, reason="no promtool here")


@dataclass(frozen=True, slots=True)
class Case:
    """`series` by name and labels, as promtool writes values (`0+3x60`: 0, 3, 6 … over an hour). `fires`: the labels that the alert has
    at the minute `at`, besides its own; None: it does not fire.
    """

    alert: str
    fires: dict[str, str] | None
    series: dict[str, str]
    at: int = 15


def requests(decision: str, values: str, route: str = "pay") -> dict[str, str]:
    return {f'idempotency_requests_total{{route="{route}",mode="enforce",decision="{decision}"}}': values}


def answers(code_class: str) -> str:
    return f'idempotency_responses_total{{route="pay",code_class="{code_class}"}}'


def looks(result: str, values: str) -> dict[str, str]:
    return {f'idempotency_reconcile_total{{route="pay",result="{result}"}}': values}


def events(result: str, values: str) -> dict[str, str]:
    return {f'idempotency_webhook_events_total{{route="pay",result="{result}"}}': values}


def reserves(bucket: str, all_: str) -> dict[str, str]:
    name = 'idempotency_store_duration_seconds_{}{{store="postgres",operation="reserve"{}}}'
    below = {name.format("bucket", f',le="{le}"'): bucket for le in ("0.1", "0.5")}
    above = {name.format("bucket", f',le="{le}"'): all_ for le in ("2.5", "+Inf")}
    return {**below, **above, name.format("count", ""): all_}


def series_of(name: str, labels: Mapping[str, str]) -> str:
    """As promtool writes a series."""
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{inside}}}"


PAY = {"route": "pay"}
ONE = {"instance": "one"}
USUAL = requests("execute", "0+600x60")
EXPIRY = 'idempotency_certificate_expiry_timestamp_seconds{setting="tls.cert_file"}'
ROUND = 'idempotency_background_last_round_timestamp_seconds{task="sweep"}'
TARGET = 'idempotency_upstream_target_up{upstream="payments",target="http://a"}'
UP = 'up{job="prod/idempotency-gateway",instance="one"}'
SUSPENDED = 'idempotency_clock_suspended{judgement="expiry"}'
AGE = 'idempotency_route_unknown_oldest_age_seconds{route="pay"}'
PENDING = 'idempotency_route_pending_oldest_age_seconds{route="pay"}'
REFUSED = 'idempotency_refused_connections_total{instance="one",reason="overloaded"}'

CASES = [
    Case("ConflictingExecution", PAY, {'idempotency_conflicting_executions_total{route="pay"}': "0x9 1x50"}),
    Case("ConflictingExecution", None, {'idempotency_conflicting_executions_total{route="pay"}': "1x60"}, 30),
    Case("RecordsLost", {}, {"idempotency_lost_records_total": "0x9 2x50"}),
    Case("RecordsLost", None, {"idempotency_lost_records_total": "2x60"}, 30),
    Case("DeadLetters", PAY, {'idempotency_route_dead_letters{route="pay"}': "0x9 1x50"}),
    Case("DeadLetters", None, {'idempotency_route_dead_letters{route="pay"}': "0x60"}),
    Case("UnknownTooOld", PAY, {AGE: "0+60x60"}, 25),
    Case("UnknownTooOld", None, {AGE: "0+60x14 0x40"}, 25),
    Case("ProbesFail", PAY, {**looks("failed", "0+2x60"), **looks("resolved", "0x60")}, 20),
    Case("ProbesFail", None, {**looks("failed", "0+2x60"), **looks("resolved", "0+1x60")}, 20),
    Case("WebhookRefused", PAY, {**events("bad_signature", "0+1x60"), **events("out_of_tolerance", "0x60")}),
    Case("WebhookRefused", None, {**events("bad_signature", "0x5 3x50"), **events("applied", "0+9x60")}),
    Case("LeasesLapse", PAY, {'idempotency_zombies_total{route="pay"}': "0x9 1x50"}),
    Case("LeasesLapse", None, {'idempotency_zombies_total{route="pay"}': "3x60"}, 30),
    Case("StoreUnavailable", {}, {**USUAL, **requests("store_unavailable", "0+60x60")}),
    Case("StoreUnavailable", None, {**USUAL, **requests("store_unavailable", "0+4x60")}),
    Case("StoreUnavailable", None, {**USUAL, **requests("principal_unavailable", "0+60x60"), **requests("store_unavailable", "0x60")}),
    Case("PrincipalUnavailable", PAY, {**USUAL, **requests("principal_unavailable", "0+60x60")}),
    Case("PrincipalUnavailable", None, {**USUAL, **requests("store_unavailable", "0+60x60"), **requests("principal_unavailable", "0x60")}),
    Case("ClockStepped", {"direction": "back"}, {'idempotency_clock_steps_total{direction="back"}': "0x9 1x50"}),
    Case("ClockStepped", None, {'idempotency_clock_steps_total{direction="back"}': "1x60"}, 30),
    Case("ClockSuspended", {"judgement": "expiry"}, {SUSPENDED: "1x60"}, 20),
    Case("ClockSuspended", None, {SUSPENDED: "1x9 0x50"}, 20),
    Case("ScopesDiffer", ONE, {'idempotency_scopes_differ{instance="one"}': "2x60", 'idempotency_scopes_differ{instance="two"}': "0x60"}),
    Case("ScopesDiffer", None, {'idempotency_scopes_differ{instance="one"}': "0x60"}),
    Case("RedisAway", {}, {"idempotency_redis_breaker_open": "1x60"}),
    Case("RedisAway", None, {"idempotency_redis_breaker_open": "1x2 0x57"}),
    Case("BackgroundStands", {"task": "sweep"}, {ROUND: "0+60x5 300x50"}),
    Case("BackgroundStands", None, {ROUND: "0+60x60"}),
    Case("GatewayDown", {"instance": "one", "job": "prod/idempotency-gateway"}, {UP: "1x9 0x50"}),
    Case("GatewayDown", None, {UP: "1x60", 'up{job="postgres",instance="db"}': "0x60"}),
    Case("NoGateway", {}, {'up{job="postgres",instance="db"}': "1x60"}),
    Case("NoGateway", None, {UP: "0x60"}),
    Case("WorkersRestart", ONE, {'idempotency_worker_restarts_total{instance="one"}': "0+1x60"}),
    Case("WorkersRestart", None, {'idempotency_worker_restarts_total{instance="one"}': "0x9 1x50"}),
    Case("ReloadFailed", ONE, {'idempotency_config_last_reload_successful{instance="one"}': "1x9 0x50"}),
    Case("ReloadFailed", None, {'idempotency_config_last_reload_successful{instance="one"}': "1x60"}),
    Case("UpstreamTargetDown", {"upstream": "payments", "target": "http://a"}, {TARGET: "1x9 0x50"}),
    Case("UpstreamTargetDown", None, {TARGET: "1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1"}),
    Case("CertificateExpires", {"setting": "tls.cert_file"}, {EXPIRY: f"{10 * DAY}x120"}, 90),
    Case("CertificateExpires", None, {EXPIRY: f"{60 * DAY}x120"}, 90),
    Case("CertificateExpires", None, {EXPIRY: f"{DAY}x120"}, 90),
    Case("CertificateExpiresNow", {"setting": "tls.cert_file"}, {EXPIRY: f"{DAY}x60"}),
    Case("CertificateExpiresNow", {"setting": "tls.cert_file"}, {EXPIRY: "0x60"}),
    Case("CertificateExpiresNow", None, {EXPIRY: f"{10 * DAY}x60"}),
    Case("KeyMisuse", PAY, {**USUAL, **requests("key_misuse", "0+30x60")}),
    Case("KeyMisuse", None, {**USUAL, **requests("key_misuse", "0+5x60")}),
    Case("KeyMisuse", None, {**requests("execute", "0+1x60"), **requests("key_misuse", "0+1x60")}),
    Case("BackgroundFails", {"task": "spill"}, {'idempotency_background_failures_total{task="spill"}': "0+2x60"}),
    Case("BackgroundFails", None, {'idempotency_background_failures_total{task="spill"}': "0x9 3x50"}),
    Case("StoreSlow", {}, reserves("0+570x60", "0+600x60"), 20),
    Case("StoreSlow", None, reserves("0+599x60", "0+600x60"), 20),
    Case("Overloaded", {**ONE, "reason": "overloaded"}, {REFUSED: "0+10x60"}),
    Case("Overloaded", None, {REFUSED: "0x9 4x50"}),
    Case("ServerErrors", PAY, {answers("5xx"): "0+60x60", answers("2xx"): "0+600x60"}),
    Case("ServerErrors", None, {answers("5xx"): "0+20x60", answers("2xx"): "0+600x60"}),
    Case("ServerErrors", None, {answers("5xx"): "0+1x60", answers("2xx"): "0+1x60"}),
    Case("PendingTooOld", PAY, {PENDING: "0+60x60"}),
    Case("PendingTooOld", None, {PENDING: "0 60 120 180 0 60 120 180 0 60 120 180 0 60 120 180"}),
    Case("Abandoned", PAY, {'idempotency_abandoned_total{route="pay"}': "0x9 1x50"}),
    Case("Abandoned", None, {'idempotency_abandoned_total{route="pay"}': "1x60"}, 30),
    Case("LogLinesLost", ONE, {'idempotency_access_log_dropped_lines_total{instance="one"}': "0x9 5x50"}),
    Case("LogLinesLost", None, {'idempotency_access_log_dropped_lines_total{instance="one"}': "0x60"}),
]


def expectation(case: Case) -> dict[str, Any]:
    """What promtool is asked: the alert itself as a series, so that a case need not repeat its texts."""
    name = f"Idempotency{case.alert}"
    expected = []
    if case.fires is not None:
        labels = {"alertname": name, "alertstate": "firing", "severity": SEVERITY[name], **case.fires}
        expected = [{"labels": series_of("ALERTS", labels), "value": 1}]
    question = {"expr": f'ALERTS{{alertname="{name}",alertstate="firing"}}', "eval_time": f"{case.at}m", "exp_samples": expected}
    series = [{"series": one, "values": values} for one, values in case.series.items()]
    return {"interval": "1m", "input_series": series, "promql_expr_test": [question]}


def promtool(folder: Path, tests: list[dict[str, Any]]) -> str:
    """What it finds wrong; empty if all is as expected."""
    asked = folder / "asked.yml"
    asked.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "*.yml")], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(asked)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@needs_promtool
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    """All cases in one run."""
    assert promtool(tmp_path, [expectation(case) for case in CASES]) == ""


def test_every_alert_has_a_case_of_each_kind() -> None:
    """One that fires, and one that does not."""
    for fires in (True, False):
        assert {f"Idempotency{case.alert}" for case in CASES if (case.fires is not None) == fires} == set(SEVERITY)


@needs_promtool
@pytest.mark.parametrize("base", ["", "https://git.example/project/"])
def test_texts_are_filled_in(tmp_path: Path, base: str) -> None:
    """The link to what to do is relative, or whole where an external label says where the pages are read."""
    shown = {
        "summary": "A gateway has not gone round its records for 10m 0s: sweep",
        "description": "Without sweep and reconcile nothing in doubt is found out. See idempotency_store_errors_total by operation, "
        "and idempotency_background_failures_total.",
        "runbook_url": f"{base}docs/incident.md#background-work-stands",
    }
    labels = {"severity": "page", "task": "sweep"}
    alert = {
        "eval_time": "15m",
        "alertname": "IdempotencyBackgroundStands",
        "exp_alerts": [{"exp_labels": labels, "exp_annotations": shown}],
    }
    test = {"interval": "1m", "input_series": [{"series": ROUND, "values": "0+60x5 300x50"}], "alert_rule_test": [alert]}
    assert promtool(tmp_path, [{**test, **({"external_labels": {"runbooks": base}} if base else {})}]) == ""


@needs_promtool
def test_signals_have_the_names_of_other_systems(tmp_path: Path) -> None:
    """A recording rule shows the rate under the other name."""
    rates = {
        "route:idempotency_created:rate5m": (requests("execute", "0+60x60"), PAY),
        "route:idempotency_replay:rate5m": (requests("replay_without_body", "0+60x60"), PAY),
        "route:idempotency_failed_retry:rate5m": (requests("execute_retry", "0+60x60"), PAY),
        "route:idempotency_unknown_outcome:rate5m": (
            {'idempotency_settlements_total{route="pay",settlement="doubt",reason="upstream_timeout"}': "0+60x60"},
            PAY,
        ),
        "store:idempotency_store_error:rate5m": (
            {'idempotency_store_errors_total{store="redis",operation="get",reason="timeout"}': "0+60x60"},
            {"store": "redis"},
        ),
        "route:idempotency_zombie_reset:rate5m": ({'idempotency_zombies_total{route="pay"}': "0+60x60"}, PAY),
        "idempotency_pruned:rate5m": ({"idempotency_reaped_total": "0+60x60"}, {}),
        "route:idempotency_reconcile_dead_lettered:rate5m": (looks("dead_lettered", "0+60x60"), PAY),
    }
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": name,
                    "eval_time": "10m",
                    "exp_samples": [{"labels": series_of(name, labels), "value": 1}],
                }
            ],
        }
        for name, (series, labels) in rates.items()
    ]
    assert promtool(tmp_path, tests) == ""
