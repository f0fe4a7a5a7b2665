"""Counts what callers take of their quotas: in Redis, for all processes alike; in this process alone while Redis is away.

Theory of operation. A request takes its share in the very step that takes its lease in Redis (`lua/admit.lua`): only where nothing is known
of its key, so a replay and a duplicate that Redis knows take nothing. If the authority then knows better (Redis was cold), or cannot be
asked, the share is given back. An operation that is claimed again takes a place and no new key, unless the record has expired.

A place is held until the attempt has ended, in this process by its owner token. In Redis it ends by itself after the route's lease, and
is held again while the attempt lives: a process that was killed takes no place for longer, and a Redis that lost its data learns it anew.

In a cluster the lease and the share are taken in two steps, since keys are in all slots and a caller's quota is in one.

While Redis is away each process counts what it begins itself, from a full burst on: N processes then let in N times as much. What is given
back to a Redis that is away is told it later, as long as that counts.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from gateway.core.model import Intent, Lease, Record, Tombstone
from gateway.core.quota import Exceeded, Limit, give_back, take
from gateway.ports import Clock, StoreUnavailable
from gateway.ports.quotas import OverQuota
from gateway.store.held import milliseconds
from gateway.store.redis.hotpath import Acquired, Found, HotPath, Outcome, Refused, Share, Told
from gateway.store.redis.writeback import Writeback

Reserve: TypeAlias = Callable[[Intent], Awaitable[Lease | Record | Tombstone]]

_HOLD_AT_ONCE = 128
_REMEMBERED = 65536
"""Callers whose new keys are counted here at most; beyond that the first of them starts anew."""

_NO_PLACE_WAIT = 1_000_000
_UNDO_FOR = 60.0
"""Seconds for which a new key that was none is given back."""


class QuotaCounter:
    """What this process knows of its callers' quotas; `Quotas` of the engine. Without `hot` it counts alone."""

    def __init__(self, clock: Clock, hot: HotPath | None = None, writes: Writeback | None = None) -> None:
        self.hot = hot
        self.clock = clock
        self.writes = writes
        self.running: Counter[str] = Counter()
        self.taken: OrderedDict[str, float] = OrderedDict()
        self._places: dict[bytes, Place] = {}

    def now(self) -> float:
        """The instant in whole microseconds: with parts of one, sums are rounded, and the last of a burst is refused now and then."""
        return float(int(self.clock.boottime() * 1e6))

    def place(self, intent: Intent, *, new_key: bool = True) -> "Place":
        """What this request would take; nothing is taken yet. `new_key`: where it executes, it begins a new operation."""
        return Place(self, intent, new_key=new_key)

    def regain(self, intent: Intent) -> None:
        """As `Quotas.regain`. Redis hears of it with the next `tick`."""
        if intent.terms.quota is not None and intent.terms.quota.in_flight:
            self.place(intent, new_key=False).regain()

    def give_back(self, owner: bytes) -> None:
        """As `Quotas.give_back`."""
        place = self._places.pop(owner, None)
        if place is not None:
            place.undo()

    def leave(self, owner: bytes) -> None:
        """As `Quotas.leave`."""
        place = self._places.pop(owner, None)
        if place is not None:
            place.free()

    def keep(self, place: "Place") -> None:
        """It is held until its attempt leaves, or what was to be accepted is."""
        self._places[place.share.owner] = place

    async def tick(self) -> None:
        """Hold the places of attempts that have used up half of their time, and forget what is earned again. To be called about once a
        second; never raises `StoreUnavailable`.
        """
        now = self.clock.boottime()
        for scope_id in [scope_id for scope_id, tat in self.taken.items() if tat <= now * 1e6]:
            del self.taken[scope_id]
        due = [owner for owner, place in self._places.items() if place.share.places and now >= place.held + place.ttl / 2]
        for start in range(0, len(due) if self.hot is not None else 0, _HOLD_AT_ONCE):
            await asyncio.gather(*map(self._hold, due[start : start + _HOLD_AT_ONCE]))

    async def _hold(self, owner: bytes) -> None:
        place = self._places.get(owner)
        if place is None or self.hot is None:
            return
        place.known = True
        try:
            await self.hot.hold(place.share)
        except StoreUnavailable:
            return
        place.held = self.clock.boottime()
        if owner not in self._places:  # it left meanwhile, perhaps before Redis heard of the hold
            place.tell_left()


