"""Records that the authority loses while their operation is under way: put back with what it came to."""

from dataclasses import replace

from gateway.core.decision import Label
from gateway.core.model import Intent, Lease, Status
from gateway.core.policy import Policy
from gateway.ports import Answered, Doubted, NotSent, NotSentReason, Settled, Transition
from tests.engine.stage import KEY, POLICY, Stage, refused, scene, told
from tests.engine.store import LosesReply, Refuses
from tests.engine.upstream import Part


def forget(stage: Stage) -> None:
    """What an asynchronous failover does to the last records."""
    stage.memory._rows.clear()


@scene
async def test_the_answer_goes_out_and_its_retry_is_replayed(stage: Stage) -> None:
    """The client has waited for it, and the upstream has executed: both clients get the 201."""
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    forget(stage)
    assert told(await asked)[:2] == (Label.EXECUTE, 201)
    assert told(await stage.ask())[:2] == (Label.REPLAY, 201)
    assert stage.observer.lost == ["request-1"]
    assert stage.observer.stale == []
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_doubt_is_put_back(stage: Stage) -> None:
    """Nobody knows whether it executed: a retry must not."""
    stage.upstream.plays(Part(pauses=(100.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    forget(stage)
    await stage.engine.drain(0.0)
    assert refused(await asked) == (502, "outcome-unknown")
    assert (await stage.record()).status is Status.UNKNOWN
    assert refused(await stage.ask())[1] == "outcome-unknown"
    assert len(stage.upstream.sent) == 1


@scene
async def test_after_a_release_there_is_nothing_to_put_back(stage: Stage) -> None:
    """Nothing was sent, which the client is told; its key is free."""
    stage.upstream.plays(Part(dials=1.0, raises_unsent=NotSent(NotSentReason.CONNECT_REFUSED)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    forget(stage)
    assert refused(await asked) == (502, "upstream-unreachable")
    assert await stage.memory.find(KEY) is None
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 201)


@scene
async def test_putting_back_is_repeated_until_it_is_acknowledged(stage: Stage) -> None:
    """The authority is away once more, and loses a reply."""
    stage.upstream.plays(Part(pauses=(1.0,)))
    stage.store.script("restore", Refuses(), LosesReply())
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    forget(stage)
    assert told(await asked)[:2] == (Label.EXECUTE, 201)
    assert stage.transcript[-1] == "restore: already"
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_retry_that_began_meanwhile_is_told_of(stage: Stage) -> None:
    """Both may have executed: somebody has to know."""
    stage.upstream.plays(Part(pauses=(2.0,)), Part(pauses=(5.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.5)
    forget(stage)
    other, _ = stage.another()
    second = stage.begin(engine=other)
    assert refused(await first) == (502, "outcome-unknown")
    assert told(await second)[:2] == (Label.EXECUTE, 201)
    assert stage.observer.conflicts == ["request-1"]


async def loses_its_claim(stage: Stage, first: Policy, part: Part, *, answers: bool) -> None:
    """A second attempt, whose claim the authority loses while the upstream works: it goes back to what the first one has left."""
    stage.upstream.plays(part, Part(pauses=(3.0 if answers else 100.0,)))
    await stage.ask(first)
    await stage.clock.sleep(2)
    before = dict(stage.memory._rows)
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    stage.memory._rows.update(before)
    if answers:
        assert told(await asked)[1] == 201
        assert told(await stage.ask())[:2] == (Label.REPLAY, 201)
    else:
        await stage.engine.drain(0.0)
        assert refused(await asked) == (502, "outcome-unknown")
        other, _ = stage.another()
        assert refused(await stage.ask(engine=other))[1] == "outcome-unknown"
    assert stage.observer.lost == ["request-2"]
    assert stage.observer.conflicts == []
    assert len(stage.upstream.sent) == 2


@scene
async def test_a_claim_of_a_released_record_is_made_again_for_its_answer(stage: Stage) -> None:
    """Whoever asks next must not execute what this attempt has done."""
    await loses_its_claim(stage, POLICY, Part(status=429), answers=True)


@scene
async def test_a_claim_of_a_released_record_is_made_again_for_its_doubt(stage: Stage) -> None:
    """Nor what it may have done."""
    await loses_its_claim(stage, POLICY, Part(status=429), answers=False)


@scene
async def test_a_new_life_of_an_expired_record_is_begun_again_for_its_answer(stage: Stage) -> None:
    """Likewise where an expired record was replaced."""
    await loses_its_claim(stage, replace(POLICY, retention=1.0), Part(), answers=True)


@scene
async def test_a_new_life_of_an_expired_record_is_begun_again_for_its_doubt(stage: Stage) -> None:
    await loses_its_claim(stage, replace(POLICY, retention=1.0), Part(), answers=False)


@scene
async def test_claiming_again_is_repeated_until_it_is_acknowledged(stage: Stage) -> None:
    """The authority is away once more, and loses a reply: what has landed is ours, by its owner."""
    stage.upstream.plays(Part(status=429), Part(pauses=(1.0,)))
    await stage.ask()
    released = dict(stage.memory._rows)
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    stage.store.script("claim", Refuses(), LosesReply())
    stage.memory._rows.update(released)
    assert told(await asked)[1] == 201
    assert (await stage.record()).status is Status.COMPLETED
    assert stage.observer.lost == ["request-2"]


@scene
async def test_what_an_operator_deleted_stays_deleted(stage: Stage) -> None:
    """The attempt had completed, and nobody acknowledged that: its client gets the answer, and nobody else does."""

    async def deleted(lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled:
        return Settled(Transition.MISSING)

    stage.memory.restore = deleted  # type: ignore[method-assign]  # a store that knows what operators have deleted
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.5)
    forget(stage)
    assert told(await asked)[:2] == (Label.EXECUTE, 201)
    assert (stage.observer.lost, stage.observer.stale) == ([], [])
    assert await stage.memory.find(KEY) is None
