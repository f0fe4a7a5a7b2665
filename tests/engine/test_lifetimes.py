"""Attempts belong to the process: clients may go, the process may be told to stop, and the lease keeper goes on through everything."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from gateway.core.decision import Label
from gateway.core.model import Lease, RecordKey, Status
from gateway.engine.leases import LeaseKeeper
from gateway.ports import NotSent, NotSentReason, Retention
from tests.engine.stage import KEY, Stage, refused, scene, told
from tests.engine.store import AnswersLate, Lands, LosesReply, Refuses, Stalls
from tests.engine.upstream import Part


@scene
async def test_a_cancelled_handler_leaves_its_attempt_running(stage: Stage) -> None:
    """The client hung up while the upstream worked: the operation completes, and the retry replays it."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    handler = stage.begin()
    await stage.clock.sleep(1)
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert stage.engine.in_flight == 1
    await stage.quiet()
    assert told(await stage.ask())[0] is Label.REPLAY
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_handler_cancelled_during_the_settle_leaves_it_running(stage: Stage) -> None:
    """Also between the upstream's answer and the commit."""
    stage.store.script("complete", Stalls(1.0))
    handler = stage.begin()
    await stage.clock.sleep(0.5)
    handler.cancel()
    await stage.clock.sleep(0.1)
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_drain_waits_for_what_is_running(stage: Stage) -> None:
    """Attempts that end in time settle as ever, background releases too."""
    stage.upstream.plays(Part(pauses=(3.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    assert await stage.engine.drain(10.0)
    assert stage.loop.time() < 4
    assert told(await asked)[1] == 201


@scene
async def test_a_drain_ends_executing_attempts_in_doubt(stage: Stage) -> None:
    """At the timeout what is at the upstream becomes unknown at once, and its client hears so; nobody waits for a lease to lapse."""
    stage.upstream.plays(Part(pauses=(100.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    assert await stage.engine.drain(5.0)
    assert 5.5 <= stage.loop.time() < 5.6
    assert refused(await asked) == (502, "outcome-unknown")
    record = await stage.record()
    assert (record.status, record.last_error_code) == (Status.UNKNOWN, "gateway_stopped")


@scene
async def test_what_was_answered_in_the_moment_of_the_stop_ends_in_doubt_too(stage: Stage) -> None:
    """The head has come, nobody reads yet, and the body takes its time: it is not waited for until the lease lapses."""
    draining: list[asyncio.Task[bool]] = []
    drain = lambda: draining.append(stage.loop.create_task(stage.engine.drain(0.0)))  # noqa: E731 - it is called once
    stage.upstream.plays(Part(pauses=(1.0, 100.0), comes=drain))
    asked = stage.begin()
    await stage.clock.sleep(1.5)
    assert await draining[0]
    assert stage.loop.time() < 2
    assert refused(await asked) == (502, "outcome-unknown")
    assert (await stage.record()).last_error_code == "gateway_stopped"


@scene
async def test_a_drain_gives_up_what_cannot_be_settled(stage: Stage) -> None:
    """With the authority away the rest is given up after the grace; every client has an answer."""
    stage.upstream.plays(Part(pauses=(100.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    stage.store.away = True
    assert not await stage.engine.drain(5.0, grace=3.0)
    assert stage.loop.time() < 9
    assert refused(await asked) == (502, "outcome-unknown")
    assert (await stage.record()).status is Status.IN_PROGRESS
    stage.store.away = False


@scene
async def test_a_drain_gives_up_background_releases(stage: Stage) -> None:
    """A release that still looks for its record is not waited for beyond the timeout."""
    stage.store.script("reserve", Lands(None))
    await stage.ask()
    assert await stage.engine.drain(5.0)
    assert stage.loop.time() < 6
    assert stage.engine.in_flight == 0


@scene
async def test_nothing_is_sent_once_a_drain_has_run_out_of_time(stage: Stage) -> None:
    """A request that got its lease meanwhile is released, its client told that nothing was sent; what is stored still goes out."""
    stage.store.script("reserve", Stalls(3.0))
    late = stage.begin()
    assert await stage.engine.drain(1.0)
    assert refused(await late) == (503, "upstream-unreachable")
    assert (await stage.record()).last_error_code == NotSentReason.SHUTTING_DOWN.value
    assert stage.upstream.sent == []


@scene
async def test_an_attempt_that_has_not_begun_is_stopped_before_it_sends(stage: Stage) -> None:
    """A drain without any time, in the very moment in which an attempt was made: no answer is lost, nothing is sent."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    asked = stage.begin()
    await stage.attempt_made()
    assert await stage.engine.drain(0.0)
    assert refused(await asked)[0] in {502, 503}
    assert (await stage.record()).status in {Status.FAILED_RETRYABLE, Status.UNKNOWN}


@scene
async def test_what_is_held_back_as_the_process_stops_is_not_sent(stage: Stage) -> None:
    """Nor is it in doubt: its client is told so, and its key is free for a retry."""
    stage.upstream.plays(Part(held_for=5.0))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    held = bool(stage.upstream.held)  # else a task dials, of which the stop cannot tell that it has sent nothing
    assert await stage.engine.drain(1.0)
    assert refused(await asked) == ((503, "upstream-unreachable") if held else (502, "outcome-unknown"))
    assert (await stage.record()).last_error_code == (NotSentReason.SHUTTING_DOWN.value if held else "gateway_stopped")
    assert stage.upstream.sent == []


@scene
async def test_a_drain_waits_for_attempts_that_begin_meanwhile(stage: Stage) -> None:
    """A request that was being reserved when the drain began is served to its end."""
    stage.upstream.plays(Part(pauses=(1.0,)), Part(pauses=(3.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.5)
    later = stage.begin(engine=stage.engine)
    draining = stage.loop.create_task(stage.engine.drain(10.0))
    assert told(await first)[1] == 201
    assert refused(await later) == (409, "request-in-progress")
    assert await draining


@scene
async def test_an_attempt_killed_before_its_first_step_still_answers(stage: Stage) -> None:
    """Whatever ends the task, the client is not left waiting."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    asked = stage.begin()
    await stage.attempt_made()
    assert not await stage.engine.drain(0.0, grace=0.0)
    assert refused(await asked) == (502, "outcome-unknown")


@scene
async def test_the_keeper_survives_whatever_a_round_meets(stage: Stage) -> None:
    """An authority that is away, a lost reply, a defect: renewals go on."""
    stage.store.script("renew", Refuses(), LosesReply(), Lands(None))
    stage.upstream.plays(Part(dials=100.0))
    keeping = stage.loop.create_task(stage.keeper.run())
    assert told(await stage.ask())[1] == 201
    assert stage.observer.failures == []
    assert not keeping.done()
    keeping.cancel()


@scene
async def test_a_keeper_whose_tick_fails_goes_on(stage: Stage) -> None:
    """Also a defect in what the keeper calls is reported, not fatal."""
    keeper = stage.ticking(ZeroDivisionError())
    keeping = stage.loop.create_task(keeper.run())
    await stage.clock.sleep(2)
    assert {task for task, _ in stage.observer.failures} == {"renew"}
    assert not keeping.done()
    keeping.cancel()


@scene
async def test_a_short_lease_beside_a_long_one_is_renewed_in_time(stage: Stage) -> None:
    """The keeper does not rest as long as the leases allow that it held before."""
    ticks: list[float] = []

    async def tick() -> None:
        ticks.append(stage.clock.boottime())

    keeper = LeaseKeeper(stage.store, stage.clock, stage.observer, tick)
    keeping = stage.loop.create_task(keeper.run())
    long = await stage.memory.reserve(stage.intent())
    short = await stage.memory.reserve(replace(stage.intent(), key=RecordKey(KEY.scope_id, "short")))
    assert isinstance(long, Lease)
    assert isinstance(short, Lease)
    keeper.hold(replace(long, duration=600.0))
    await stage.clock.sleep(2)
    keeper.hold(replace(short, started=stage.clock.boottime(), duration=0.3))
    for _ in range(50):
        await stage.clock.sleep(0.1)
        assert keeper.trusted(short)
    assert max(later - earlier for earlier, later in pairwise(ticks)) <= 1.0
    keeping.cancel()


@scene
async def test_a_renewal_that_is_refused_is_counted_and_not_trusted(stage: Stage) -> None:
    """A lease that the authority gave to another is never trusted longer."""
    lease = await stage.memory.reserve(stage.intent())
    assert isinstance(lease, Lease)
    stage.keeper.hold(lease)
    await stage.memory.release(lease, "verdict", Retention(1000.0))
    await stage.clock.sleep(11)
    await stage.keeper.renew_due()
    assert stage.observer.stale == ["renew"]
    assert stage.keeper.trusted(lease)
    await stage.clock.sleep(16.5)
    assert not stage.keeper.trusted(lease)
    stage.keeper.drop(lease)
    stage.keeper.drop(lease)


@scene
async def test_a_slow_renewal_does_not_stretch_the_lease(stage: Stage) -> None:
    """Trust runs from before the renewal was sent, not from its answer."""
    lease = await stage.memory.reserve(stage.intent())
    assert isinstance(lease, Lease)
    stage.keeper.hold(lease)
    await stage.clock.sleep(11)
    stage.store.script("renew", AnswersLate(9.0))
    await stage.keeper.renew_due()
    await stage.clock.sleep(11 + 26.9 - 20)
    assert stage.keeper.trusted(lease)
    await stage.clock.sleep(0.2)
    assert not stage.keeper.trusted(lease)
    stage.keeper.drop(lease)


@scene
async def test_a_lease_that_nobody_holds_is_not_trusted(stage: Stage) -> None:
    """Trust ends with the attempt, and never begins for a lease that was not held."""
    lease = await stage.memory.reserve(stage.intent())
    assert isinstance(lease, Lease)
    assert not stage.keeper.trusted(lease)


@scene
async def test_two_attempts_on_one_key_are_kept_apart(stage: Stage) -> None:
    """An older attempt that still settles does not end the waiting for a newer one."""
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)), Part(pauses=(5.0,)))
    stage.store.script("release", LosesReply(), Stalls(2.0))
    old = stage.begin()
    await stage.clock.sleep(0.5)
    new = stage.begin()
    assert refused(await old) == (502, "upstream-unreachable")
    assert told(await new)[:2] == (Label.EXECUTE_RETRY, 201)
