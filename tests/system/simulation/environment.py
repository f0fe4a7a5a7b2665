"""Virtual time, seeded randomness and a counting observer: the ports that are not stores or upstreams."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.ports import Counts, FinishedRequest, Swept
from gateway.store.null_observer import NullObserver

if TYPE_CHECKING:
    from tests.system.simulation.loop import SimulatedLoop
    from tests.system.simulation.world import World


T = TypeVar("T")


async def in_place(work: Callable[..., T], *arguments: Any) -> T:
    """What production does in a thread."""
    return work(*arguments)


class VirtualClock:
    """One machine's CLOCK_BOOTTIME: it goes on while the process is frozen, and shows another time than any other machine's."""

    def __init__(self, loop: "SimulatedLoop", offset: float) -> None:
        self._loop = loop
        self._offset = offset

    def boottime(self) -> float:
        return self._loop.time() + self._offset

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def http_date(self) -> bytes:
        return b"Sat, 01 Jan 2028 00:00:00 GMT"


class SeededRandomness:
    """Tokens that are unique over all processes and tell in a story whose they are."""

    def __init__(self, world: "World", who: str) -> None:
        self._world = world
        self._who = who
        self._given = 0

    def token(self) -> bytes:
        self._given += 1
        return f"{self._who}-{self._given}".encode().ljust(16, b".")

    def jitter(self) -> float:
        return self._world.random.random()


class CountingObserver(NullObserver):
    """`gateway.ports.Observer`: what went wrong inside is a violation, unless the upstream was told to raise."""

    def __init__(self, world: "World", who: str) -> None:
        self._world = world
        self._who = who

    def request_started(self, route: str) -> None:
        pass

    def request_ended(self, request: FinishedRequest) -> None:
        pass

    def settled(self, route: str, settlement: str, reason: str) -> None:
        self._world.journal.count(f"settled {settlement}")

    def stale_write(self, operation: str) -> None:
        self._world.journal.count(f"stale {operation}")

    def upstream_unreachable(self, upstream: str, reason: str, cause: str | None) -> None: ...

    def key_noticed(self, route: str, kind: str, key_digest: str) -> None: ...

    def duplicate_seen(self, route: str, key_digest: str) -> None: ...

    def upstream_answered(self, route: str, status: int | None, seconds: float) -> None:
        pass

    def swept(self, swept: Sequence[Swept]) -> None:
        self._world.journal.count("swept")

    def reaped(self, count: int) -> None:
        if count:
            self._world.journal.count("reaped")

    def counted(self, counts: Counts) -> None:
        pass

    def reloaded(self, *, successful: bool) -> None:
        pass

    def reconciled(self, route: str, result: str) -> None:
        return None

    def webhook_event(self, event: object) -> None:
        return None

    def work_began(self, route: str, seconds: float) -> None:
        pass

    def attempt_ended(self, attempt: object) -> None:
        pass

    def abandoned(self, route: str) -> None:
        pass

    def record_lost(self, route: str, request_id: str) -> None:
        self._world.journal.count("record put back")

    def answer_differs(self, route: str, request_id: str) -> None: ...

    def conflicting_execution(self, route: str, request_id: str) -> None:
        return None

    def background_ran(self, task: str) -> None:
        pass

    def background_failed(self, task: str, error: BaseException) -> None:
        if "a defect in the upstream client" not in str(error):
            self._world.fail(f"{self._who}: {task} failed: {error!r}")
