"""Redis in front of an authority: the order of reads and writes, and what happens while either is away.

Theory of operation. The authority decides. Redis answers only what is already known, and every entry in it ends by
itself.

* **Reserve** asks Redis first: "set this lease if absent, and give me what is there". A completed record with the
  request's fingerprint that has not expired is an answer. In every other case (the lease is now the request's own, or
  another's; another fingerprint; unreadable bytes; Redis away) the gateway asks the authority, whose word is final. It
  never reports a mismatch of fingerprints from Redis: a lease there may belong to a request that the authority is about
  to refuse.
* **Another's lease** says that a request asks or executes, or did until a moment ago: Redis follows a settle, and the
  client that got the outcome may come back before. An answer to a client stays true at every gateway. So the gateway
  confirms a lease with the request's fingerprint with the authority before it becomes an answer, by one look for all
  requests of the process (`looks`). The lease of an attempt of this very process is an answer by itself, if its settle
  has not begun and its lease at the authority may be trusted.
* **Every write after the first** compares the writer's own owner token, so no writer overwrites another's entry, and a
  late write finds its token gone. A completed value enters only over the writer's own lease, only if Redis acknowledged
  having set that lease (a lease that may have been set at any later time could cover an operator's deletion), and only
  after the authority has committed.
* **Settling** goes to the authority first. Redis follows in the background, so that no answer waits for it, until it
  acknowledges or the entry has ended. Until then this process asks the authority about that record.
* **Expiry** is the authority's: entries carry `expires_at` on its clock and are read against an upper estimate of that
  clock. While there is no estimate yet, Redis answers no replay. The host's wall clock is never read.
* **Redis away**: each call fails at once (the link's breaker), and the gateway asks the authority. **Authority away**:
  replays that Redis holds still answer; everything else raises, and the gateway takes back the lease that it set in
  Redis. Under another's entry it raises with `asked`: the operation may be running, or has run, so the gateway must not
  forward the request unguarded.
* **Operators' deletions** reach Redis after the authority. An entry that comes back later, from an older copy of Redis,
  is of a deleted life. `deletions` knows the deleted lives, and a completed record is an answer only if `deletions`
  believes it.
* **Tombstones** are not in Redis, which would gain nothing: only the authority can say that there is none, as every new
  key needs to know, and a request that a tombstone refuses is in no hurry. So no entry can outlive a tombstone, and an
  operator who frees a key need not look for one.
* **Quotas**: an intent with a quota takes its share of it in the step that takes its lease in Redis, so that what Redis
  knows of takes nothing (`quotas`). What the authority then knows better is given back.
* **Observing intents** neither read nor write Redis: their lease there would make the gateway refuse an enforcing
  intent.
* Redis leases are short. `tick` extends those of attempts that outlive half of theirs, and only as long as the
  attempt's lease at the authority may be trusted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import assert_never

from gateway.core.model import Intent, Lease, Record, RecordKey, Status, StoredResponse, Tombstone
from gateway.ports import Answered, Clock, Doubted, Retention, Settled, Store, StoreObserver, StoreUnavailable, Transition
from gateway.ports.accepted import Parked, Promise
from gateway.store.completed import CompletedEntry, completed_entry
from gateway.store.deletions import Deletions, none_deleted
from gateway.store.held import Held, HeldLeases, milliseconds
from gateway.store.limited import claim_within, reserve_within
from gateway.store.looks import Looks
from gateway.store.null_observer import NullObserver
from gateway.store.quotas import Place, QuotaCounter
from gateway.store.redis.codec import LeaseEntry, Seal, decode, encode_completed, encode_lease
from gateway.store.redis.facts import in_progress, replayable
from gateway.store.redis.hotpath import Found, HotPath
from gateway.store.redis.writeback import Following, Writeback

_FORGET_PAUSES = (0.05, 0.1, 0.2, 0.3, 0.4)
"""Seconds between the tries of `forget`."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """Redis holds another's entry, which is no answer by itself. `running`: a lease for the same operation."""

    running: LeaseEntry | None = None


