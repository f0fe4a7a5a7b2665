"""The part of the contract that says how far attempts come, as their upstreams tell."""

import secrets
from dataclasses import replace

import pytest

from gateway.core.attempt_token import AttemptToken
from gateway.core.model import Lease, Status
from gateway.core.recovery_point import RecoveryPoint
from gateway.ports import Transition
from gateway.ports.participation import Participant
from tests.store.contract.harness import (
    KEPT,
    LEASE,
    MAX_EXECUTION,
    RETENTION,
    Harness,
    completed,
    doubted,
    found,
    intent,
    released,
    reserved,
)
from tests.store.contract.resolving import FOUND_ANSWER, complete_executed, fence

CHARGED = RecoveryPoint("charge_created", '{"charge":"ch_1"}')
MAILED = RecoveryPoint("mailed")
ROUTE = "create-charge"


def token(lease: Lease) -> AttemptToken:
    return AttemptToken(lease.key, lease.owner)


class ParticipationContract:
    """A part of `StoreContract`."""

    async def test_a_point_is_kept_with_the_record(self, harness: Harness) -> None:
        """The newest counts; the history has each once, however often it was told."""
        lease = await reserved(harness.store, intent())
        before = await harness.participation.progress(token(lease))
        assert before is not None
        assert (before.attempt, before.point) == (1, None)
        for point in (CHARGED, CHARGED, MAILED):
            told = await harness.participation.advance(token(lease), point)
            assert told is not None
            now = await harness.participation.progress(token(lease))
            assert now is not None
            assert (told.attempt, told.point) == (now.attempt, now.point) == (1, point)
        lines = [(entry.source, entry.what, entry.detail) for entry in await harness.history(lease.key)]
        assert lines == [("upstream", "advanced", {"point": point.label, "attempt": 1}) for point in (CHARGED, MAILED)]

    async def test_a_point_renews_the_lease(self, harness: Harness) -> None:
        """By the lease of its route, from when it is told; it never shortens one, and of an unknown route it renews none."""
        lease = await reserved(harness.store, intent(lease=LEASE))
        other = await reserved(harness.store, intent(lease=LEASE, route_id="nobody-knows"))
        await harness.participation.register([Participant(ROUTE, 2 * LEASE, KEPT, 1000, co_commit=False)])
        for one, left in ((lease, 2 * LEASE), (other, LEASE)):
            told = await harness.participation.advance(token(one), CHARGED)
            assert told is not None
            assert told.lease_left == pytest.approx(left, abs=5)
        await harness.participation.register([Participant(ROUTE, LEASE / 2, KEPT, 1000, co_commit=False)])
        told = await harness.participation.advance(token(lease), MAILED)
        assert told is not None
        assert told.lease_left > LEASE
        await harness.advance(LEASE + 10)
        assert (await found(harness.store, lease.key)).lease_live
        assert not (await found(harness.store, other.key)).lease_live

    async def test_only_the_attempt_that_owns_the_record_tells(self, harness: Harness) -> None:
        """Not one that has ended, not one in doubt, not a stranger, not one that only observes: nothing changes."""
        running, observed = await reserved(harness.store, intent()), await reserved(harness.store, intent(observed=True))
        ended = [await completed(harness), await released(harness), await doubted(harness)]
        strange = AttemptToken(running.key, secrets.token_bytes(16))
        for one in (strange, *map(token, (observed, *ended)), AttemptToken(intent().key, running.owner)):
            before = await harness.store.find(one.key)
            assert await harness.participation.advance(one, CHARGED) is None
            assert await harness.participation.progress(one) is None
            after = await harness.store.find(one.key)
            assert (None if before is None else before.version) == (None if after is None else after.version)
            assert await harness.history(one.key) == []

    async def test_the_next_attempt_is_told(self, harness: Harness) -> None:
        """Also after a doubt that is run again; a new life of the record begins without."""
        lease = await reserved(harness.store, intent(reexecute=True))
        await harness.participation.advance(token(lease), CHARGED)
        await harness.store.doubt(lease, "upstream_timeout")
        await harness.advance(LEASE + MAX_EXECUTION + 1)
        second = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key, reexecute=True))
        assert second is not None
        progress = await harness.participation.progress(token(second))
        assert progress is not None
        assert (progress.attempt, progress.point) == (2, CHARGED)
        assert await harness.participation.advance(token(lease), MAILED) is None
        await harness.store.release(second, "connection_refused", KEPT)
        third = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
        assert third is not None
        progress = await harness.participation.progress(token(third))
        assert progress is not None
        assert (progress.attempt, progress.point) == (3, CHARGED)
        await harness.store.release(third, "connection_refused", KEPT)
        await harness.advance(RETENTION + 1)
        anew = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
        assert anew is not None
        progress = await harness.participation.progress(token(anew))
        assert progress is not None
        assert (progress.attempt, progress.point) == (1, None)

    async def test_another_answers_fields_are_another_answer(self, harness: Harness) -> None:
        """Where somebody else completed the record, a settle that differs in a field alone is told that it is stale."""
        lease = await doubted(harness)
        assert await complete_executed(harness, await fence(harness, lease.key)) is Transition.DONE
        other = replace(FOUND_ANSWER, headers=((b"X-Other", b"1"),))
        assert (await harness.store.complete(lease, other, KEPT)).transition is Transition.STALE
        assert (await harness.store.complete(lease, FOUND_ANSWER, KEPT)).transition is Transition.ALREADY

    async def test_a_point_keeps_nothing_else_from_happening(self, harness: Harness) -> None:
        """The record completes, is released and lapses as any other."""
        lease = await reserved(harness.store, intent())
        await harness.participation.advance(token(lease), CHARGED)
        assert await harness.store.renew([lease]) == {lease.owner}
        await harness.advance(LEASE + 1)
        assert [swept.key for swept in await harness.maintenance.sweep(10)] == [lease.key]
        assert (await found(harness.store, lease.key)).status is Status.UNKNOWN
