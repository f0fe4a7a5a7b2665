"""Accepted work in one process: promised, run, tried again, taken from others, given back."""

import asyncio
from dataclasses import replace

import pytest

from gateway.core.decision import Label
from gateway.core.model import RecordKey, Status
from gateway.core.policy import Execution, Limits, MaxPending, OnUnknown, Policy
from gateway.engine.accepted import AcceptedWork
from gateway.engine.answers import Promised, Reply
from gateway.engine.engine import Engine
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason
from tests.engine.stage import ABANDONED, KEY, POLICY, Stage, refused, scene, told
from tests.engine.store import AnswersLate, Fails, Lands, LosesReply, Refuses, Stalls, Trouble
from tests.engine.upstream import Part

ASYNC = replace(POLICY, execution=Execution.ASYNC, pending_for=600.0)
REPEATS = replace(ASYNC, on_unknown=OnUnknown.REEXECUTE)
AWAY = Part(raises_unsent=NotSent(NotSentReason.CONNECT_REFUSED))


async def ask(stage: Stage, policy: Policy = ASYNC, *, key: RecordKey = KEY, engine: Engine | None = None, patience: int = 0) -> Reply:
    """One request that is answered before it is executed."""
    request = stage.request(policy=policy)
    request.key, request.later, request.patience = key, True, patience
    return await (engine or stage.engine).handle(request)


def promised(reply: Reply) -> Status:
    """As what the operation was promised."""
    assert (reply.label, type(reply.answer)) == (Label.ACCEPTED, Promised)
    assert isinstance(reply.answer, Promised)
    return reply.answer.status


def work_of(stage: Stage, policy: Policy = ASYNC, engine: Engine | None = None) -> AcceptedWork:
    """What runs accepted work, with the stage's route."""
    work = (engine or stage.engine).accepted
    assert work is not None
    work.serve([stage.request(policy=policy).guard])
    return work


