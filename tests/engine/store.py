"""The reference store, with trouble on order."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gateway.core.model import Intent, Lease, Record, RecordKey, StoredResponse, Terms, Tombstone
from gateway.ports import Answered, Doubted, Retention, Settled, StoreUnavailable, Transition
from gateway.ports.accepted import Ended, Parked, Promise, Standing, Taken
from tests.support.memory_store.acceptance import MemoryAcceptance
from tests.support.memory_store.store import MemoryStore

T = TypeVar("T")


class Teller(Protocol):
    """Whom actors tell what they do, and who runs what comes later."""

    def tell(self, line: str) -> None: ...

    def later(self, seconds: float, work: Coroutine[Any, Any, object]) -> None: ...


@dataclass(frozen=True, slots=True)
class Refuses:
    """The store cannot be asked; nothing was sent. `asked`: but somebody else's entry was seen in Redis."""

    asked: bool = False


@dataclass(frozen=True, slots=True)
class Undone:
    """The store was asked, and says that it undid the statement."""


@dataclass(frozen=True, slots=True)
class LosesReply:
    """The statement lands, its reply gets lost."""


@dataclass(frozen=True, slots=True)
class Lands:
    """The caller gets an error; the statement lands `after` seconds later, or (None) never."""

    after: float | None


@dataclass(frozen=True, slots=True)
class Stalls:
    """The statement lands after `seconds`, and answers."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AnswersLate:
    """The statement lands at once, and answers after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fails:
    """The statement lands; what comes of its reply is a defect of ours."""


Trouble = Refuses | Undone | LosesReply | Lands | Stalls | AnswersLate | Fails


class TroubledStore:
    """The reference store, with trouble on order: the next calls of an operation meet what was scripted for them."""

    def __init__(self, stage: Teller, store: MemoryStore) -> None:
        self._stage = stage
        self._store = store
        self._scripts: dict[str, deque[Trouble]] = {}
        self.away = False

    def script(self, operation: str, *troubles: Trouble) -> None:
        """What the next calls of `operation` meet, in order."""
        self._scripts.setdefault(operation, deque()).extend(troubles)

    async def carry_out(self, operation: str, perform: Callable[[], Coroutine[Any, Any, T]]) -> T:
        script = self._scripts.get(operation)
        trouble = Refuses() if self.away else script.popleft() if script else None
        match trouble:
            case None:
                await asyncio.sleep(0.001)
                return await self._land(operation, perform)
            case Refuses(asked):
                self._stage.tell(f"{operation}: refused")
                raise StoreUnavailable("memory", "refused", may_have_landed=False, asked=asked)
            case Undone():
                self._stage.tell(f"{operation}: undone")
                raise StoreUnavailable("memory", "timeout", may_have_landed=False, asked=True)
            case LosesReply():
                await self._land(operation, perform)
            case Fails():
                await self._land(operation, perform)
                raise ZeroDivisionError
            case Stalls(seconds):
                await asyncio.sleep(seconds)
                return await self._land(operation, perform)
            case AnswersLate(seconds):
                result = await self._land(operation, perform)
                await asyncio.sleep(seconds)
                return result
            case Lands(after):
                if after is not None:
                    self._stage.later(after, self._land(operation, perform))
        self._stage.tell(f"{operation}: reply lost")
        raise StoreUnavailable("memory", "timeout", may_have_landed=True)

    async def _land(self, operation: str, perform: Callable[[], Coroutine[Any, Any, T]]) -> T:
        result = await perform()
        self._stage.tell(f"{operation}: {_told(result)}")
        return result

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        return await self.carry_out("reserve", lambda: self._store.reserve(intent))

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        return await self.carry_out("claim", lambda: self._store.claim(found, intent))

    async def lapse(self, found: Record) -> bool:
        return await self.carry_out("lapse", lambda: self._store.lapse(found))

    async def find(self, key: RecordKey) -> Record | None:
        return await self.carry_out("find", lambda: self._store.find(key))

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        return await self.carry_out("complete", lambda: self._store.complete(lease, response, retention))

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        return await self.carry_out("release", lambda: self._store.release(lease, reason, retention))

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        return await self.carry_out("doubt", lambda: self._store.doubt(lease, reason))

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        return await self.carry_out("park", lambda: self._store.park(lease, reason, delay, promise, unstarted=unstarted))

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        return await self.carry_out("restore", lambda: self._store.restore(lease, intent, end))

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        return await self.carry_out("renew", lambda: self._store.renew(leases))

    def now_us(self) -> int | None:
        return self._store.now_us()


def _told(result: object) -> str:
    match result:
        case Lease():
            return f"lease, attempt {result.attempt}"
        case Record():
            return f"{result.status.value}{' (lapsed)' if result.status.value == 'in_progress' and not result.lease_live else ''}"
        case Settled():
            return result.transition.value
        case frozenset():
            return f"{len(result)} renewed"
        case _:
            return str(result).lower()


class TroubledAcceptance:
    """The reference store's part in accepted work, with the troubles that are on order at `store`."""

    def __init__(self, store: TroubledStore, acceptance: MemoryAcceptance) -> None:
        self._store = store
        self._acceptance = acceptance

    async def accept(self, lease: Lease, promise: Promise) -> Transition:
        return await self._store.carry_out("accept", lambda: self._acceptance.accept(lease, promise))

    async def take(self, terms: Terms, limit: int, owners: Sequence[bytes], *, doubtful: float | None = None) -> Sequence[Taken]:
        return await self._store.carry_out("take", lambda: self._acceptance.take(terms, limit, owners, doubtful=doubtful))

    async def give_back(self, owners: Sequence[bytes]) -> int:
        return await self._store.carry_out("give_back", lambda: self._acceptance.give_back(owners))

    async def abandon(self, limit: int, answer: StoredResponse) -> Sequence[Ended]:
        return await self._store.carry_out("abandon", lambda: self._acceptance.abandon(limit, answer))

    async def cancel(self, standing: Standing, answer: StoredResponse) -> Transition:
        return await self._store.carry_out("cancel", lambda: self._acceptance.cancel(standing, answer))

    async def standing(self, key: RecordKey) -> Standing | None:
        return await self._store.carry_out("standing", lambda: self._acceptance.standing(key))

    async def tombstone(self, key: RecordKey) -> Tombstone | None:
        return await self._store.carry_out("tombstone", lambda: self._acceptance.tombstone(key))
