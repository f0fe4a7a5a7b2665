"""The way between a gateway and a store: where statements and replies get lost."""

import asyncio
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gateway.ports import StoreUnavailable
from tests.system.simulation.scenario import LEASE, StoreFaults

if TYPE_CHECKING:
    from tests.system.simulation.world import World

T = TypeVar("T")


class Fate(enum.Enum):
    """What becomes of one statement."""

    FINE = "fine"
    STALLED = "stalled"
    REFUSED = "refused"
    LOST_REPLY = "lost reply"
    LANDS_LATE = "lands late"
    NEVER_LANDS = "never lands"


class Wire:
    """One gateway's connection to one store. `timeout` is how long the gateway's driver waits for an answer."""

    def __init__(self, world: "World", who: str, store: str, gateway: int, faults: StoreFaults, timeout: float) -> None:
        self._world = world
        self._who = who
        self._store = store
        self._gateway = gateway
        self._faults = faults
        self._timeout = timeout

    async def carry(self, name: str, subject: object, land: Callable[[], T], waits: Callable[[T], bool] = lambda _: False) -> T:
        """Send a statement, which `land` carries out at the store in one step. If what came of it `waits`, there is no reply to it."""
        world, fate = self._world, self._fate()
        loop = world.loop
        reply: asyncio.Future[T] = loop.create_future()
        if fate is not Fate.FINE:
            world.journal.count(f"{self._store} {fate.value}")
            world.journal.tell(self._who, "{} {} to {}: {}", name, subject, self._store, fate.value)
        if fate is not Fate.REFUSED:
            world.oracle.statement_sent(self._store)

        def landed() -> None:
            world.under_way -= 1
            result = land()
            world.journal.tell(self._store, "{} {} of {} -> {}", name, subject, self._who, result)
            if fate in {Fate.FINE, Fate.STALLED} and waits(result):
                world.journal.count(f"{self._store} unreplicated")
                loop.outside(self._timeout, failed)
            elif fate in {Fate.FINE, Fate.STALLED}:
                loop.outside(self._delay(), _set, reply, result)

        def land_in(seconds: float) -> None:
            world.under_way += 1
            loop.outside(seconds, landed)

        def failed() -> None:
            if not reply.done():
                reason = "refused" if fate is Fate.REFUSED else "timeout"
                reply.set_exception(StoreUnavailable(self._store, reason, may_have_landed=fate is not Fate.REFUSED))

        match fate:
            case Fate.FINE:
                land_in(self._delay())
            case Fate.STALLED:
                land_in(world.random.uniform(0.2, 0.9) * self._timeout)
            case Fate.REFUSED:
                loop.outside(self._delay(), failed)
            case Fate.LOST_REPLY:
                land_in(self._delay())
                loop.outside(self._timeout, failed)
            case Fate.LANDS_LATE:
                loop.outside(self._timeout, failed)
                land_in(self._timeout + self._lateness())
            case Fate.NEVER_LANDS:
                loop.outside(self._timeout, failed)
        return await reply

    def connected_since(self) -> float | None:
        """Virtual time since when no outage has been in the way; None during one."""
        return self._world.since_outage(self._store, self._gateway)

    def _fate(self) -> Fate:
        world, faults = self._world, self._faults
        if world.healed:
            return Fate.FINE
        outage = world.outage(self._store, self._gateway)
        if outage is not None:
            begins = world.loop.time() < outage.begins + self._timeout
            return world.random.choice((Fate.LOST_REPLY, Fate.LANDS_LATE) if begins else (Fate.REFUSED, Fate.REFUSED, Fate.NEVER_LANDS))
        drawn = world.random.random()
        for chance, fate in (
            (faults.refused, Fate.REFUSED),
            (faults.lost_reply, Fate.LOST_REPLY),
            (faults.lands_late, Fate.LANDS_LATE),
            (faults.never_lands, Fate.NEVER_LANDS),
            (faults.stalled, Fate.STALLED),
        ):
            if drawn < chance:
                return fate
            drawn -= chance
        return Fate.FINE

    def _delay(self) -> float:
        return self._world.random.choice((0.0, 0.001, 0.001, 0.01))

    def _lateness(self) -> float:
        return self._world.random.choice((0.001, 0.1, LEASE, 2.2 * LEASE)) * self._world.random.random()


def _set(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)
