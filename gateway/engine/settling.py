"""Bringing an attempt's outcome to its record: written, put back where the authority has lost it, insisted on where another owns it."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from gateway.core import decision as core
from gateway.core.decision import Complete, Doubt, Release, Settlement
from gateway.core.model import Lease, Record
from gateway.core.packing import INLINE, PACK_BYTES, packed
from gateway.core.policy import Mode
from gateway.engine.dependencies import Dependencies
from gateway.engine.late import Late, Write
from gateway.engine.outcome import Outcome, Response, as_core
from gateway.engine.relay import Relay
from gateway.engine.request import GuardedRequest
from gateway.engine.response_packing import LARGE, keep
from gateway.engine.restore import Restoring
from gateway.engine.retrying import asked_again
from gateway.ports import Retention, Settled, StoreUnavailable, Transition


class Settling:
    """Settles one attempt. `lease` is the one that the record is held by, `expires_at_us` its expiry once it is complete."""

    __slots__ = ("_deps", "_request", "expires_at_us", "lease", "relay")

    def __init__(self, deps: Dependencies, request: GuardedRequest, lease: Lease) -> None:
        self._deps = deps
        self._request = request
        self.lease = lease
        self.relay: Relay | None = None
        self.expires_at_us: int | None = None

    def record(self, settlement: Settlement, outcome: Outcome) -> Awaitable[Transition]:
        """Settle in the authority. Repeating is harmless: the owner token tells our own write."""
        lease, store = self.lease, self._deps.store
        match settlement:
            case Complete():
                assert isinstance(outcome, Response), "only a response completes"
                return self._complete(outcome, partial(store.complete, lease))
            case Release(reason):
                return self._until_settled(partial(store.release, lease, reason, self._request.guard.retention))
            case Doubt(reason):
                return self._until_settled(partial(store.doubt, lease, reason))
            case _:
                assert_never(settlement)

    async def restore(self, settlement: Settlement, outcome: Outcome) -> Transition:
        """There is no record, though this attempt had one: put it back. Another's that is there by now stays, and this one is stale."""
        restoring = Restoring(self._deps, self._request, self.lease)
        match settlement:
            case Complete():
                assert isinstance(outcome, Response), "only a response completes"
                return await self._complete(outcome, restoring.completed)
            case Release():
                return Transition.DONE
            case Doubt(reason):
                return await self._until_settled(partial(restoring.doubted, reason))
            case _:
                assert_never(settlement)

    async def insist(self, settlement: Settlement, outcome: Outcome) -> Transition:
        """The record is not this attempt's, any more or again: bring its word to it all the same, where that counts."""
        policy = self._request.guard.policy
        if not isinstance(settlement, Release) and policy.mode is Mode.ENFORCE:
            lease = await Restoring(self._deps, self._request, self.lease).claimed_again()
            if lease is not None:
                self._deps.keeper.drop(self.lease)
                self.lease = lease
                return await self.record(settlement, outcome)
        if isinstance(outcome, Response) and core.proves_execution(as_core(outcome), policy) and await self._late(outcome).insist():
            return Transition.DONE
        return Transition.STALE

    async def tell_conflict(self, outcome: Outcome, found: Record | None) -> None:
        """If another attempt may have executed, too, as the record `found` says."""
        if found is not None and isinstance(outcome, Response) and core.proves_execution(as_core(outcome), self._request.guard.policy):
            await self._late(outcome).tell_conflict(found)

    def _late(self, outcome: Response) -> Late:
        return Late(self._deps, self._request, self.lease, outcome.status, outcome.digest, partial(self._complete, outcome))

    def _complete(self, outcome: Response, write: Write) -> Awaitable[Transition]:
        """Bring the answer into the form that is kept, and write it."""
        retention = self._request.guard.retention
        if outcome.retention == 0.0:  # the upstream wants its answer kept nowhere; that the operation ran is kept all the same
            return self._until_settled(partial(write, replace(outcome.stored(None), headers=()), retention))
        if outcome.retention is not None:
            retention = Retention.of(self._request.guard.policy, outcome.retention)
        body = outcome.body
        if body is None or (isinstance(body, bytes) and len(body) <= INLINE):
            stored = outcome.stored(body)
            if body is not None and len(body) >= PACK_BYTES:
                stored = packed(stored)
            return self._until_settled(partial(write, stored, retention))
        return self._complete_large(outcome, write, retention)

    async def _complete_large(self, outcome: Response, write: Write, retention: Retention) -> Transition:
        """As `_complete`, for a body that is packed off the event loop, or has to be brought into memory."""
        deps, body = self._deps, outcome.body
        if isinstance(body, bytes):
            return await self._until_settled(partial(write, await keep(deps, outcome.stored(body)), retention))
        assert self.relay is not None, "a body that was not read in one piece was spooled"
        async with deps.large if outcome.length > LARGE else contextlib.nullcontext():
            deps.memory.take(outcome.length)
            try:
                large = await keep(deps, outcome.stored(await self.relay.whole(outcome.length)))
                return await self._until_settled(partial(write, large, retention))
            finally:
                deps.memory.give(outcome.length)

    async def _until_settled(self, write: Callable[[], Awaitable[Settled]]) -> Transition:
        try:
            settled = await write()
        except StoreUnavailable:
            settled = await asked_again(self._deps, write)
        self.expires_at_us = settled.expires_at_us
        return settled.transition