class TieredStore:
    """A `Store` over `authority`, with `hot` in front of it. Owns its background writes; owns neither `authority` nor
    `hot`.

    `lease_ttl` and `replay_ttl` (seconds) bound the life of a lease and of a completed record in Redis, `max_value`
    (bytes) the size of the latter; `secret` keys the seals of its entries; without `deletions` no operator deletes. The
    observer hears of a write to Redis that found its token gone as `redis_` and `extend`, `complete`, `fill` or
    `delete`.
    """

    def __init__(
        self,
        authority: Store,
        hot: HotPath,
        clock: Clock,
        *,
        lease_ttl: float = 5.0,
        replay_ttl: float = 900.0,
        max_value: int = 64 * 1024,
        secret: bytes = b"",
        deletions: Deletions | None = None,
        observer: StoreObserver | None = None,
    ) -> None:
        self._authority = authority
        self.now_us = authority.now_us
        self._hot = hot
        self._clock = clock
        self._lease_ttl = lease_ttl
        self._replay_ttl = replay_ttl
        self._max_value = max_value
        self._seal = Seal(secret)
        self._deletions = deletions
        self.deleted = none_deleted if deletions is None else deletions.deleted
        self._observer = observer or NullObserver()
        self._writes = Writeback(clock, self._observer, self._settle)
        self._held = HeldLeases(hot, clock, self._observer)
        self.quotas = QuotaCounter(clock, hot, self._writes)
        self._looks = Looks(authority.find)

    async def reserve(self, intent: Intent, place: Place | None = None) -> Lease | Record | Tombstone:
        """As `Store.reserve`, except for what Redis does not know of a record that no caller can claim, lapse or
        resolve as it stands.

        * `in_progress`: only `key`, `status`, `fingerprint`, `owner` and `lease_live` are facts; `record_id` is the nil
          UUID, `version` and `attempt` are 0, `request_id` is empty;
        * `completed`, not expired: `version` may be 0.

        `place` is for calls from here.
        """
        if intent.terms.quota is not None and place is None:
            return await reserve_within(self.quotas, self.reserve, intent)
        lookup = intent.key.lookup_digest()
        held: Held | None = None
        if not intent.terms.observed and not self._writes.pending(lookup):
            ttl = min(self._lease_ttl, intent.terms.lease / 2)
            acquire = self._hot.acquire if place is None else place.acquire
            try:
                answer = await acquire(lookup, encode_lease(lookup, intent.fingerprint, intent.owner), milliseconds(ttl))
            except StoreUnavailable as error:
                if error.may_have_landed:
                    self._delete(self._mine(lookup, intent, ttl))
            except asyncio.CancelledError:
                self._delete(self._mine(lookup, intent, ttl))
                raise
            else:
                if isinstance(answer, Found):
                    known = self._read(lookup, answer.value, intent)
                    if known is not None:
                        return known if isinstance(known, Record) else await self._behind(known, intent, place)
                else:
                    held = self._mine(lookup, intent, ttl)
        try:
            found = await self._reserve(intent, place)
        except BaseException:
            if held is not None:
                self._delete(held)
            raise
        if held is not None:
            self._follow(held, found)
        return found

    async def claim(self, found: Record, intent: Intent) -> Lease | None:
        """As `Store.claim`. The attempt has no entry in Redis: the reserve that found the record has taken its lease
        back.
        """
        return await claim_within(self.quotas, self._authority.claim, found, intent)

    async def lapse(self, found: Record) -> bool:
        """As `Store.lapse`."""
        return await self._authority.lapse(found)

    async def find(self, key: RecordKey) -> Record | None:
        """As `Store.find`: always the authority, since what is found may fence a write by its version."""
        return await self._authority.find(key)

    async def complete(self, lease: Lease, response: StoredResponse, retention: Retention) -> Settled:
        """As `Store.complete`. Redis follows in the background."""
        self._held.settle(lease.owner)
        settled = await self._authority.complete(lease, response, retention)
        held = self._held.pop(lease.owner)
        if held is not None:
            match settled.transition:
                case Transition.DONE | Transition.ALREADY if settled.expires_at_us is not None and settled.whole:
                    fingerprint, request_id = held.intent.fingerprint, held.intent.request_id
                    entry = CompletedEntry(
                        fingerprint, lease.owner, settled.expires_at_us, lease.record_id, 0, lease.attempt, request_id, response
                    )
                    self._writes.follow("complete", held.lookup, lease.owner, held.ends, entry)
                case _:
                    self._delete(held)
        return settled

    async def release(self, lease: Lease, reason: str, retention: Retention) -> Settled:
        """As `Store.release`. Redis follows in the background."""
        self._held.settle(lease.owner)
        settled = await self._authority.release(lease, reason, retention)
        self._let_go(lease.owner)
        return settled

    async def doubt(self, lease: Lease, reason: str) -> Settled:
        """As `Store.doubt`. Redis follows in the background."""
        self._held.settle(lease.owner)
        settled = await self._authority.doubt(lease, reason)
        self._let_go(lease.owner)
        return settled

    async def park(self, lease: Lease, reason: str, delay: float, promise: Promise, *, unstarted: bool = False) -> Parked:
        """As `Store.park`. Redis holds nothing of pending records."""
        self._held.settle(lease.owner)
        parked = await self._authority.park(lease, reason, delay, promise, unstarted=unstarted)
        self._let_go(lease.owner)
        return parked

    async def restore(self, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        """As `Store.restore`. The attempt has no entry in Redis any more: the settle that found no record has taken it
        away.
        """
        return await self._authority.restore(lease, intent, end)

    async def renew(self, leases: Sequence[Lease]) -> frozenset[bytes]:
        """As `Store.renew`. Leases in Redis are extended by `tick`."""
        started = self._clock.boottime()
        renewed = await self._authority.renew(leases)
        for lease in leases:
            if lease.owner in renewed:
                self._held.trust(lease.owner, started + lease.duration)
        return renewed

    async def forget(self, key: RecordKey, *, completed: bool = True) -> float:
        """After an operator has deleted a record at the authority, or released it: delete what Redis holds of it.

        Returns the seconds for which some gateway may still answer from Redis: 0.0 when Redis has acknowledged, else
        the longest life of an entry. After the acknowledgement no gateway writes the record again: one that read it
        before writes only over its own lease, and that is gone, too. (`deletions` covers what Redis itself brings
        back.) `completed`: whether the record may have been; else there can be leases alone. Tries for about a second.
        Never raises `StoreUnavailable`.
        """
        lookup = key.lookup_digest()
        for pause in _FORGET_PAUSES:
            try:
                await self._hot.forget(lookup)
            except StoreUnavailable:
                await self._clock.sleep(pause)
            else:
                return 0.0
        # A gateway that had the record before may yet write it over a lease that it took meanwhile, and no later.
        return self._lease_ttl + (self._replay_ttl if completed else 0.0)

    async def tick(self) -> None:
        """Extend the Redis leases of own attempts that have used up half of theirs. To be called about once a second;
        never raises `StoreUnavailable`. An attempt whose lease at the authority can no longer be trusted is let go: its
        entry ends by itself.
        """
        await self._held.tick()

    async def keep_up(self) -> None:
        """Learn of operators' deletions, for ever. Until it has begun, nothing is replayed from Redis."""
        if self._deletions is not None:
            await self._deletions.run()
        await asyncio.Event().wait()

    async def drain(self, timeout: float) -> bool:
        """Wait until Redis has followed all settles so far. False: `timeout` seconds have passed first."""
        return await self._writes.drain(timeout)

    async def close(self, timeout: float) -> None:
        """Give the background writes `timeout` seconds, then drop them: their entries end by themselves."""
        await self._writes.close(timeout)
        await self._looks.close()

    def _read(self, lookup: bytes, value: bytes, intent: Intent) -> Record | Taken | None:
        """What an entry says for certain; that another's entry is there; None for the request's own lease, whose
        acknowledgement was lost.
        """
        entry = decode(lookup, value, self._seal)
        if isinstance(entry, LeaseEntry) and entry.owner == intent.owner:
            return None
        if entry is None or entry.fingerprint != intent.fingerprint:
            return Taken()
        match entry:
            case CompletedEntry():
                if self._deletions is not None and not self._deletions.believes(entry.record_id, self._hot.era(lookup)):
                    return Taken()
                return replayable(intent.key, entry, self.now_us()) or Taken()
            case LeaseEntry():
                return in_progress(intent.key, entry) if self._held.runs(entry.owner) and not intent.terms.accepts else Taken(entry)
            case _:
                assert_never(entry)

    async def _behind(self, taken: Taken, intent: Intent, place: Place | None) -> Lease | Record | Tombstone:
        """What the authority says where another's entry is. The request has none of its own."""
        try:
            if taken.running is not None:
                found = await self._looks.find(intent.key)
                if found is None and intent.terms.gone_for is None:
                    return in_progress(intent.key, taken.running)  # its reserve is on its way
                if found is not None and (not found.observed or found.status is Status.COMPLETED):
                    return found
            # A tombstone, an observed record that is to be taken over, another fingerprint: those are told by a reserve alone.
            return await self._reserve(intent, place)
        except StoreUnavailable as error:
            raise StoreUnavailable(error.store, error.reason, may_have_landed=error.may_have_landed, asked=True) from error

    def _reserve(self, intent: Intent, place: Place | None) -> Awaitable[Lease | Record | Tombstone]:
        return self._authority.reserve(intent) if place is None else place.reserve(self._authority.reserve, intent)

    def _mine(self, lookup: bytes, intent: Intent, ttl: float) -> Held:
        now = self._clock.boottime()
        return Held(lookup, intent, ttl, extended=now, ends=now + ttl)

    def _follow(self, held: Held, found: Lease | Record | Tombstone) -> None:
        """Bring the request's lease in Redis in line with the authority. If the lease was set in vain, what the
        authority holds replaces it, if that is final; else it is deleted.
        """
        match found:
            case Lease():
                self._held.add(held, found.started + found.duration)
            case Record():
                entry = completed_entry(found)
                self._writes.follow("delete" if entry is None else "fill", held.lookup, held.intent.owner, held.ends, entry)
            case Tombstone():
                self._delete(held)

    def _let_go(self, owner: bytes) -> None:
        held = self._held.pop(owner)
        if held is not None:
            self._delete(held)

    def _settle(self, changes: Sequence[Following]) -> None:
        """Put each completed record in the place of its lease, or nothing if Redis is not to have it."""
        now_us = self.now_us()
        for change in changes:
            entry = change.entry
            if entry is None or now_us is None:
                continue
            ttl = min(self._replay_ttl, (entry.expires_at_us - now_us) / 1e6)
            if ttl <= 0:
                continue
            try:
                change.value = encode_completed(change.lookup, entry, self._max_value, self._seal)
            except Exception:  # a defect of ours: it costs Redis this entry, and no other of its command
                _log.exception("A completed record could not be encoded for Redis")
            change.ttl_ms = milliseconds(ttl)
        try:
            self._hot.settle(changes)
        finally:
            for change in changes:
                change.value = None  # a thousand may wait for Redis to come back: each makes its value anew then

    def _delete(self, held: Held) -> None:
        self._writes.follow("delete", held.lookup, held.intent.owner, held.ends)
