"""Traces: what a configuration may say of them."""

import sys
from pathlib import Path

import pytest

from tests.config.support import HEAD, ROUTES, mistakes, read
from tests.observe.test_tracing import needs_otel

BASE = HEAD + ROUTES


@needs_otel
def test_the_settings(tmp_path: Path) -> None:
    """Off where the file says nothing; with a collector all traces that begin here."""
    assert read(tmp_path, BASE).tracing is None
    tracing = read(tmp_path, BASE + "tracing: {endpoint: 'http://[::1]:4318/v1/traces'}").tracing
    assert tracing is not None
    assert (tracing.endpoint, tracing.sample_percent) == ("http://[::1]:4318/v1/traces", 100)


@needs_otel
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tracing: {}", "endpoint: is required"),
        ("tracing: {sample_percent: 5}", "endpoint: is required"),
        ("tracing: {endpoint: 'collector:4317'}", "must be the URL of a collector"),
        ("tracing: {endpoint: 'http://collector:4318'}", "must be the URL of a collector"),
        ("tracing: {endpoint: 'http://c:4318/v1/traces', sample_percent: 101}", "sample_percent"),
    ],
)
def test_mistakes(tmp_path: Path, line: str, said: str) -> None:
    """Each names its field."""
    (found,) = mistakes(tmp_path, BASE + line)
    assert "tracing" in found
    assert said in found


def test_without_the_extra_the_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` says what a start would say."""
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:  # other tests may have imported it
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    (found,) = mistakes(tmp_path, BASE + "tracing: {endpoint: 'http://c:4318/v1/traces'}")
    assert "pip install 'idempotency-gateway[otel]'" in found
