"""`on_unknown: reexecute`: the next retry runs again once the upstream has surely finished, and what becomes of it."""

from dataclasses import replace

from gateway.core.decision import Label
from gateway.core.model import Lease, Status
from gateway.core.policy import OnUnknown
from gateway.engine.attempt import ATTEMPT
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, Retention, UpstreamRequest
from tests.engine.stage import KEY, POLICY, Stage, refused, scene, told
from tests.engine.store import Lands, LosesReply
from tests.engine.upstream import Part

AGAIN = replace(POLICY, on_unknown=OnUnknown.REEXECUTE)
LOST = Part(pieces=(), raises=InDoubt(DoubtReason.DISCONNECTED))


def attempt_field(request: UpstreamRequest) -> bytes | None:
    return next((value for name, value in request.headers if name == ATTEMPT), None)


async def in_doubt(stage: Stage) -> None:
    """Leave a record whose attempt ended in doubt, and let the upstream's time pass."""
    stage.upstream.plays(LOST)
    assert refused(await stage.ask(AGAIN)) == (502, "outcome-unknown")
    await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 1)
    stage.transcript.clear()


@scene
async def test_the_next_retry_executes_again(stage: Stage) -> None:
    """Not before the upstream has surely finished; then with the attempt's number in a field of its own. Its answer is the operation's."""
    stage.upstream.plays(LOST)
    assert refused(await stage.ask(AGAIN)) == (502, "outcome-unknown")
    assert refused(await stage.ask(AGAIN)) == (409, "outcome-unknown")
    await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 1)
    assert told(await stage.ask(AGAIN))[:2] == (Label.REEXECUTE, 201)
    assert [attempt_field(request) for request in stage.upstream.sent] == [None, b"2"]
    assert told(await stage.ask(AGAIN))[0] is Label.REPLAY


@scene
async def test_the_upstream_that_is_still_at_it_leaves_the_doubt(stage: Stage) -> None:
    """Its own 409 is passed on and is nobody's answer: the record stays unknown, and a later retry tries again."""
    await in_doubt(stage)
    stage.upstream.plays(Part(status=409))
    assert told(await stage.ask(AGAIN))[:2] == (Label.REEXECUTE, 409)
    assert stage.observer.settlements[-1] == ("doubt", "status_409")
    assert (await stage.record()).status is Status.UNKNOWN
    assert refused(await stage.ask(AGAIN)) == (409, "outcome-unknown")
    await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 1)
    assert told(await stage.ask(AGAIN))[:2] == (Label.REEXECUTE, 201)


@scene
async def test_an_unsent_reexecution_leaves_the_doubt(stage: Stage) -> None:
    """That nothing was sent now says nothing of what was sent before."""
    await in_doubt(stage)
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)))
    assert refused(await stage.ask(AGAIN)) == (502, "upstream-unreachable")
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_a_lost_reply_of_the_claim_goes_back_to_doubt(stage: Stage) -> None:
    """A claim that lands after its caller has given up is never released: the first attempt's outcome is as unknown as before."""
    await in_doubt(stage)
    stage.store.script("claim", Lands(5.0))
    assert refused(await stage.ask(AGAIN)) == (503, "store-unavailable")
    await stage.quiet()
    assert stage.transcript[-1] == "doubt: done"
    assert (await stage.record()).status is Status.UNKNOWN
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_claim_that_landed_goes_on_as_a_reexecution(stage: Stage) -> None:
    """The re-read shows it to be ours, and its outcome is judged as a re-execution's."""
    await in_doubt(stage)
    stage.store.script("claim", LosesReply())
    stage.upstream.plays(Part(status=429))
    assert told(await stage.ask(AGAIN))[:2] == (Label.REEXECUTE, 429)
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_one_of_many_retries_executes(stage: Stage) -> None:
    """The claim is atomic: the others are told that it runs."""
    await in_doubt(stage)
    stage.upstream.plays(Part(pauses=(1.0,)))
    asked = [stage.begin(AGAIN) for _ in range(5)]
    labels = sorted([(await one).label for one in asked])
    assert labels == sorted([Label.REEXECUTE, *[Label.IN_PROGRESS] * 4])
    assert len(stage.upstream.sent) == 2


@scene
async def test_a_second_execution_is_told_of(stage: Stage) -> None:
    """An attempt that was released by a verdict, and whose answer comes after all while a newer one owns the record, is a conflict."""
    stage.upstream.plays(Part(pauses=(1.0,)), Part(pauses=(9.0,)))
    asked = stage.begin()
    await stage.clock.sleep(0.2)
    found = await stage.record()
    await stage.memory.release(Lease(KEY, found.record_id, found.owner, 1, 0.0, 0.0), "verdict", Retention(1000.0))
    other = stage.begin(engine=stage.another()[0])
    assert refused(await asked) == (502, "outcome-unknown")
    await other
    assert stage.observer.conflicts == ["request-1"]


@scene
async def test_a_client_cannot_number_attempts(stage: Stage) -> None:
    """The field is ours alone on such a route: what a client writes there does not reach the upstream."""
    request = stage.request(policy=AGAIN)
    request.forward = lambda: replace(stage.request().forward(), headers=((b"idempotency-attempt", b"7"),))
    await stage.engine.handle(request)
    assert [field for field in stage.upstream.sent[0].headers if field[0].lower() == ATTEMPT.lower()] == []
