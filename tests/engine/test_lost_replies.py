"""Reserves and claims whose reply was lost: go on under a lease that is seen, or answer 503 and take it back. Never both."""

import asyncio
from dataclasses import replace

import pytest

from gateway.core.decision import Label
from gateway.core.model import Status
from gateway.ports import NotSent, NotSentReason
from tests.engine.stage import FORWARD, Stage, refused, scene, told
from tests.engine.store import AnswersLate, Lands, LosesReply, Refuses, Stalls
from tests.engine.upstream import Part


@scene
async def test_a_reserve_that_landed_goes_on(stage: Stage) -> None:
    """The record is ours, in progress and live, as a renewal confirms: the attempt runs, and nothing is released."""
    stage.store.script("reserve", LosesReply())
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 201)
    await stage.quiet()
    assert stage.transcript == [
        "reserve: lease, attempt 1",
        "reserve: reply lost",
        "find: in_progress",
        "renew: 1 renewed",
        "upstream: sent",
        "complete: done",
    ]


@scene
async def test_a_reserve_that_never_landed_is_looked_for_two_leases_long(stage: Stage) -> None:
    """503, nothing sent; the release looks for the record until two leases have passed, for an insert can be blocked that long."""
    stage.store.script("reserve", Lands(None))
    reply = await stage.ask()
    assert (reply.label, refused(reply)) == (Label.STORE_UNAVAILABLE, (503, "store-unavailable"))
    await stage.quiet()
    assert 60 <= stage.loop.time() < 80
    assert stage.transcript[:4] == ["reserve: reply lost", "find: none", "release: missing", "release: missing"]
    assert stage.upstream.sent == []


@scene
async def test_a_reserve_that_lands_late_is_released(stage: Stage) -> None:
    """The background release finds it, and the client's retry executes as attempt 2."""
    stage.store.script("reserve", Lands(20.0))
    assert refused(await stage.ask()) == (503, "store-unavailable")
    await stage.quiet()
    assert stage.transcript[-1] == "release: done"
    assert stage.loop.time() < 40
    record = await stage.record()
    assert (record.status, record.last_error_code) == (Status.FAILED_RETRYABLE, "reserve_reply_lost")
    assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 201)


@scene
async def test_a_released_record_lives_as_long_as_any(stage: Stage) -> None:
    """What was released after a lost reply is kept for the route's retention: `on_expired: gone` must not meet it before."""
    stage.store.script("reserve", Lands(1.0))
    await stage.ask()
    await stage.quiet()
    left = (await stage.record()).expires_in
    assert left is not None
    assert left > 86000


@scene
async def test_a_reserve_that_landed_but_cannot_be_seen_is_not_used(stage: Stage) -> None:
    """If the look fails as well, the request is refused, and the record given back."""
    stage.store.script("reserve", LosesReply())
    stage.store.script("find", Refuses())
    assert refused(await stage.ask()) == (503, "store-unavailable")
    await stage.quiet()
    assert stage.transcript[-1] == "release: done"
    assert stage.upstream.sent == []


@scene
async def test_a_reserve_that_is_seen_but_cannot_be_confirmed_is_not_used(stage: Stage) -> None:
    """What is seen may be taken back by a failover: only a write that is acknowledged says that the record is ours."""
    stage.store.script("reserve", LosesReply())
    stage.store.script("renew", LosesReply())
    assert refused(await stage.ask()) == (503, "store-unavailable")
    await stage.quiet()
    assert stage.transcript[2:5] == ["find: in_progress", "renew: 1 renewed", "renew: reply lost"]
    assert stage.transcript[-1] == "release: done"
    assert stage.upstream.sent == []


@scene
async def test_a_reserve_that_reads_its_own_record_confirms_it(stage: Stage) -> None:
    """A store that repeated the statement sees that it had landed: that is a lost reply like any other."""
    token = bytes(16)
    await stage.memory.reserve(replace(stage.intent(), owner=token))
    stage.randomness = _Known(token)
    stage.engine, stage.keeper = stage.another()
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 201)
    assert stage.transcript[:4] == ["reserve: in_progress", "find: in_progress", "renew: 1 renewed", "upstream: sent"]


@scene
async def test_a_release_in_the_background_outlasts_an_outage(stage: Stage) -> None:
    """It is repeated while the authority is away."""
    stage.store.script("reserve", LosesReply())
    stage.store.script("find", Lands(None))
    stage.store.script("release", Refuses(), Lands(None), Refuses(), LosesReply())
    await stage.ask()
    await stage.quiet()
    assert stage.transcript[-1] == "release: already"


