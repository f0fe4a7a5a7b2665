"""Quotas in a route map."""

from pathlib import Path

import pytest
import yaml

from gateway.core.quota import NewKeys, Quota
from gateway.core.units import Rate
from tests.config.support import mistakes, read
from tests.config.test_schema import SCHEMA, accepts

BASE = """
digest_secret: 0123456789abcdef
encryption_key: 0123456789abcdef0123456789abcdef
postgres: {dsn: "postgresql://u@h/d"}
redis: {url: "redis://r/0"}
upstreams:
  payments: {url: "http://payments:8000"}
defaults: {principal: [{header: X-Account}]}
routes:
  - {id: pay, methods: [POST], path: /v1/pay, upstream: payments, idempotency: {MORE}}
"""
OTHER = "  - {id: refund, methods: [POST], path: /v1/refund, upstream: payments, idempotency: {scope: pay, MORE}}\n"


def text(more: str, other: str | None = None) -> str:
    return BASE.replace("MORE", more) + ("" if other is None else OTHER.replace("MORE", other))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("quota: {}", "in_flight"),
        ("quota: {new_keys: {burst: 5}}", "rate"),
        ("quota: {new_keys: {rate: 50}}", "expected a rate such as 50/s, found 50"),
        ("quota: {new_keys: {rate: 50/m}}", '"50/m" is not a rate; write for example 50/s'),
        ("quota: {new_keys: {rate: 20000/s}}", "must be at most 10000/s"),
        ("quota: {new_keys: {rate: 5/s, burst: 0}}", "must be from 1 to 1000000"),
        ("quota: {in_flight: 0}", "must be from 1 to 100000"),
        ("quota: {in_flight: 5}, execution: async", "`max_pending` and `concurrency` limit accepted work"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, more: str, words: str) -> None:
    (mistake,) = mistakes(tmp_path, text(more))
    assert words in mistake
    assert "quota" in mistake


def test_routes_that_share_a_scope_share_its_quota(tmp_path: Path) -> None:
    """Or one of them takes nothing of it."""
    (mistake,) = mistakes(tmp_path, text("quota: {in_flight: 5}", "quota: {in_flight: 6}"))
    assert "shares the scope `pay` with `pay`" in mistake
    assert mistakes(tmp_path, text("quota: {in_flight: 5}", "quota: {in_flight: 5}")) == []
    assert mistakes(tmp_path, text("quota: {in_flight: 5}", "lease: 30s")) == []


def test_what_is_good_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, text("quota: {in_flight: 5, new_keys: {rate: 100/min, burst: 7}}"))
    assert config.routes[0].policy is not None
    assert config.routes[0].policy.quota == Quota(5, NewKeys(Rate(100, 60), 7))
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("found", "put", "words"),
    [
        ("[{header: X-Account}]", "none", "all callers share one quota"),
        ('redis: {url: "redis://r/0"}', "", "each process counts for itself"),
        ("new_keys", "mode: observe, new_keys", "has no effect with `mode: observe`"),
    ],
)
def test_what_counts_otherwise_than_it_reads_is_told(tmp_path: Path, found: str, put: str, words: str) -> None:
    whole = text("quota: {new_keys: {rate: 5/s}}")
    changed = whole.replace("quota:", "mode: observe, quota:") if "observe" in put else whole.replace(found, put)
    assert any(words in str(warning) for warning in read(tmp_path, changed).warnings)


@pytest.mark.parametrize(("rate", "good"), [("50/s", True), ("100/min", True), ("50", False), ("50/m", False)])
def test_editors_know_rates(rate: str, good: bool) -> None:
    assert accepts(SCHEMA, yaml.safe_load(text(f"quota: {{new_keys: {{rate: {rate}}}}}"))) == good
