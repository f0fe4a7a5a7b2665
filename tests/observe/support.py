"""Reading what an observer shows."""

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.observing import Exchange
from gateway.core.decision import Label
from gateway.core.policy import Policy, Route
from gateway.core.principal_source import HeaderPrincipal

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]

GUARDED = Route("create-charge", "/v1/charges", "payments", frozenset({"POST"}), Policy("charges", (HeaderPrincipal("Authorization"),)))
OPEN = Route("rest", "/**", "payments")


def parse(text: bytes) -> Series:
    """Every series of an exposition. Fails on a series that is there twice."""
    found: Series = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            name = (sample.name, frozenset(sample.labels.items()))
            assert name not in found, name
            found[name] = sample.value
    return found


def value(series: Series, name: str, **labels: str) -> float:
    """One series; fails if it is not there."""
    return series[f"idempotency_{name}", frozenset(labels.items())]


def exchange(route: str = GUARDED.id, mode: str = "enforce", decision: Label = Label.EXECUTE, **changes: object) -> Exchange:
    """A finished request."""
    fields: dict[str, object] = {
        "request_id": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "route": route,
        "mode": mode,
        "decision": decision,
        "method": "POST",
        "status": 201,
        "total_seconds": 0.0421239,
        "store_seconds": 0.0035,
        "upstream_seconds": 0.03,
        "upstream_status": 201,
        "settlement": "complete",
        "reason": "responded",
        "key_digest": "00112233445566aa",
        "attempt": 1,
        "request_bytes": 120,
        "response_bytes": 340,
    }
    return Exchange(**{**fields, **changes})  # type: ignore[arg-type]  # the fields above have the right types
