"""No feature makes the path of a request longer unseen: `benchmarks.calls` counts it, and the figures of today are the limits.

Who makes the path shorter lowers them; who has to raise one says why in the commit. Two calls are to spare, for an alarm that rings.
"""

import asyncio
import sys
from pathlib import Path

from benchmarks.calls import count
from tests.support.upstream import CountingUpstream

LIMITS = {
    #             calls of ours, files of ours, coroutines of ours above the wait for reserve
    "new key": {"calls": 358, "files": 76, "frames": 6},
    "replay": {"calls": 110, "files": 43},
    "unguarded": {"calls": 173, "files": 35},
}


async def test_the_path_of_a_request_is_no_longer_than_it_was(
    database: str, redis_db: str, upstream: CountingUpstream, tmp_path: Path
) -> None:
    figures = await asyncio.to_thread(count, tmp_path, database, redis_db, upstream.port)
    longer = {
        f"{request}, {what}": f"{figures[request][what]} > {limit}"
        for request, limits in LIMITS.items()
        for what, limit in limits.items()
        if figures[request][what] > limit
    }
    assert not longer, f"Python {sys.version_info[:2]}; all figures: {figures}; see python -m benchmarks.calls --functions"
