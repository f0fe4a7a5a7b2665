"""Gateways with one rule broken. Each must be found out by the simulation, else the same mistake in the product would not be either."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

from gateway.core.attempt_token import AttemptToken
from gateway.core.model import Fingerprint, Headers, Intent, Lease, Record, RecordKey, Status, StoredResponse, Terms, Tombstone
from gateway.engine.engine import Engine
from gateway.engine.leases import LeaseKeeper
from gateway.engine.lost import LostReply
from gateway.engine.request import GuardedRequest
from gateway.engine.search import Found as Known
from gateway.engine.search import Search
from gateway.ports import Remembered, Retention, Settled, StoreUnavailable, Swept, Transition, UpstreamRequest
from gateway.ports.accepted import Ended, Parked, Promise
from gateway.ports.accepted import Taken as TakenWork
from gateway.ports.participation import Progress
from gateway.store.cached import CachedStore
from gateway.store.completed import CompletedEntry
from gateway.store.quotas import Place
from gateway.store.redis.codec import LEASE_FORMAT, SEAL_LENGTH, LeaseEntry, Seal, decode, encode_lease
from gateway.store.redis.facts import in_progress
from gateway.store.redis.hotpath import Acquired, Found
from gateway.store.replay_cache import _read
from gateway.store.tiered import Taken, TieredStore
from tests.system.simulation.authority import UnreliableAcceptance, UnreliableStore, at_once
from tests.system.simulation.environment import SeededRandomness
from tests.system.simulation.gateway import Rules
from tests.system.simulation.hot import SimulatedHotPath
from tests.system.simulation.upstream import Operation, SimulatedUpstream

LONG = Retention(1000.0)


def _as_owner(found: Record) -> Lease:
    return Lease(found.key, found.record_id, found.owner, found.attempt, 0.0, 0.0)


class ReleasesOnDoubt(UnreliableStore):
    async def doubt(self, lease: Lease, reason: str) -> Settled:
        return await self.release(lease, reason, LONG)


class SweepsToFree(UnreliableStore):
    async def sweep(self, limit: int) -> Sequence[Swept]:
        swept = await super().sweep(limit)
        for one in swept:
            self._free(one.key)
        return swept

    def _free(self, key: RecordKey) -> None:
        found = at_once(self._authority.find(key))
        if found is not None and found.status is Status.UNKNOWN:
            at_once(self._authority.release(_as_owner(found), "swept", LONG))


class CompletesForAnybody(UnreliableStore):
    def _complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        found = at_once(self._authority.find(lease.key))
        return super()._complete(lease if found is None else replace(lease, owner=found.owner), response, retention)


class ReleasesForAnybody(UnreliableStore):
    def _release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        found = at_once(self._authority.find(lease.key))
        return super()._release(lease if found is None else _as_owner(found), reason, retention)


class SaysDoneBeforeTheCommit(UnreliableStore):
    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        self._world.loop.outside(0.05, self._complete, lease, response, retention)
        return Settled(Transition.DONE)


class SendsUnderAnyLease(LeaseKeeper):
    def trusted(self, lease: Lease) -> bool:
        return True


class TakesLapsedLeasesForFree(Engine):
    async def _judge(self, request: GuardedRequest, found: Record | Tombstone, search: Search) -> Known:
        if isinstance(found, Record) and found.status is Status.IN_PROGRESS and not found.lease_live:
            await self._deps.store.release(_as_owner(found), "lapsed", LONG)
            return None
        return await super()._judge(request, found, search)


class GoesOnWithoutLooking(Engine):
    async def _confirm(self, lost: LostReply) -> Lease | None:
        return replace(lost.lease, attempt=1)


class GoesOnByWhatItReads(Engine):
    async def _confirm(self, lost: LostReply) -> Lease | None:
        try:
            found = await self._deps.store.find(lost.lease.key)
        except StoreUnavailable:
            found = None
        if found is not None and found.owner == lost.lease.owner and found.status is Status.IN_PROGRESS and found.lease_live:
            return replace(lost.lease, record_id=found.record_id, attempt=found.attempt, earlier=lost.earlier)
        self._lost.take_back(lost)
        return None


class GoesOnAndReleases(Engine):
    async def _confirm(self, lost: LostReply) -> Lease | None:
        lease = await super()._confirm(lost)
        if lease is not None:
            self._lost.take_back(lost)
        return lease


class ForwardsThoughItAsked(Engine):
    def _asked(self, unavailable: StoreUnavailable, search: Search) -> bool:
        return False


class TellsTheClientWhatItKnowsOfOthers(Engine):
    async def _comparable(self, request: GuardedRequest, found: Record) -> Fingerprint | None:
        return found.fingerprint


class OneTokenForAll(SeededRandomness):
    def token(self) -> bytes:
        return self._who.encode().ljust(16, b".")


class TrustsRedisAlone(TieredStore):
    async def reserve(self, intent: Intent, place: Place | None = None) -> Lease | Record | Tombstone:
        started, lookup = self._clock.boottime(), intent.key.lookup_digest()
        try:
            answer = await self._hot.acquire(lookup, encode_lease(lookup, intent.fingerprint, intent.owner), 1000)
        except StoreUnavailable:
            return await self._authority.reserve(intent)
        known = self._read(lookup, answer.value, intent) if isinstance(answer, Found) else None
        return known if isinstance(known, Record) else Lease(intent.key, UUID(int=0), intent.owner, 1, started, intent.terms.lease)


class TellsMisuseFromRedis(TieredStore):
    async def reserve(self, intent: Intent, place: Place | None = None) -> Lease | Record | Tombstone:
        lookup = intent.key.lookup_digest()
        value = await self._look(lookup)
        entry = None if value is None else decode(lookup, value, self._seal)
        if isinstance(entry, LeaseEntry) and entry.fingerprint != intent.fingerprint:
            return Record(intent.key, UUID(int=0), 0, Status.IN_PROGRESS, entry.fingerprint, entry.owner, 0, "", lease_live=True)
        return await super().reserve(intent, place)

    async def _look(self, lookup: bytes) -> bytes | None:
        try:
            return await self._hot.get(lookup)
        except StoreUnavailable:
            return None


class TellsRedisBeforeTheCommit(TieredStore):
    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        held, now_us = self._held.pop(lease.owner), self._authority.now_us()
        if held is not None and now_us is not None:
            expires = now_us + int(retention.seconds * 1e6)
            fingerprint, request = held.intent.fingerprint, held.intent.request_id
            entry = CompletedEntry(fingerprint, lease.owner, expires, lease.record_id, 0, lease.attempt, request, response)
            self._writes.follow("complete", held.lookup, lease.owner, held.ends, entry)
            await self._writes.drain(0)
        return await super().complete(lease, response, retention)


class BelievesAnothersLease(TieredStore):
    async def _behind(self, taken: Taken, intent: Intent, place: Place | None) -> Lease | Record | Tombstone:
        return await super()._behind(taken, intent, place) if taken.running is None else in_progress(intent.key, taken.running)


class LearnsBeforeTheCommit(CachedStore):
    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        intent, now_us = lease.intent, self.now_us()
        if intent is not None and now_us is not None:
            expires = now_us + int(retention.seconds * 1e6)
            meaning, request_id = intent.fingerprint, intent.request_id
            known = CompletedEntry(meaning, lease.owner, expires, lease.record_id, 0, lease.attempt, request_id, response)
            self._cache.put(lease.key, known, self._clock.boottime())
        return await super().complete(lease, response, retention)


class TellsAnyMeaningFromMemory(CachedStore):
    def known(self, key: RecordKey, fingerprint: Fingerprint, now: float) -> Remembered | None:
        kept = self._cache._answers.get((key.scope_id, key.key))
        entry = _read(kept).entry if isinstance(kept, bytes) else None if kept is None else kept.entry
        known = None if entry is None else super().known(key, entry.fingerprint, now)
        return None if known is None else Remembered(replace(known.record, fingerprint=fingerprint))


class BelievesASlowClock(UnreliableStore):
    def now_us(self) -> int | None:
        now_us = super().now_us()
        return None if now_us is None else now_us - 60_000_000


class MixesUpReplies(SimulatedHotPath):
    """Redis replies that got out of step, to a gateway that does not notice."""

    _last: bytes | None = None

    async def acquire(self, lookup: bytes, value: bytes, ttl_ms: int) -> Acquired | Found:
        answer = await super().acquire(lookup, value, ttl_ms)
        if isinstance(answer, Found):
            last, self._last = self._last, answer.value
            if last is not None:
                mixed = last[:18] + lookup + last[50:]
                return Found(mixed if mixed[0] == LEASE_FORMAT else mixed[:-SEAL_LENGTH] + Seal(b"").of(mixed[:-SEAL_LENGTH]))
        return answer


class ResumesAtOnce(UnreliableStore):
    async def doubt(self, lease: Lease, reason: str) -> Settled:
        settled = await super().doubt(lease, reason)
        row = self._authority._rows.get(lease.key)
        if row is not None and row.status is Status.UNKNOWN:
            self._authority._rows[lease.key] = replace(row, doubtful_until=0.0)
        return settled


class KnowsNoPoint(UnreliableStore):
    async def progress(self, token: AttemptToken) -> Progress | None:
        found = await super().progress(token)
        return None if found is None else replace(found, point=None)


class CompletesByAnyToken(SimulatedUpstream):
    def complete(self, token: AttemptToken, headers: Headers, body: bytes) -> None:
        rows = self._world.authority._rows
        row = rows[token.key]
        if row.status is Status.COMPLETED:
            rows[token.key] = replace(row, status=Status.UNKNOWN)
        super().complete(replace(token, owner=row.owner), headers, body)


class WritesLateWithoutTheFence(SimulatedUpstream):
    def take_late(self, request: UpstreamRequest, fence: Callable[[], bool], kind: str) -> Operation:
        return super().take_late(request, lambda: True, kind)


class TakesWhatIsTaken(UnreliableAcceptance):
    def _take(self, terms: Terms, limit: int, owners: Sequence[bytes], doubtful: float | None) -> Sequence[TakenWork]:
        rows = self._world.authority._rows
        before = dict(rows)
        taken = super()._take(terms, limit, owners, doubtful)
        for one in taken:  # whoever looks next takes it as well
            rows[one.lease.key] = before[one.lease.key]
        return taken


class ParksWhatWasSent(UnreliableStore):
    async def doubt(self, lease: Lease, reason: str) -> Settled:
        parked = await self.park(lease, reason, 0.1, Promise(15.0, LONG, 100, 100))
        return Settled(Transition(parked.value))


class AbandonsWhatIsTaken(UnreliableAcceptance):
    def _abandon(self, limit: int, answer: StoredResponse) -> Sequence[Ended]:
        rows = self._world.authority._rows
        for key, row in list(rows.items()):
            if row.status is Status.IN_PROGRESS and row.accepted_at is not None:
                rows[key] = row.parked(0.0)
        return super()._abandon(limit, answer)


class FreesWhatWasPromised(UnreliableStore):
    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        settled = await self.release(lease, reason, LONG)
        return Parked(settled.transition.value)


MUTANTS: Mapping[str, Rules] = MappingProxyType(
    {
        "releases on doubt": Rules(authority=ReleasesOnDoubt),
        "sweeps lapsed leases to free": Rules(authority=SweepsToFree),
        "completes without looking at the owner": Rules(authority=CompletesForAnybody),
        "releases without looking at the owner": Rules(authority=ReleasesForAnybody),
        "answers before the commit": Rules(authority=SaysDoneBeforeTheCommit),
        "sends without the fence": Rules(keeper=SendsUnderAnyLease),
        "asks no fence at the end of a turn": Rules(upstream=WritesLateWithoutTheFence),
        "takes a lapsed lease for free": Rules(engine=TakesLapsedLeasesForFree),
        "goes on after a lost reply without looking": Rules(engine=GoesOnWithoutLooking),
        "goes on after a lost reply by what it reads": Rules(engine=GoesOnByWhatItReads),
        "goes on after a lost reply, and releases": Rules(engine=GoesOnAndReleases),
        "forwards though something was sent to the authority": Rules(engine=ForwardsThoughItAsked),
        "does not compare fingerprints": Rules(engine=TellsTheClientWhatItKnowsOfOthers),
        "uses an owner token twice": Rules(randomness=OneTokenForAll),
        "trusts Redis alone for what is new": Rules(tiered=TrustsRedisAlone),
        "tells misuse from a lease in Redis": Rules(tiered=TellsMisuseFromRedis),
        "writes Redis before the commit": Rules(tiered=TellsRedisBeforeTheCommit),
        "believes another's lease in Redis": Rules(tiered=BelievesAnothersLease),
        "replays from Redis by a clock that is slow": Rules(authority=BelievesASlowClock),
        "replays from memory before the commit": Rules(cached=LearnsBeforeTheCommit),
        "does not compare fingerprints in memory": Rules(cached=TellsAnyMeaningFromMemory),
        "takes one record's reply for another's": Rules(hot=MixesUpReplies),
        "resumes before the upstream has surely finished": Rules(authority=ResumesAtOnce),
        "lets a superseded token complete": Rules(upstream=CompletesByAnyToken),
        "does not tell where to resume": Rules(authority=KnowsNoPoint),
        "claims without a fence": Rules(acceptance=TakesWhatIsTaken),
        "resets to pending what was sent": Rules(authority=ParksWhatWasSent),
        "ends with a 408 what was claimed": Rules(acceptance=AbandonsWhatIsTaken),
        "frees a key that was promised": Rules(authority=FreesWhatWasPromised),
    }
)
