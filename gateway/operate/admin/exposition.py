"""What the gateway tells Prometheus, read back: the one source of the console's figures and of those of the API."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LINE = re.compile(r"(idempotency_[a-z_]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

_WANTED = (
    "idempotency_requests_total",
    "idempotency_in_flight",
    "idempotency_route_",
    "idempotency_records",
    "idempotency_redis_breaker_open",
    "idempotency_upstream_target_up",
    "idempotency_store_duration_seconds_sum",
    "idempotency_store_duration_seconds_count",
    "idempotency_store_errors_total",
    "idempotency_dead_letters",
    "idempotency_unknown_oldest_age_seconds",
    "idempotency_pending_oldest_age_seconds",
    "idempotency_config_last_reload_successful",
)
"""How the names begin of what figures are made of: there may be thousands of other series."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a reading."""

    name: str
    labels: Mapping[str, str]
    value: float


Reading = Sequence[Series]


def read(exposition: str) -> Reading:
    """The series of the Prometheus text format that figures are made of. Lines that are none are left out."""
    return [series for line in exposition.splitlines() if line.startswith(_WANTED) and (series := _series(line)) is not None]


def _series(line: str) -> Series | None:
    found = _LINE.match(line)
    if found is None:
        return None
    try:
        value = float(found[3])
    except ValueError:
        return None
    labels = {
        name: re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), text) for name, text in _LABEL.findall(found[2] or "")
    }
    return Series(found[1], labels, value)


def total(reading: Reading, name: str, **labels: str) -> float:
    """The sum of all series of this name that have these labels."""
    return sum(
        one.value for one in reading if one.name == name and all(one.labels.get(label) == wanted for label, wanted in labels.items())
    )