@scene
async def test_it_is_promised_and_run(stage: Stage) -> None:
    """The client is told before the upstream answers; a retry gets the answer."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    assert promised(await ask(stage)) is Status.IN_PROGRESS
    assert promised(await ask(stage)) is Status.IN_PROGRESS
    assert (await stage.record()).accepted
    await stage.quiet()
    assert told(await ask(stage))[:2] == (Label.REPLAY, 201)
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_client_that_waits_gets_the_answer(stage: Stage) -> None:
    """Within its patience, if there is one by then that is final."""
    assert told(await ask(stage, patience=10))[1] == 201
    stage.upstream.plays(AWAY)
    assert promised(await ask(stage, key=RecordKey("payments:none", "key-2"), patience=10)) is Status.IN_PROGRESS


@pytest.mark.parametrize("part", [Part(status=429), AWAY])
def test_a_client_that_waits_is_not_told_what_may_be_tried_again(part: Part) -> None:
    """While the store is away an answer leaves before its commit, but not this one: the operation waits, and runs later."""

    @scene
    async def play(stage: Stage) -> None:
        stage.upstream.plays(part)
        stage.store.script("park", *[Refuses()] * 12)
        assert promised(await ask(stage, patience=30)) is Status.IN_PROGRESS
        work = work_of(stage)
        for _ in range(30):
            await stage.clock.sleep(1.0)
            await work.look()
        assert (await stage.record()).status is Status.COMPLETED

    play()


@pytest.mark.parametrize("kept", [100_000, 10_000_000])
@pytest.mark.parametrize("patience", [0, 1])
@pytest.mark.parametrize("taken", [False, True])
def test_a_large_answer_that_nobody_waits_for_holds_nothing(kept: int, patience: int, taken: bool) -> None:
    """One that is kept, and one that is too large for that and would be relayed."""

    @scene
    async def play(stage: Stage) -> None:
        policy = replace(ASYNC, limits=Limits(response_body=kept))
        stage.upstream.plays(Part(pauses=(5.0,), pieces=(b"x" * 400_000,) * 5))
        work = work_of(stage, policy)
        if taken:
            work.stop()
        await ask(stage, policy, patience=patience)
        if taken:
            await work_of(stage, policy, stage.another()[0]).look()
        await stage.clock.sleep(20.0)
        await stage.quiet()
        found = await stage.record()
        assert found.status is Status.COMPLETED
        assert found.response is not None
        assert (found.response.body is not None, found.response.body_length) == (kept > 2_000_000, 2_000_000)
        assert stage.memory_budget.held == 0

    play()


@scene
async def test_a_lost_reserve_is_refused_and_never_runs(stage: Stage) -> None:
    """503: what may have landed is withdrawn, and only a repetition runs it."""
    stage.store.script("reserve", Lands(1.0))
    assert refused(await ask(stage)) == (503, "store-unavailable")
    work = work_of(stage)
    await stage.quiet()
    await work.look()
    await stage.quiet()
    assert (await stage.record()).status is Status.FAILED_RETRYABLE
    assert stage.upstream.sent == []
    assert promised(await ask(stage)) is Status.IN_PROGRESS
    await stage.quiet()
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_duplicate_of_what_is_not_accepted_yet_is_told_so(stage: Stage) -> None:
    """409, never 202: nobody knows whether that record lasts."""
    stage.upstream.plays(Part(pauses=(60.0,)))
    stage.store.script("accept", Stalls(1.0))
    first = stage.loop.create_task(ask(stage))
    await stage.clock.sleep(0.5)
    assert refused(await ask(stage)) == (409, "request-in-progress")
    assert promised(await first) is Status.IN_PROGRESS
    assert promised(await ask(stage)) is Status.IN_PROGRESS


@scene
async def test_the_word_that_it_is_accepted_is_repeated(stage: Stage) -> None:
    """The client waits for it for `settle_timeout` at most, since the record lasts already."""
    stage.upstream.plays(Part(pauses=(60.0,)))
    stage.store.script("accept", *[Refuses()] * 20)
    begun = stage.loop.time()
    assert promised(await ask(stage)) is Status.IN_PROGRESS
    assert stage.loop.time() - begun <= 2.1
    await stage.clock.sleep(55.0)
    assert (await stage.record()).accepted


@scene
async def test_without_a_slot_it_waits_and_is_run_later(stage: Stage) -> None:
    """Pending, attempt 0; as soon as the slot is free it is taken, by whichever process looks."""
    policy = replace(ASYNC, concurrency=1)
    stage.upstream.plays(Part(pauses=(5.0,)))
    second = RecordKey("payments:none", "key-2")
    assert promised(await ask(stage, policy)) is Status.IN_PROGRESS
    assert promised(await ask(stage, policy, key=second)) is Status.PENDING
    waits = await stage.memory.find(second)
    assert waits is not None
    assert (waits.status, waits.attempt) == (Status.PENDING, 0)
    other, _ = stage.another()
    await work_of(stage, policy, other).look()
    await stage.quiet()
    await stage.clock.sleep(1.0)
    done = await stage.memory.find(second)
    assert done is not None
    assert (done.status, done.attempt) == (Status.COMPLETED, 1)


@scene
async def test_what_comes_during_a_look_takes_none_of_its_slots(stage: Stage) -> None:
    """`concurrency` counts what is being taken, too."""
    policy = replace(ASYNC, concurrency=1)
    stage.upstream.plays(Part(pauses=(5.0,)), Part(pauses=(5.0,)))
    other, _ = stage.another()
    work_of(stage, policy, other).stop()
    assert promised(await ask(stage, policy, engine=other)) is Status.PENDING
    stage.store.script("take", Stalls(0.5))
    look = stage.loop.create_task(work_of(stage, policy).look())
    await stage.clock.sleep(0.1)
    assert promised(await ask(stage, policy, key=RecordKey("payments:none", "key-2"))) is Status.PENDING
    await look
    await stage.clock.sleep(1.0)
    assert len(stage.upstream.sent) == 1
    await stage.quiet()


@scene
async def test_too_much_is_told_before_anything_is_accepted(stage: Stage) -> None:
    policy = replace(ASYNC, concurrency=1, max_pending=MaxPending(1, 1))
    stage.upstream.plays(Part(pauses=(5.0,)))
    await ask(stage, policy)
    await ask(stage, policy, key=RecordKey("payments:none", "key-2"))
    third = RecordKey("payments:none", "key-3")
    reply = await ask(stage, policy, key=third)
    assert (reply.label, refused(reply)) == (Label.TOO_MANY_PENDING, (429, "too-many-pending"))
    assert await stage.memory.find(third) is None


@pytest.mark.parametrize("trouble", [Refuses(), LosesReply(), Lands(3.0)])
def test_a_refusal_that_comes_after_the_202_refuses_nothing(trouble: Trouble) -> None:
    """Too many wait, but the client was told before that was known: its operation waits, and runs."""

    @scene
    async def play(stage: Stage) -> None:
        policy = replace(ASYNC, concurrency=1, max_pending=MaxPending(1, 1))
        work = work_of(stage, policy)
        stage.upstream.plays(Part(pauses=(60.0,)))
        await ask(stage, policy)
        await ask(stage, policy, key=RecordKey("payments:none", "key-2"))
        third = RecordKey("payments:none", "key-3")
        stage.store.script("park", trouble, *[Refuses()] * 8)
        assert promised(await ask(stage, policy, key=third)) is Status.PENDING
        await stage.clock.sleep(30.0)
        waits = await stage.memory.find(third)
        assert waits is not None
        assert (waits.status, waits.attempt) == (Status.PENDING, 0)
        for _ in range(40):
            await stage.clock.sleep(1.0)
            await work.look()
        done = await stage.memory.find(third)
        assert done is not None
        assert done.status is Status.COMPLETED
        assert len(stage.upstream.sent) == 3

    play()


@scene
async def test_a_refusal_in_the_moment_of_the_202_refuses_or_is_withdrawn(stage: Stage) -> None:
    """It comes just as the client's patience ends: whichever is first, a client that was told 202 has a record."""
    policy = replace(ASYNC, concurrency=1, max_pending=MaxPending(1, 1))
    stage.upstream.plays(Part(pauses=(60.0,)))
    await ask(stage, policy)
    await ask(stage, policy, key=RecordKey("payments:none", "key-2"))
    third = RecordKey("payments:none", "key-3")
    stage.store.script("park", AnswersLate(policy.settle_timeout))
    reply = await ask(stage, policy, key=third)
    await stage.clock.sleep(5.0)
    assert (reply.label is Label.ACCEPTED) == (await stage.memory.find(third) is not None)


