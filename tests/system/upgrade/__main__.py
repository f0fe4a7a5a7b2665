"""A rolling upgrade by command: see `scripts/upgrade --help`."""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.support.gateway import Setup
from tests.support.services import Services
from tests.support.upstream import CountingUpstream
from tests.system.upgrade.rolling import Outcome, roll

HERE = Path(__file__).parents[3]


async def upgraded(before: Path, seconds: float) -> tuple[Outcome, CountingUpstream]:
    """A run against servers of its own."""
    services, upstream = Services(), CountingUpstream()
    await upstream.start()
    try:
        postgres, redis = await asyncio.to_thread(services.postgres), await asyncio.to_thread(services.redis)
        dsn = await asyncio.to_thread(services.empty_database, postgres)
        setup = Setup(dsn, upstream.port, redis.url, defaults="{lease: 10s}", timeouts="{first_byte: 10s, total: 20s}")
        with tempfile.TemporaryDirectory() as folder:
            outcome = await roll(setup, upstream, Path(folder), before, HERE, clients=24, seconds=seconds, tell=partial(print, flush=True))
        return outcome, upstream
    finally:
        await upstream.stop()
        await asyncio.to_thread(services.stop)


def main() -> int:
    """0: no error and no second run; 1: there was one, and it is on stdout."""
    parser = argparse.ArgumentParser(
        prog="scripts/upgrade",
        description="Two gateways of another commit are replaced by those of this tree, one by one, and one of them back and forth again, "
        "under traffic. Each answer is checked, and each operation must have run once. Both run with this tree's packages.",
    )
    parser.add_argument("before", help="the commit or tag of the release before")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each of six stages lasts (default 6)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(before), chosen.before], cwd=HERE, check=True)
        try:
            outcome, upstream = asyncio.run(upgraded(before, chosen.seconds))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(before)], cwd=HERE, check=True)
    answers = ", ".join(f"{count} of {status} {problem or ''}".strip() for (status, problem), count in outcome.answers.items())
    print(f"{len(upstream.runs)} operations, {sum(upstream.runs.values())} runs; answers: {answers}; {outcome.moved} moved on")
    for story in outcome.broken[:20]:
        print(story)
    print(f"{len(outcome.broken)} promises broken")
    return int(bool(outcome.broken))


if __name__ == "__main__":
    sys.exit(main())
