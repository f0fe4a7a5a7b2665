"""The authority behind an unreliable wire: the reference store, and each gateway's own way to it."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.core.attempt_token import AttemptToken
from gateway.core.model import Intent, Lease, Record, RecordKey, StoredResponse, Terms, Tombstone
from gateway.ports import Answered, Counts, Doubted, Retention, Settled, StoreUnavailable, Swept, Transition
from gateway.ports.accepted import Ended, Parked, Promise, Standing, Taken
from gateway.ports.participation import Progress
from tests.support.memory_store.rows import Grave, Row
from tests.support.memory_store.store import MemoryStore
from tests.system.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.system.simulation.world import World

T = TypeVar("T")

EPOCH = 1_700_000_000.0
"""What the authority's clock shows at virtual time 0. No gateway's clock is near it."""


def at_once(step: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, as the reference store's transitions do not."""
    try:
        step.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the reference store waited for something")


class ReplicatedStore(MemoryStore):
    """The reference store with a standby. While that is missed, what is written is seen, and not acknowledged; a failover takes it back."""

    _replicated: tuple[dict[RecordKey, Row], dict[bytes, Grave], list[tuple[float, Record]]] | None = None

    @property
    def unreplicated(self) -> bool:
        return self._replicated is not None

    def miss_standby(self) -> None:
        self._replicated = (dict(self._rows), dict(self._graves), list(self._archive))

    def find_standby(self, *, failover: bool) -> None:
        assert self._replicated is not None
        if failover:
            rows, self._graves, self._archive = self._replicated
            self._rows.clear()  # in place: others hold it, too
            self._rows.update(rows)
        self._replicated = None

    def waits(self, result: object) -> bool:
        """Whether a statement that came to this has written anything, and so waits for the standby: locking a record is writing."""
        match result:
            case Record() | Tombstone():
                written = False
            case Settled(transition):
                written = transition is not Transition.MISSING
            case frozenset():
                written = bool(result)
            case _:
                written = True
        return written and self.unreplicated


class UnreliableStore:
    """`gateway.ports.Store` and `Maintenance` as one gateway's driver: sends statements that may be refused, stall, lose their reply,
    land late or never. `started` of a lease is this gateway's own boottime, as a driver would take it.
    """

    def __init__(self, world: "World", wire: Wire, boottime: Callable[[], float]) -> None:
        self._world = world
        self._authority: ReplicatedStore = world.authority
        self._wire = wire
        self.boottime = boottime
        self._known: tuple[int, float] | None = None

    async def ask(self, name: str, subject: object, perform: Callable[[], T]) -> T:
        sent = self.boottime()

        read: list[int | None] = []

        def land() -> T:
            read.append(self._authority.now_us())
            return perform()

        result = await self._wire.carry(name, subject, land, _never if name == "find" else self._authority.waits)
        if read[0] is not None:
            self._known = (read[0], sent)
        return result

    def now_us(self) -> int | None:
        if self._known is None:
            return None
        now_us, sent = self._known
        return now_us + int((self.boottime() - sent) * 1e6)

    def connected_since(self) -> float | None:
        since = self._wire.connected_since()
        return None if since is None else self.boottime() - (self._world.loop.time() - since)

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        started = self.boottime()
        wanted = _reconcilable(intent)
        found = await self.ask("reserve", intent.key, lambda: self._reserve(wanted))
        return replace(found, started=started) if isinstance(found, Lease) else found

    def _reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        found = at_once(self._authority.reserve(intent))
        if isinstance(found, Lease):
            self._world.oracle.recorded(intent.key, intent.request_id)
        return found

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        started = self.boottime()
        wanted = _reconcilable(intent)
        lease = await self.ask("claim", found.key, lambda: self._claim(found, wanted))
        return None if lease is None else replace(lease, started=started)

    def _claim(self, found: Record, intent: Intent) -> Lease | None:
        lease = at_once(self._authority.claim(found, intent))
        if lease is not None:
            self._world.oracle.recorded(intent.key, intent.request_id)
        return lease

    async def lapse(self, found: Record) -> bool:
        return await self.ask("lapse", found.key, lambda: at_once(self._authority.lapse(found)))

    async def find(self, key: RecordKey) -> Record | None:
        return await self.ask("find", key, lambda: at_once(self._authority.find(key)))

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        return await self.ask("complete", lease.key, lambda: self._complete(lease, response, retention))

    def _complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        settled = at_once(self._authority.complete(lease, response, retention))
        self._world.oracle.settled(lease.key, response, settled)
        return settled

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        return await self.ask("release", lease.key, lambda: self._release(lease, reason, retention))

    def _release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        return at_once(self._authority.release(lease, reason, retention))

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        return await self.ask("doubt", lease.key, lambda: at_once(self._authority.doubt(lease, reason)))

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        return await self.ask("park", lease.key, lambda: at_once(self._authority.park(lease, reason, delay, promise, unstarted=unstarted)))

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        return await self.ask("restore", lease.key, lambda: self._restore(lease, _reconcilable(intent), end))

    def _restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        settled = at_once(self._authority.restore(lease, intent, end))
        if isinstance(end, Answered):
            self._world.oracle.settled(lease.key, end.response, settled)
        return settled

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        return await self.ask("renew", len(leases), lambda: at_once(self._authority.renew(leases)))

    async def progress(self, token: AttemptToken) -> Progress | None:
        """As `gateway.ports.participation.Participation`, of which an attempt needs no more."""
        return await self.ask("find", token.key, lambda: at_once(self._authority.participation.progress(token)))

    async def sweep(self, limit: int) -> Sequence[Swept]:
        return await self.ask("sweep", limit, lambda: at_once(self._authority.sweep(limit)))

    async def reap(self, limit: int) -> int:
        return await self.ask("reap", limit, lambda: at_once(self._authority.reap(limit)))

    async def purge(self, limit: int) -> int:
        return await self.ask("purge", limit, lambda: at_once(self._authority.purge(limit)))

    async def watch_clock(self) -> None:
        await self.ask("clock", None, lambda: at_once(self._authority.watch_clock()))

    async def counts(self) -> Counts:
        raise StoreUnavailable("authority", "not_ready", may_have_landed=False)


