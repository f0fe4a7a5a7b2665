"""Records that the authority loses while their operation is under way: put back with what it came to."""

from gateway.core.decision import Label
from gateway.core.model import Status
from gateway.ports import NotSent, NotSentReason
from tests.engine.stage import KEY, Stage, refused, scene, told
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
