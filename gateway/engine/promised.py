"""How an attempt of accepted work is settled: as any, but for one that did not execute: that waits, and is tried again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from gateway.core.accepted import Abandon, Park, after, asked_to_wait
from gateway.core.decision import Complete, Doubt, Release, Settlement
from gateway.core.headers import first
from gateway.core.model import Lease, StoredResponse
from gateway.engine.dependencies import Dependencies
from gateway.engine.outcome import Outcome, Response
from gateway.engine.request import GuardedRequest
from gateway.engine.retrying import until_answered
from gateway.engine.settling import Settling
from gateway.ports import NotSent, NotSentReason, Transition
from gateway.ports.accepted import Parked, Promise

_GIVEN_BACK = frozenset({NotSentReason.SHUTTING_DOWN})
"""Reasons for which another process may go on at once."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """What was promised of the operation under way: it may wait until `until`, on this process's CLOCK_BOOTTIME. `abandoned`: what it is
    completed with when no try is left.
    """

    promise: Promise
    until: float
    abandoned: Callable[[], StoredResponse]


class PromisedSettling(Settling):
    """Settles one attempt of accepted work."""

    __slots__ = ("_commitment",)

    def __init__(self, deps: Dependencies, request: GuardedRequest, lease: Lease, commitment: Commitment) -> None:
        super().__init__(deps, request, lease)
        self._commitment = commitment

    def record(self, settlement: Settlement, outcome: Outcome) -> Awaitable[Transition]:
        """As `Settling.record`. What was not executed is parked; when no try is left it is completed, with the upstream's answer if there
        is one.
        """
        deps = self._deps
        left = self._commitment.until - deps.clock.boottime()
        asked = asked_to_wait(first(outcome.headers, b"retry-after")) if isinstance(outcome, Response) else None
        match after(settlement, self.lease.attempt, left, asked, deps.randomness.jitter()):
            case Complete() | Doubt() as known:
                return super().record(known, outcome)
            case Park(reason, delay):
                return self._park(reason, 0.0 if isinstance(outcome, NotSent) and outcome.reason in _GIVEN_BACK else delay)
            case Abandon() if isinstance(outcome, Response):
                return super().record(Complete(), outcome)
            case Abandon():
                return self._abandon()
            case _ as unreachable:
                assert_never(unreachable)

    async def _park(self, reason: str, delay: float) -> Transition:
        """A record that an event has meanwhile said to be executed is not parked: the release tells its store so."""
        promise = self._commitment.promise
        parked = await until_answered(self._deps, lambda: self._deps.store.park(self.lease, reason, delay, promise))
        match parked:
            case Parked.DONE | Parked.ALREADY | Parked.MISSING:
                return Transition(parked.value)
            case Parked.STALE | Parked.FULL:
                return await super().record(Release(reason), NotSent(NotSentReason.SHUTTING_DOWN))
            case _:
                assert_never(parked)

    async def _abandon(self) -> Transition:
        write = partial(self._deps.store.complete, self.lease, self._commitment.abandoned(), self._request.guard.retention)
        settled = await until_answered(self._deps, write)
        if settled.transition is Transition.DONE:
            self._deps.observer.abandoned(self._request.guard.route_id)
        return settled.transition
