"""An answer that comes when the record has another owner: proof that the operation ran is not thrown away while it could run again."""

import asyncio
import hashlib
from dataclasses import replace

import pytest

from gateway.core.hints import Hint, HintedOutcome
from gateway.core.model import Lease, Status, StoredResponse
from gateway.core.policy import Policy
from gateway.core.reconcile.policy import Cancel, Reconcile, RequestTemplate
from gateway.engine.answers import Reply
from gateway.ports import NotSent, NotSentReason, Retention, StoreUnavailable, Transition
from gateway.ports.reconciliation import Doubtful, Entry, Evidence, Fence
from tests.engine.stage import KEY, POLICY, Stage, refused, relayed, scene, told
from tests.engine.store import Stalls
from tests.engine.upstream import Part

OWNER = b"o" * 16
ACTS = replace(POLICY, reconcile=Reconcile(Cancel(RequestTemplate("POST", "/cancel"), ())))


async def cut_off(stage: Stage, part: Part, policy: Policy = ACTS) -> "tuple[asyncio.Task[Reply], Doubtful]":
    """This process loses the store while the upstream answers, and another one sweeps the record and takes it for a look that acts."""
    stage.upstream.plays(part)
    asked = stage.begin(policy)
    await stage.clock.sleep(0.5)
    stage.store.away = True
    await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 5)
    await stage.memory.sweep(10)
    (look,) = await stage.memory.reconciliation.take_due("charge", 1, 30.0, [OWNER])
    return asked, look


async def back(stage: Stage) -> None:
    stage.store.away = False
    await stage.quiet()


def history(stage: Stage) -> list[tuple[str, str]]:
    return [(line.entry.source, line.entry.what) for line in stage.memory.reconciliation.history(KEY)]


@scene
async def test_it_completes_a_record_that_a_probe_has_taken(stage: Stage) -> None:
    """The probe has learned nothing, or is under way: its verdict is stale then, and every retry gets the answer."""
    asked, look = await cut_off(stage, Part(pauses=(1.0,)))
    assert told(await asked)[1] == 201
    await back(stage)
    assert (await stage.record()).status is Status.COMPLETED
    assert history(stage) == [("attempt", "executed")]
    free = stage.memory.reconciliation.conclude_not_executed(
        look.fence, "verdict", Retention(60.0), Entry("cancel", "not_executed"), looked=True
    )
    assert await free is Transition.STALE
    assert (stage.observer.stale, stage.observer.conflicts) == ([], [])


@scene
async def test_it_completes_a_record_that_a_verdict_has_freed(stage: Stage) -> None:
    """Before anybody could claim it: the verdict was wrong, and nothing has run twice yet."""
    _, look = await cut_off(stage, Part(pauses=(1.0,)))
    entry = Entry("cancel", "not_executed")
    done = await stage.memory.reconciliation.conclude_not_executed(look.fence, "verdict", Retention(600.0), entry, looked=True)
    assert done is Transition.DONE
    await back(stage)
    assert (await stage.record()).status is Status.COMPLETED
    assert stage.observer.conflicts == []


@scene
async def test_a_later_attempt_in_doubt_is_told_of(stage: Stage) -> None:
    """It may have run, too: the record completes with the answer that is known, and somebody is woken."""
    _, look = await cut_off(stage, Part(pauses=(1.0,)))
    entry = Entry("cancel", "not_executed")
    await stage.memory.reconciliation.conclude_not_executed(look.fence, "verdict", Retention(600.0), entry, looked=True)
    claimed = await stage.memory.claim(await stage.record(), stage.intent())
    assert claimed is not None
    await stage.memory.doubt(claimed, "upstream_timeout")
    await back(stage)
    assert (await stage.record()).status is Status.COMPLETED
    assert stage.observer.conflicts == ["request-1"]
    assert history(stage) == [("cancel", "not_executed"), ("attempt", "executed"), ("attempt", "conflict")]


@pytest.mark.parametrize("status", [409, 410, 422, 500])
def test_a_refusal_proves_nothing(status: int) -> None:
    """The probe may have been first at the upstream: its own refusal of the attempt is no answer of the operation."""

    @scene
    async def play(stage: Stage) -> None:
        await cut_off(stage, Part(pauses=(1.0,), status=status))
        await back(stage)
        assert (await stage.record()).status is Status.UNKNOWN
        assert (stage.observer.stale, stage.observer.conflicts, history(stage)) == (["complete"], [], [])

    play()


@scene
async def test_the_upstreams_own_word_proves_execution(stage: Stage) -> None:
    """Where the route trusts it, a failure that it calls completed is the operation's answer."""
    said = replace(ACTS, hints=(Hint("X-Outcome", "done", outcome=HintedOutcome.COMPLETED),))
    asked, _ = await cut_off(stage, Part(pauses=(1.0,), status=402, headers=((b"X-Outcome", b"done"),)), said)
    assert told(await asked)[1] == 402
    await back(stage)
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_its_statement_is_repeated_when_the_reply_is_lost(stage: Stage) -> None:
    """The repetition finds its own answer, and nobody is told of a conflict."""
    _, _ = await cut_off(stage, Part(pauses=(1.0,)))
    whole, calls = stage.memory.reconciliation.conclude_executed, 0

    async def loses_its_reply(*arguments: object, **named: object) -> Transition:
        nonlocal calls
        calls += 1
        done = await whole(*arguments, **named)  # type: ignore[arg-type]  # handed on as they come
        if calls == 1:
            raise StoreUnavailable("postgres", "disconnected", may_have_landed=True)
        return done

    stage.memory.reconciliation.conclude_executed = loses_its_reply  # type: ignore[method-assign]  # a lost reply of the memory store
    await back(stage)
    assert (await stage.record()).status is Status.COMPLETED
    assert (calls, stage.observer.stale, stage.observer.conflicts) == (2, [], [])