@scene
async def test_a_reserve_whose_record_is_anothers_stops_looking(stage: Stage) -> None:
    """Another's record is in the way: the insert cannot land any more, so the release ends at once."""
    await stage.ask()
    stage.store.script("reserve", Lands(None))
    assert refused(await stage.ask()) == (503, "store-unavailable")
    await stage.quiet()
    assert stage.transcript[-1] == "release: stale"
    assert stage.loop.time() < 5


@scene
async def test_a_lease_that_lapsed_before_it_was_seen_is_not_used(stage: Stage) -> None:
    """Ours, but no longer live: released, not sent under."""
    stage.store.script("reserve", LosesReply())
    stage.store.script("find", Stalls(31.0))
    assert refused(await stage.ask()) == (503, "store-unavailable")
    await stage.quiet()
    assert (await stage.record()).status is Status.FAILED_RETRYABLE
    assert stage.upstream.sent == []


class _Known:
    """The first token is one that the test knows."""

    def __init__(self, token: bytes) -> None:
        self._tokens = [token]

    def token(self) -> bytes:
        return self._tokens.pop()

    def jitter(self) -> float:
        return 0.5


async def _released(stage: Stage) -> None:
    """Leave a record that may be claimed."""
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)))
    await stage.ask()
    stage.transcript.clear()


@scene
async def test_a_claim_that_landed_goes_on(stage: Stage) -> None:
    """As a reserve: attempt 2 is ours, as a renewal confirms."""
    await _released(stage)
    stage.store.script("claim", LosesReply())
    assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 201)
    assert stage.transcript[1:4] == ["claim: lease, attempt 2", "claim: reply lost", "find: in_progress"]
    assert stage.transcript[4] == "renew: 1 renewed"


@scene
async def test_a_claim_that_lands_late_is_released(stage: Stage) -> None:
    """Its release goes on though it sees the record, for the claim may still find it as it was."""
    await _released(stage)
    stage.store.script("claim", Lands(10.0))
    assert refused(await stage.ask()) == (503, "store-unavailable")
    await stage.quiet()
    assert stage.transcript[:4] == ["reserve: failed_retryable", "claim: reply lost", "find: failed_retryable", "release: stale"]
    assert stage.transcript[-2:] == ["claim: lease, attempt 2", "release: done"]
    assert stage.upstream.sent == []


@scene
async def test_a_claim_that_never_lands_leaves_the_record_to_others(stage: Stage) -> None:
    """Meanwhile somebody else may claim it; the late release touches nothing of theirs."""
    await _released(stage)
    stage.store.script("claim", Lands(5.0))
    await stage.ask()
    assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 201)
    await stage.quiet()
    assert stage.transcript[-1] == "release: stale"
    assert told(await stage.ask())[0] is Label.REPLAY


@scene
async def test_a_lost_claim_is_never_forwarded(stage: Stage) -> None:
    """A claim that was refused is no outage to forward in: the record exists."""
    await _released(stage)
    stage.store.script("claim", Refuses())
    assert refused(await stage.ask(FORWARD)) == (503, "store-unavailable")
    assert stage.upstream.sent == []


@scene
async def test_a_handler_cancelled_while_it_reserves_gives_back_what_lands(stage: Stage) -> None:
    """A cancelled call is one whose reply was lost: nothing is sent, and the record is released in the background."""
    stage.store.script("reserve", AnswersLate(1.0))
    handler = stage.begin()
    await stage.clock.sleep(0.5)
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert stage.engine.in_flight == 1
    await stage.quiet()
    assert stage.transcript == ["reserve: lease, attempt 1", "release: done"]


@scene
async def test_a_handler_cancelled_while_it_looks_gives_back_what_landed(stage: Stage) -> None:
    """Also between a lost reply and the look."""
    stage.store.script("reserve", LosesReply())
    stage.store.script("find", Stalls(1.0))
    handler = stage.begin()
    await stage.clock.sleep(0.5)
    handler.cancel()
    await stage.clock.sleep(0.01)
    await stage.quiet()
    assert (await stage.record()).status is Status.FAILED_RETRYABLE


@scene
async def test_a_handler_cancelled_while_it_claims_gives_back_what_landed(stage: Stage) -> None:
    """As while it reserves: the claim has landed, so its attempt is given back."""
    await _released(stage)
    stage.store.script("claim", AnswersLate(1.0))
    handler = stage.begin()
    await stage.clock.sleep(0.5)
    handler.cancel()
    await stage.clock.sleep(0.01)
    await stage.quiet()
    record = await stage.record()
    assert (record.status, record.attempt) == (Status.FAILED_RETRYABLE, 2)
    assert stage.upstream.sent == []