class UnreliableAcceptance:
    """`gateway.ports.accepted.Acceptance` over the same wire."""

    def __init__(self, world: "World", store: UnreliableStore) -> None:
        self._world = world
        self._store = store
        self._authority = world.authority.acceptance

    async def accept(self, lease: Lease, promise: Promise) -> Transition:
        return await self._store.ask("accept", lease.key, lambda: at_once(self._authority.accept(lease, promise)))

    async def take(self, terms: Terms, limit: int, owners: Sequence[bytes], *, doubtful: float | None = None) -> Sequence[Taken]:
        started = self._store.boottime()
        taken = await self._store.ask("take", limit, lambda: self._take(terms, limit, owners, doubtful))
        return [replace(one, lease=replace(one.lease, started=started)) for one in taken]

    def _take(self, terms: Terms, limit: int, owners: Sequence[bytes], doubtful: float | None) -> Sequence[Taken]:
        reconcilable = replace(terms, reconcilable=True)
        return at_once(self._authority.take(reconcilable, limit, owners, doubtful=doubtful))

    async def give_back(self, owners: Sequence[bytes]) -> int:
        return await self._store.ask("give_back", len(owners), lambda: at_once(self._authority.give_back(owners)))

    async def abandon(self, limit: int, answer: StoredResponse) -> Sequence[Ended]:
        return await self._store.ask("abandon", limit, lambda: self._abandon(limit, answer))

    def _abandon(self, limit: int, answer: StoredResponse) -> Sequence[Ended]:
        ended = at_once(self._authority.abandon(limit, answer))
        for one in ended:
            self._world.oracle.abandoned(one.request_id, answer)
        return ended

    async def cancel(self, standing: Standing, answer: StoredResponse) -> Transition:
        raise AssertionError("no client cancels")

    async def standing(self, key: RecordKey) -> Standing | None:
        raise AssertionError("no client looks")

    async def tombstone(self, key: RecordKey) -> Tombstone | None:
        return await self._store.ask("find", key, lambda: at_once(self._authority.tombstone(key)))


def _reconcilable(intent: Intent) -> Intent:
    return replace(intent, terms=replace(intent.terms, reconcilable=True))


def _never(_: object) -> bool:
    return False
