"""Settling while the authority is away, slow, or of another opinion."""

from gateway.core.decision import Label
from gateway.core.model import Lease, Status, StoredResponse
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, Retention
from tests.engine.stage import KEY, Stage, refused, scene, told
from tests.engine.store import Lands, LosesReply, Refuses, Stalls
from tests.engine.upstream import Part

VERDICT = StoredResponse(200, b"OK", (), b"found out", 9, b"d" * 32)


async def owner(stage: Stage) -> Lease:
    """The lease as its holder has it: what a verdict on its attempt is fenced by, here."""
    found = await stage.record()
    return Lease(KEY, found.record_id, found.owner, found.attempt, 0.0, 0.0)


@scene
async def test_the_true_answer_leaves_when_the_authority_stays_away(stage: Stage) -> None:
    """After `settle_timeout` the client gets the upstream's answer; settling goes on, and completes when the authority is back."""
    asked = stage.begin()
    await stage.clock.sleep(0.0005)
    stage.upstream.plays(Part(pauses=(1.0,)))
    await stage.clock.sleep(0.5)
    stage.store.away = True
    reply = await asked
    assert told(reply)[:2] == (Label.EXECUTE, 201)
    assert reply.settlement is None
    assert 3.0 <= stage.loop.time() < 3.1
    assert stage.engine.in_flight == 1
    await stage.clock.sleep(5)
    stage.store.away = False
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED
    assert stage.observer.settlements == [("complete", "responded")]
    assert told(await stage.ask())[0] is Label.REPLAY


@scene
async def test_a_part_of_an_upload_that_was_stored_is_not_stored_twice(stage: Stage) -> None:
    """308 without `Location` is *Resume Incomplete* (Google's resumable uploads): the upstream has done what it was asked for."""
    stage.upstream.plays(Part(status=308, pieces=(), headers=((b"Range", b"bytes=0-524287"),)))
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 308)
    assert told(await stage.ask())[:2] == (Label.REPLAY, 308)
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_redirect_that_says_where_to_go_is_followed_under_its_key(stage: Stage) -> None:
    stage.upstream.plays(Part(status=308, pieces=(), headers=((b"Location", b"/v1/charges/"),)))
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 308)
    assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 201)


@scene
async def test_settling_goes_on_past_a_lapsed_lease(stage: Stage) -> None:
    """A record that was swept to unknown meanwhile is completed all the same: the attempt's own owner knows what became of it."""
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    stage.store.away = True
    assert told(await asked)[:2] == (Label.EXECUTE, 201)
    await stage.clock.sleep(60)
    assert len(await stage.memory.sweep(10)) == 1
    assert (await stage.record()).status is Status.UNKNOWN
    stage.store.away = False
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_settle_whose_reply_was_lost_is_repeated(stage: Stage) -> None:
    """The repetition finds its own write: the answer leaves as a completed one."""
    stage.store.script("complete", LosesReply(), Refuses(), Lands(None))
    reply = await stage.ask()
    assert [line for line in stage.transcript if line.startswith("complete")] == [
        "complete: done",
        "complete: reply lost",
        "complete: refused",
        "complete: reply lost",
        "complete: already",
    ]
    assert (told(reply)[1], reply.settlement) == (201, "complete")
    assert stage.observer.settlements == [("complete", "responded")]


@scene
async def test_a_release_whose_reply_was_lost_is_repeated(stage: Stage) -> None:
    """As a complete; the client hears that nothing was sent only when the record says so."""
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)))
    stage.store.script("release", LosesReply())
    assert refused(await stage.ask()) == (502, "upstream-unreachable")
    assert stage.transcript[-1] == "release: already"


@scene
async def test_an_answer_waits_for_a_slow_commit(stage: Stage) -> None:
    """Nothing of an answer leaves before its record is committed, as long as that takes no longer than `settle_timeout`."""
    stage.store.script("complete", Stalls(1.9))
    asked = stage.begin()
    await stage.clock.sleep(1.8)
    assert not asked.done()
    assert (await asked).settlement == "complete"


@scene
async def test_a_stale_complete_answers_what_is_stored(stage: Stage) -> None:
    """A verdict was first: the client gets what the record holds, as every later one will."""
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    await stage.memory.complete(await owner(stage), VERDICT, Retention(1000.0))
    reply = await asked
    assert told(reply) == (Label.EXECUTE, 200, b"found out")
    assert stage.transcript[-3:] == ["find: completed"] * 3
    assert (stage.observer.stale, stage.observer.settlements) == (["complete"], [("complete", "responded")])


@scene
async def test_a_stale_complete_without_a_stored_answer_is_unknown(stage: Stage) -> None:
    """The record belongs to another attempt by now: the client hears that nobody knows, never a success of its own."""
    stage.upstream.plays(Part(pauses=(1.0,)), Part(pauses=(9.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.2)
    await stage.memory.release(await owner(stage), "verdict", Retention(1000.0))
    other = stage.begin(engine=stage.another()[0])
    await stage.clock.sleep(0.5)
    assert refused(await asked) == (502, "outcome-unknown")
    assert told(await other)[:2] == (Label.EXECUTE_RETRY, 201)
    assert told(await stage.ask())[0] is Label.REPLAY


@scene
async def test_a_stale_complete_whose_record_cannot_be_read_is_unknown(stage: Stage) -> None:
    """Nor is it told a success when the authority goes away between the refusal and the look."""
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    await stage.memory.complete(await owner(stage), VERDICT, Retention(1000.0))
    stage.store.script("find", *[Refuses()] * 20)
    assert refused(await asked) == (502, "outcome-unknown")


@scene
async def test_a_stale_complete_never_answers_with_another_operation(stage: Stage) -> None:
    """Under the key a new record has begun, for another operation: its answer is none for this client."""
    stage.upstream.plays(Part(pauses=(50.0,)), Part(pieces=(b"of another operation",)))
    asked = stage.begin(body=b'{"amount": 1}')
    await stage.clock.sleep(1)
    await stage.memory.release(await owner(stage), "verdict", Retention(5.0))
    await stage.clock.sleep(10)
    assert told(await stage.ask(body=b'{"amount": 2}')) == (Label.EXECUTE, 201, b"of another operation")
    assert refused(await asked) == (502, "outcome-unknown")


@scene
async def test_a_stale_answer_after_the_client_got_the_true_one_is_no_answer(stage: Stage) -> None:
    """The client has its answer since `settle_timeout`; a settle that is refused afterwards is counted, and is no second execution."""
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    stage.store.away = True
    assert told(await asked)[1] == 201
    await stage.memory.complete(await owner(stage), VERDICT, Retention(1000.0))
    stage.store.away = False
    await stage.quiet()
    assert stage.observer.stale == ["complete"]
    assert stage.observer.conflicts == []


@scene
async def test_a_stale_release_answers_what_is_stored(stage: Stage) -> None:
    """Also an attempt that sent nothing learns from the record that the operation has an answer."""
    stage.upstream.plays(Part(dials=1.0, raises_unsent=NotSent(NotSentReason.DNS)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    await stage.memory.complete(await owner(stage), VERDICT, Retention(1000.0))
    assert told(await asked) == (Label.EXECUTE, 200, b"found out")


@scene
async def test_a_doubt_after_a_sweep_is_already_known(stage: Stage) -> None:
    """The sweeper and the attempt agree: that is no stale write."""
    stage.upstream.plays(Part(pieces=(), pauses=(40.0,), raises=InDoubt(DoubtReason.TOTAL_TIMEOUT)))
    asked = stage.begin()
    await stage.clock.sleep(35)
    await stage.memory.sweep(10)
    assert refused(await asked) == (504, "outcome-unknown")
    assert (stage.transcript[-1], stage.observer.stale) == ("doubt: already", [])


@scene
async def test_a_late_answer_completes_a_record_that_a_verdict_gave_back(stage: Stage) -> None:
    """While nobody has claimed it, the last owner's answer counts: evidence beats a verdict."""
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    await stage.memory.release(await owner(stage), "verdict", Retention(1000.0))
    assert told(await asked)[:2] == (Label.EXECUTE, 201)
    assert (await stage.record()).status is Status.COMPLETED
