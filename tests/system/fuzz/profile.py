"""How long the fuzz tests run: in the suite a fixed number of examples, always the same ones; a longer run has others in each round."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings

LONG_RUN = "IDEMPOTENCY_GATEWAY_FUZZ"
"""The environment variable that tells of a longer run. Set before the tests are imported."""


def bounded(examples: int, *, shrink: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Settings of a fuzz test. Without `shrink`, the first failure is reported as it is."""
    return settings(
        max_examples=examples,
        derandomize=LONG_RUN not in os.environ,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
