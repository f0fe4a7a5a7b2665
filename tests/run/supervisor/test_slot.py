"""One worker's place, with processes that only wait."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.run.supervisor.slot import Backoff, Launch, Slot

WAITS = (sys.executable, "-c", "import time; time.sleep(60)")


async def test_a_replacement_that_comes_while_a_worker_is_being_started_counts(tmp_path: Path) -> None:
    """That worker has the configuration from before: it must not go on beside siblings that have another one."""
    taken: list[str] = []
    ended: list[int] = []
    over = asyncio.Event()

    def snapshot() -> bytes:
        taken.append(accepted[0])
        if len(taken) == 1:  # a reload comes to its end before the process is there
            accepted[0] = "second"
            asyncio.get_running_loop().call_soon(slot.replace)
        else:
            over.set()
        return b""

    def command() -> Sequence[str]:
        return WAITS

    async def ready(_: Path, __: int) -> None: ...

    accepted = ["first"]
    parent, other = os.pipe()
    launch = Launch(command, {}, parent, Backoff(first=0.0), snapshot, ready, lambda _, code: ended.append(code))
    slot = Slot(0, launch, tmp_path / "worker.sock")
    keeper = asyncio.create_task(slot.keep())
    try:
        async with asyncio.timeout(20):
            await over.wait()
        assert taken == ["first", "second"]
        assert len(ended) == 1
    finally:
        slot.kill()
        await keeper
        os.close(parent)
        os.close(other)