@scene
async def test_a_refusal_that_a_cut_request_does_not_hear_of_leaves_no_lease(stage: Stage) -> None:
    """A drain was out of patience: nothing was sent, so what was claimed again waits, and does not lapse into a doubt."""
    policy = replace(ASYNC, concurrency=1, max_pending=MaxPending(1, 1))
    third = RecordKey("payments:none", "key-3")
    stage.store.script("reserve", Lands(1.0))
    assert refused(await ask(stage, policy, key=third)) == (503, "store-unavailable")
    await stage.quiet()
    stage.upstream.plays(Part(pauses=(60.0,)))
    await ask(stage, policy)
    await ask(stage, policy, key=RecordKey("payments:none", "key-2"))
    stage.store.script("park", AnswersLate(1.0))
    cut = stage.loop.create_task(ask(stage, policy, key=third))
    await stage.clock.sleep(0.5)
    cut.cancel()
    await stage.clock.sleep(3.0)
    found = await stage.memory.find(third)
    assert found is not None
    assert (found.status, found.attempt) == (Status.PENDING, 1)


@pytest.mark.parametrize("taken", [False, True])
def test_a_defect_as_it_begins_sends_nothing(taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is released or parked then, for anybody to run: so nothing of it may be at the upstream."""

    @scene
    async def play(stage: Stage) -> None:
        work = work_of(stage)
        if taken:
            work.stop()
            assert promised(await ask(stage)) is Status.PENDING
            work = work_of(stage, engine=stage.another()[0])
        with monkeypatch.context() as patch:
            patch.setattr(stage.observer, "work_began", _defect)
            if taken:
                await work.look()
            else:
                with pytest.raises(Defect):
                    await ask(stage)
        await stage.clock.sleep(1.0)
        assert (await stage.record()).status is (Status.PENDING if taken else Status.FAILED_RETRYABLE)
        assert stage.upstream.sent == []

    play()


class Defect(Exception):
    """What is raised."""


def _defect(route: str, seconds: float) -> None:
    raise Defect


@scene
async def test_a_lost_park_is_repeated_and_kept(stage: Stage) -> None:
    """The record lasts since its reserve; the client is told 202, and it is parked as soon as that can be said."""
    policy = replace(ASYNC, concurrency=1)
    stage.upstream.plays(Part(pauses=(5.0,)))
    await ask(stage, policy)
    stage.store.script("park", LosesReply(), *[Refuses()] * 8)
    second = RecordKey("payments:none", "key-2")
    assert promised(await ask(stage, policy, key=second)) is Status.PENDING
    await stage.quiet()
    waits = await stage.memory.find(second)
    assert waits is not None
    assert waits.status is Status.PENDING


@scene
async def test_what_was_not_sent_is_tried_again_until_its_time_is_over(stage: Stage) -> None:
    """Each try later than the one before; then it ends with our 408, and nothing was ever sent."""
    work = work_of(stage)
    stage.upstream.plays(*[AWAY] * 100)
    assert promised(await ask(stage)) is Status.IN_PROGRESS
    await stage.quiet()
    assert (await stage.record()).status is Status.PENDING
    for _ in range(700):
        await stage.clock.sleep(1.0)
        await work.look()
    await stage.quiet()
    record = await stage.record()
    assert (record.status, record.response) == (Status.COMPLETED, ABANDONED)
    assert 10 <= record.attempt <= 40
    assert stage.upstream.sent == []


@scene
async def test_a_refusal_before_execution_is_the_answer_when_no_time_is_left(stage: Stage) -> None:
    """The last try has the upstream's own answer: that is stored, not our 408."""
    work = work_of(stage)
    stage.upstream.plays(*[Part(status=429)] * 100)
    await ask(stage, replace(ASYNC, pending_for=5.0))
    for _ in range(10):
        await stage.clock.sleep(1.0)
        await work.look()
    await stage.quiet()
    record = await stage.record()
    assert record.response is not None
    assert (record.status, record.response.status) == (Status.COMPLETED, 429)


@scene
async def test_a_doubt_stays_a_doubt(stage: Stage) -> None:
    """What may have been executed is never pending again by itself."""
    work = work_of(stage)
    stage.upstream.plays(Part(raises=InDoubt(DoubtReason.DISCONNECTED)))
    await ask(stage)
    await stage.quiet()
    for _ in range(5):
        await stage.clock.sleep(60.0)
        await work.look()
    assert (await stage.record()).status is Status.UNKNOWN
    assert len(stage.upstream.sent) == 1


@scene
async def test_where_the_upstream_deduplicates_a_doubt_is_run_again(stage: Stage) -> None:
    """By whichever process looks, once the earlier attempt has surely ended."""
    policy = replace(ASYNC, on_unknown=OnUnknown.REEXECUTE)
    work = work_of(stage, policy)
    stage.upstream.plays(Part(raises=InDoubt(DoubtReason.DISCONNECTED)))
    await ask(stage, policy)
    await stage.quiet()
    await work.look()
    assert len(stage.upstream.sent) == 1
    await stage.clock.sleep(200.0)
    await work.look()
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED
    assert len(stage.upstream.sent) == 2


@scene
async def test_what_was_taken_and_nobody_heard_of_is_given_back(stage: Stage) -> None:
    """The reply of the statement that took it was lost: it waits again, and runs once."""
    policy = replace(ASYNC, concurrency=1)
    work = work_of(stage, policy)
    work.stop()
    await ask(stage, policy)
    other, _ = stage.another()
    taking = work_of(stage, policy, other)
    stage.store.script("take", Lands(3.0))
    with_error = stage.loop.create_task(taking.look())
    await asyncio.wait({with_error})
    assert with_error.exception() is not None
    await stage.clock.sleep(4.0)
    assert (await stage.record()).status is Status.IN_PROGRESS
    await taking.look()
    await stage.clock.sleep(1.0)
    record = await stage.record()
    assert (record.status, record.attempt) == (Status.COMPLETED, 1)
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_doubt_that_was_taken_and_nobody_heard_of_is_in_doubt_again(stage: Stage) -> None:
    """Never pending: a cancel would say 410, and a long wait 408, that nothing was executed."""
    work = work_of(stage, REPEATS)
    stage.upstream.plays(Part(raises=InDoubt(DoubtReason.DISCONNECTED)))
    await ask(stage, REPEATS)
    await stage.quiet()
    await stage.clock.sleep(200.0)
    stage.store.script("take", Stalls(0.0), LosesReply())
    looking = stage.loop.create_task(work.look())
    await asyncio.wait({looking})
    assert looking.exception() is not None
    await asyncio.wait({stage.loop.create_task(work.look())})
    assert (await stage.record()).status is Status.IN_PROGRESS
    await stage.clock.sleep(60.0)
    await stage.memory.sweep(10)
    assert (await stage.record()).status is Status.UNKNOWN
    await stage.clock.sleep(200.0)
    await work.look()
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_doubt_that_is_repeated_without_a_slot_does_not_wait_as_pending(stage: Stage) -> None:
    """It runs at once: the upstream forgets, and pending would say that nothing was executed."""
    policy = replace(REPEATS, concurrency=1)
    stage.upstream.plays(Part(raises=InDoubt(DoubtReason.DISCONNECTED)), Part(pauses=(5.0,)))
    await ask(stage, policy)
    await stage.quiet()
    await stage.clock.sleep(200.0)
    await ask(stage, policy, key=RecordKey("payments:none", "key-2"))
    assert promised(await ask(stage, policy)) is Status.IN_PROGRESS
    await stage.quiet()
    record = await stage.record()
    assert (record.status, record.attempt) == (Status.COMPLETED, 2)


@scene
async def test_a_drain_gives_back_what_was_not_sent(stage: Stage) -> None:
    """What comes while the process is going away waits for another one; what is at the upstream is settled."""
    stage.upstream.plays(Part(pauses=(3.0,)))
    await ask(stage)
    draining = stage.loop.create_task(stage.engine.drain(10.0))
    await stage.clock.sleep(0.1)
    second = RecordKey("payments:none", "key-2")
    assert promised(await ask(stage, key=second)) is Status.PENDING
    assert await draining
    assert (await stage.record()).status is Status.COMPLETED
    waits = await stage.memory.find(second)
    assert waits is not None
    assert waits.status is Status.PENDING


@scene
async def test_what_cannot_be_opened_waits(stage: Stage) -> None:
    """Its key may come back; nothing was sent, and the failure is told."""
    work = work_of(stage)
    work.stop()
    await ask(stage)
    row = stage.memory._rows[KEY]
    stage.memory._rows[KEY] = replace(row, sealed=b"\x01nonsense")
    other, _ = stage.another()
    await work_of(stage, engine=other).look()
    await stage.clock.sleep(1.0)
    record = await stage.record()
    assert (record.status, record.last_error_code) == (Status.PENDING, "unsealable")
    assert record.due_in is not None
    assert record.due_in > 30
    assert [task for task, _ in stage.observer.failures] == ["accepted"]
    assert stage.upstream.sent == []


@scene
async def test_a_drain_and_a_look_may_give_back_at_once(stage: Stage) -> None:
    """Simulation seed 19733: both came to the end of the same search, and the drain ended with an error."""
    work = work_of(stage)
    stage.store.script("take", Lands(None))
    await asyncio.wait({stage.loop.create_task(work.look())})
    await stage.clock.sleep(100.0)
    looking = stage.loop.create_task(work.look())
    assert await stage.engine.drain(1.0)
    await looking


@scene
async def test_what_was_taken_is_given_back_after_a_defect(stage: Stage) -> None:
    """Nothing of it was sent: it waits again, and does not lapse into doubt."""
    work_of(stage).stop()
    assert promised(await ask(stage)) is Status.PENDING
    work = work_of(stage, engine=stage.another()[0])
    stage.store.script("take", Fails())
    with pytest.raises(ZeroDivisionError):
        await work.look()
    assert (await stage.record()).status is Status.IN_PROGRESS
    await work.look()
    await stage.quiet()
    record = await stage.record()
    assert (record.status, record.attempt) == (Status.COMPLETED, 1)


@scene
async def test_a_drain_waits_for_what_is_being_taken(stage: Stage) -> None:
    """Taken by a process that had just begun to go away, it would have been in doubt, though nothing was sent."""
    policy = replace(ASYNC, concurrency=1)
    work_of(stage, policy).stop()
    assert promised(await ask(stage, policy)) is Status.PENDING
    other, _ = stage.another()
    work = work_of(stage, policy, other)
    stage.store.script("take", AnswersLate(1.0))
    looking = stage.loop.create_task(work.look())
    await stage.clock.sleep(0.5)
    assert await other.drain(10.0)
    looking.cancel()
    await asyncio.wait({looking})
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_repetition_that_asks_for_the_answer_takes_no_promise_away(stage: Stage) -> None:
    """It runs a doubt again, which ends in doubt again: whoever was told 202 is owed the execution as before."""
    policy = replace(POLICY, execution=Execution.PREFER, pending_for=6000.0, on_unknown=OnUnknown.REEXECUTE)
    stage.upstream.plays(Part(raises=InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT)))
    promised(await ask(stage, policy))
    await stage.quiet()
    await stage.clock.sleep(200)
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.CONNECT_REFUSED)))
    await stage.ask(policy)
    assert (await stage.record()).status is Status.UNKNOWN
    work = work_of(stage, policy)
    for _ in range(400):
        await stage.clock.sleep(1.0)
        await work.look()
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED
