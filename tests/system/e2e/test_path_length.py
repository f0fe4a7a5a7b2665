"""No feature makes the path of a request longer unseen: `benchmarks.calls` counts it, and the figures of today are the limits.

Who makes the path shorter lowers them; who has to raise one says why in the commit. Two calls are to spare, for an alarm that rings.
On a machine whose other work delays an answer, more alarms ring: the shortest of 25 requests counts, and of three such counts the least.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from benchmarks.calls import count
from tests.support.upstream import CountingUpstream

LIMITS = {
    #             calls of ours, files of ours, coroutines of ours above the wait for reserve, objects left to the garbage collector
    "new key": {"calls": 340, "files": 77, "frames": 6, "garbage": 1},
    "replay": {"calls": 91, "files": 39, "garbage": 1},
    "unguarded": {"calls": 127, "files": 33, "garbage": 1},
}


async def test_the_path_of_a_request_is_no_longer_than_it_was(
    database: str, redis_db: str, upstream: CountingUpstream, tmp_path: Path
) -> None:
    least: dict[tuple[str, str], int] = {}
    counts: list[dict[str, Any]] = []
    while len(counts) < 3 and (not counts or _longer(least)):
        counts.append(await asyncio.to_thread(count, tmp_path, database, redis_db, upstream.port))
        for request, what in ((request, what) for request, limits in LIMITS.items() for what in limits):
            least[request, what] = min(figures[request][what] for figures in counts)
    assert not _longer(least), f"Python {sys.version_info[:2]}; all figures: {counts}; see python -m benchmarks.calls --functions"


def _longer(least: dict[tuple[str, str], int]) -> dict[str, str]:
    return {
        f"{request}, {what}": f"{found} > {LIMITS[request][what]}"
        for (request, what), found in least.items()
        if found > LIMITS[request][what]
    }