class Place:
    """The share of one statement, under its owner token. `ttl`: seconds after which its place ends by itself, counted from `held`. `known`:
    Redis has it, or may have.
    """

    __slots__ = ("_accepts", "_away", "_counter", "_here", "_taken", "held", "known", "share", "ttl")

    def __init__(self, counter: QuotaCounter, intent: Intent, *, new_key: bool) -> None:
        quota, self.ttl = intent.terms.quota, intent.terms.lease
        assert quota is not None, "asked before"
        keys = quota.new_keys if new_key else None
        interval, burst = (0.0, 0) if keys is None else (keys.interval, keys.at_once)
        self.share = Share(intent.key.scope_id, intent.owner, interval, burst, quota.in_flight or 0, milliseconds(self.ttl))
        self.held = counter.clock.boottime()
        self._counter = counter
        self._accepts = intent.terms.accepts
        self._taken = False
        self._here = False
        self._away = counter.hot is None
        self.known = False

    # ---- take

    async def acquire(self, lookup: bytes, value: bytes, ttl_ms: int) -> Acquired | Found:
        """As `HotPath.acquire`, and the share is taken with the lease. Raises `OverQuota`."""
        hot = self._counter.hot
        assert hot is not None, "the caller has it"
        if hot.link.spread:
            return await self._acquire_apart(hot, lookup, value, ttl_ms)
        try:
            answer = await hot.admit(self.share, (lookup, value, ttl_ms))
        except StoreUnavailable as error:
            self._away, self.known = True, error.may_have_landed
            raise
        self._judge(answer)
        assert not isinstance(answer, Refused), "raised"
        return answer

    async def _acquire_apart(self, hot: HotPath, lookup: bytes, value: bytes, ttl_ms: int) -> Acquired | Found:
        """In a cluster, where the lease and the quota are in two slots: a step more, for keys that Redis knows nothing of."""
        answer = await hot.acquire(lookup, value, ttl_ms)
        if isinstance(answer, Found):
            return answer
        try:
            self._judge(await hot.admit(self.share))
        except StoreUnavailable as error:
            self._away, self.known = True, error.may_have_landed
        except OverQuota:
            if self._counter.writes is not None:
                until = self._counter.clock.boottime() + ttl_ms / 1000
                self._counter.writes.follow("delete", lookup, self.share.owner, until)
            raise
        return answer

    async def reserve(self, reserve: Reserve, intent: Intent) -> Lease | Record | Tombstone:
        """What the authority's reserve gives. The share is taken before, where it was not with a lease in Redis: Redis was not asked, holds
        another's entry, or could not count. Raises `OverQuota`.
        """
        if self._away:
            self.take_here()
        elif not self._taken:
            await self.take()
        return await reserve(intent)

    async def take(self) -> None:
        """Take the share. Raises `OverQuota`."""
        hot = self._counter.hot
        if hot is not None:
            try:
                self._judge(await hot.admit(self.share))
            except StoreUnavailable as error:
                self.known = error.may_have_landed
            else:
                return
        self.take_here()

    def take_here(self) -> None:
        """Take the share by what this process knows alone. Raises `OverQuota`."""
        share, counter = self.share, self._counter
        if share.places and counter.running[share.scope_id] >= share.places:
            raise OverQuota(Exceeded(Limit.IN_FLIGHT, _NO_PLACE_WAIT))
        if share.interval:
            tat, wait = take(counter.taken.get(share.scope_id, 0.0), counter.now(), share.interval, share.burst)
            if wait:
                raise OverQuota(Exceeded(Limit.NEW_KEYS, wait))
            if len(counter.taken) >= _REMEMBERED:
                counter.taken.popitem(last=False)
            counter.taken[share.scope_id] = tat
        self._here = True
        self._took()

    def _judge(self, answer: Acquired | Found | Refused) -> None:
        match answer:
            case Acquired():
                self.known = True
                self._took()
            case Refused(0):
                raise OverQuota(Exceeded(Limit.IN_FLIGHT, _NO_PLACE_WAIT))
            case Refused(wait):
                raise OverQuota(Exceeded(Limit.NEW_KEYS, wait))
            case Found():
                pass

    def _took(self) -> None:
        self._taken = True
        if self.share.places:
            self._counter.running[self.share.scope_id] += 1

    def regain(self) -> None:
        """Hold a place, whatever the limit, and have Redis know it soon."""
        self._took()
        self.held -= self.ttl
        self._counter.keep(self)

    # ---- give back

    def end(self, found: Lease | Record | Tombstone | None) -> None:
        """What has become of the statement: the place is kept for an attempt, or the share is given back."""
        if not isinstance(found, Lease):
            self.undo()
        elif self._taken and (self.share.places or self._accepts):
            self._counter.keep(self)

    def undo(self) -> None:
        """The request took nothing, as it has turned out. What a cancelled or lost step may have taken ends by itself."""
        if not self._taken:
            return
        self._left()
        share, counter = self.share, self._counter
        if not self._here:
            self._tell("undo", _UNDO_FOR)
        elif share.interval:
            counter.taken[share.scope_id] = give_back(counter.taken.get(share.scope_id, 0.0), counter.now(), share.interval)

    def free(self) -> None:
        """The attempt has ended."""
        self._left()
        if self.share.places:
            self.tell_left()

    def tell_left(self) -> None:
        """Have Redis know that the place is free. What was counted here alone is no news to it: while it is away such writes would wait for
        as long as a lease lasts, and leave no room for those that follow a settle.
        """
        if self.known:
            self._tell("leave", self.ttl)

    def _left(self) -> None:
        self._taken = False
        share, running = self.share, self._counter.running
        if share.places:
            running[share.scope_id] -= 1
            if running[share.scope_id] <= 0:
                del running[share.scope_id]

    def _tell(self, operation: str, seconds: float) -> None:
        hot, writes = self._counter.hot, self._counter.writes
        if hot is not None and writes is not None:
            write = partial(hot.leave, self.share) if operation == "leave" else self._tell_undone
            # Not gathered: the caller's next step, a claim or another request, may follow at once, and must not meet this share.
            writes.write(operation, self.share.owner, write, self._counter.clock.boottime() + seconds)

    def _tell_undone(self, told: Told) -> None:
        def heard(outcome: Outcome) -> None:
            if isinstance(outcome, StoreUnavailable) and outcome.may_have_landed:
                self.share = self.share._replace(interval=0.0)  # a new key that may have been given back is not given back again
            told(outcome)

        hot = self._counter.hot
        assert hot is not None, "asked before"
        hot.undo(self.share, heard)
