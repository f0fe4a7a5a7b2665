"""Traces: mistakes."""

from importlib.util import find_spec

from gateway.config.checks.common import Findings
from gateway.config.names import CONFIG
from gateway.config.section import Section

NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def check_tracing(root: Section) -> Findings:
    if root.given(CONFIG.tracing) and not all(map(_found, NEEDED)):
        yield root.place_of(CONFIG.tracing), "needs OpenTelemetry: pip install 'idempotency-gateway[otel]'"


def _found(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False
