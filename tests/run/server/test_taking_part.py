"""A start where upstreams are to complete records themselves."""

from dataclasses import replace
from pathlib import Path

from tests.support.gateway import Setup, running
from tests.support.stack import setup, upstream

__all__ = ["setup", "upstream"]

ROUTES = """
  - id: pay
    path: /**
    upstream: payments
    idempotency: {principal: none, participate: {co_commit: true}}
"""


async def test_a_start_warns_of_functions_that_are_not_installed_and_serves(setup: Setup, tmp_path: Path) -> None:
    """A rolling change may install them later; the log says what to run."""
    async with running(replace(setup, routes=ROUTES), tmp_path) as gateway:
        assert (await gateway.get("/readyz"))[0] == 200
        assert "co_commit (pay): its functions are not installed" in gateway.log.read_text()