@scene
async def test_it_looks_again_when_the_record_moves(stage: Stage) -> None:
    """A look writes down that it found nothing, between our reading and our writing."""
    _, look = await cut_off(stage, Part(pauses=(1.0,)))
    find, moved = stage.memory.find, False

    async def moves(key: object) -> object:
        nonlocal moved
        found = await find(key)  # type: ignore[arg-type]  # handed on as it comes
        if not moved:
            moved = True
            await stage.memory.reconciliation.look_again(look.fence, 5.0, agreed=False, entry=Entry("cancel", "not_yet_known"))
        return found

    stage.memory.find = moves  # type: ignore[assignment,method-assign]  # something comes in between
    await back(stage)
    assert (await stage.record()).status is Status.COMPLETED
    assert history(stage) == [("cancel", "not_yet_known"), ("attempt", "executed")]


async def freed(stage: Stage, look: Doubtful) -> Lease:
    """A wrong verdict, and the next attempt under way."""
    entry = Entry("cancel", "not_executed")
    await stage.memory.reconciliation.conclude_not_executed(look.fence, "verdict", Retention(600.0), entry, looked=True)
    claimed = await stage.memory.claim(await stage.record(), stage.intent())
    assert claimed is not None
    return claimed


@scene
async def test_beside_a_later_attempt_it_is_evidence(stage: Stage) -> None:
    """That one may end by itself; if it says that it did not execute, the key is free for nobody all the same."""
    _, look = await cut_off(stage, Part(pauses=(1.0,)))
    claimed = await freed(stage, look)
    await back(stage)
    assert stage.observer.conflicts == ["request-1"]
    assert (await stage.memory.release(claimed, "connection_refused", Retention(600.0))).transition is Transition.STALE
    (again,) = await stage.memory.reconciliation.take_due("charge", 1, 30.0)
    assert again.evidence is not None
    assert again.evidence.response.status == 201
    assert len(stage.upstream.sent) == 1


@scene
async def test_two_equal_answers_are_two_executions(stage: Stage) -> None:
    """That both said the same does not make them one."""
    _, look = await cut_off(stage, Part(pauses=(1.0,), pieces=(b"ok",)))
    claimed = await freed(stage, look)
    same = StoredResponse(201, b"Created", (), b"ok", 2, hashlib.sha256(b"ok").digest())
    assert (await stage.memory.complete(claimed, same, Retention(600.0))).transition is Transition.DONE
    await back(stage)
    assert stage.observer.conflicts == ["request-1"]


@scene
async def test_a_stream_is_kept_whole(stage: Stage) -> None:
    """Its end leaves when patience is over; what is stored for retries is all of it, however long the record took to be read."""
    pieces = tuple(b"%d" % number * 1000 for number in range(5))
    asked, _ = await cut_off(stage, Part(pieces=pieces, pauses=(1.0,)), replace(ACTS, stream=True))
    got = [piece async for piece in relayed(await asked)]
    assert b"".join(got) == b"".join(pieces)
    stage.store.script("find", Stalls(3.0))
    await back(stage)
    assert (await stage.record()).status is Status.COMPLETED
    assert await stage.whole(await stage.ask(ACTS)) == b"".join(pieces)


@scene
async def test_it_gives_up_when_the_process_is_drained(stage: Stage) -> None:
    """With an authority that stays away it would be brought for ever; what it held is given back."""
    await cut_off(stage, Part(pieces=(bytes(400_000),) * 6, pauses=(1.0,)))

    async def away(*_: object, **__: object) -> Transition:
        raise StoreUnavailable("postgres", "timeout", may_have_landed=True)

    stage.memory.reconciliation.conclude_executed = away  # type: ignore[method-assign]  # only this statement meets its deadline
    stage.store.away = False
    await stage.clock.sleep(60)
    assert stage.engine.in_flight == 1
    started = stage.loop.time()
    assert not await stage.engine.drain(1.0, 2.0)
    assert stage.loop.time() - started <= 4
    await stage.clock.sleep(1)
    assert stage.engine.in_flight == 0
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_an_attempt_that_did_not_execute_is_not_believed_against_an_event(stage: Stage) -> None:
    """Its client hears that nobody knows, as the record says: a success would be a guess, and *try again* would run it twice."""
    stage.upstream.plays(Part(pauses=(1.0,), raises_unsent=NotSent(NotSentReason.DNS), dials=1.0))
    asked = stage.begin(ACTS)
    await stage.clock.sleep(0.5)
    evidence = Evidence(StoredResponse(201, b"Created", (), b"ok", 2, hashlib.sha256(b"ok").digest()), Entry("webhook", "executed"))
    assert await stage.memory.reconciliation.attach(Fence.of(await stage.record()), evidence, None) is Transition.DONE
    assert refused(await asked) == (502, "outcome-unknown")
    assert (await stage.record()).status is Status.UNKNOWN
    assert stage.observer.stale == ["release"]
    assert refused(await stage.ask(ACTS)) == (409, "outcome-unknown")
