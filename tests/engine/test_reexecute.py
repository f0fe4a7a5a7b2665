"""`on_unknown: reexecute`: the next retry runs again once the upstream has surely finished, and what becomes of it."""

from dataclasses import replace

import pytest

from gateway.core.decision import Label
from gateway.core.hints import LONGEST_READ, Hint, HintedOutcome
from gateway.core.model import Lease, Status
from gateway.core.policy import OnUnknown
from gateway.core.reconcile.policy import AnswerPlan, Condition
from gateway.engine.answers import Passed, Refused
from gateway.engine.attempt import ATTEMPT
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, Retention, Transition, UpstreamRequest
from gateway.ports.reconciliation import Entry, Fence
from tests.engine.stage import KEY, POLICY, Stage, refused, scene, told
from tests.engine.store import Lands, LosesReply
from tests.engine.upstream import Part

AGAIN = replace(POLICY, on_unknown=OnUnknown.REEXECUTE)
LOST = Part(pieces=(), raises=InDoubt(DoubtReason.DISCONNECTED))


def attempt_field(request: UpstreamRequest) -> bytes | None:
    return next((value for name, value in request.headers if name == ATTEMPT), None)


async def judged_not_executed(stage: Stage) -> None:
    """A person or a look says that the attempt in doubt did not execute."""
    found = await stage.record()
    entry, retention = Entry("operator", "not_executed"), Retention.of(POLICY)
    fence = Fence(KEY, found.record_id, found.version)
    assert await stage.memory.reconciliation.conclude_not_executed(fence, "verdict_not_executed", retention, entry) is Transition.DONE


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


@pytest.mark.parametrize("status", [403, 409, 422, 425, 429, 500])
def test_a_refusal_of_a_repetition_leaves_the_doubt(status: int) -> None:
    """It may be of what the attempt before did ("it exists already"), or of this request alone: nobody's answer. The client is told so, the
    record stays unknown, and a later retry tries again.
    """

    @scene
    async def play(stage: Stage) -> None:
        await in_doubt(stage)
        stage.upstream.plays(Part(status=status))
        reply = await stage.ask(AGAIN)
        assert (reply.label, refused(reply)) == (Label.REEXECUTE, (502, "outcome-unknown"))
        assert isinstance(reply.answer, Refused)
        assert reply.answer.members == {"upstream_status": status}
        assert stage.observer.settlements[-1] == ("doubt", f"status_{status}")
        assert (await stage.record()).status is Status.UNKNOWN
        assert refused(await stage.ask(AGAIN)) == (409, "outcome-unknown")
        await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 1)
        assert told(await stage.ask(AGAIN))[:2] == (Label.REEXECUTE, 201)

    play()


@scene
async def test_a_refusal_that_the_upstream_vouches_for_is_the_answer(stage: Stage) -> None:
    """A trusted word *completed* is of the operation, whatever its status."""
    vouched = replace(AGAIN, hints=(Hint("Outcome", outcome=HintedOutcome.COMPLETED),))
    await in_doubt(stage)
    stage.upstream.plays(Part(status=402, headers=((b"Outcome", b"1"),)))
    assert told(await stage.ask(vouched))[:2] == (Label.REEXECUTE, 402)
    assert told(await stage.ask(vouched))[:2] == (Label.REPLAY, 402)


EXISTS = Hint(
    None,
    statuses=frozenset({422}),
    outcome=HintedOutcome.EXISTS,
    when=(Condition("/error/code", values=("already_exists",)),),
    answer=AnswerPlan(status=201, headers=(("X-Order", "{captured.order}"),), pointer="/error/existing"),
)
THERE = Part(status=422, pieces=(b'{"error": {"code": "already_exists", "existing": {"id": "ch_1"}}}',))


@scene
async def test_what_exists_already_is_the_operations_outcome(stage: Stage) -> None:
    """A refusal that the route names completes a repetition, with the answer that the route builds of it."""
    named = replace(AGAIN, hints=(EXISTS,))
    await in_doubt(stage)
    stage.upstream.plays(THERE)
    request = stage.request(policy=named)
    request.captured = {"order": "o-1", "key": "key-1"}
    reply = await stage.engine.handle(request)
    assert told(reply) == (Label.REEXECUTE, 201, b'{"id":"ch_1"}')
    assert told(await stage.ask(named)) == (Label.REPLAY, 201, b'{"id":"ch_1"}')
    stored = (await stage.record()).response
    assert stored is not None
    assert dict(stored.headers)[b"X-Order"] == b"o-1"


@scene
async def test_what_exists_already_and_cannot_be_told_stays_in_doubt(stage: Stage) -> None:
    """The answer needs a captured value that this record has not."""
    await in_doubt(stage)
    stage.upstream.plays(THERE)
    assert refused(await stage.ask(replace(AGAIN, hints=(EXISTS,)))) == (502, "outcome-unknown")
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_what_exists_already_is_a_first_attempts_answer(stage: Stage) -> None:
    """Then the client itself made it, by another key or none."""
    stage.upstream.plays(THERE)
    assert told(await stage.ask(replace(AGAIN, hints=(EXISTS,))))[:2] == (Label.EXECUTE, 422)
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_an_error_inside_a_200_is_released(stage: Stage) -> None:
    """GraphQL: also where the body is too long to be held in one piece, and where it streams; not beyond what is read."""
    when = (Condition("/errors/0/extensions/code", values=("THROTTLED",)),)
    policy = replace(POLICY, hints=(Hint(None, outcome=HintedOutcome.NOT_EXECUTED, when=when),))
    text = b'{"errors": [{"extensions": {"code": "THROTTLED"}}]}'
    for pieces, status in (((text,), Status.FAILED_RETRYABLE), ((text[:20], text[20:] + b" " * 2**17), Status.FAILED_RETRYABLE)):
        stage.upstream.plays(Part(status=200, pieces=pieces))
        assert isinstance((await stage.ask(policy)).answer, Passed)
        assert (await stage.record()).status is status
    stage.upstream.plays(Part(status=200, pieces=(text, b" " * LONGEST_READ)))
    assert isinstance((await stage.ask(policy)).answer, Passed)
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_refusal_after_a_verdict_is_a_doubt(stage: Stage) -> None:
    """Somebody found that the attempt before had not executed, and may be wrong: *it exists* is not to be kept for good. The client is told
    what the upstream said.
    """
    stage.upstream.plays(LOST)
    await stage.ask()
    await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 1)
    await judged_not_executed(stage)
    stage.upstream.plays(Part(status=429), Part(status=422))
    assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 429)
    assert (await stage.record()).status is Status.FAILED_RETRYABLE, "a release leaves it as it was before"
    assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 422)
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_a_refusal_after_what_was_never_in_doubt_is_the_answer(stage: Stage) -> None:
    """An attempt that was proved not to be sent, and one that the route says was turned away, cast no doubt on the next."""
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)), Part(status=429), Part(status=402))
    assert refused(await stage.ask()) == (502, "upstream-unreachable")
    assert [told(await stage.ask())[1] for _ in range(3)] == [429, 402, 402]
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_new_life_knows_nothing_of_the_doubts_before(stage: Stage) -> None:
    """Under a key that expired a new operation begins: its refusal is its answer."""
    stage.upstream.plays(LOST)
    await stage.ask()
    await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 1)
    await judged_not_executed(stage)
    await stage.clock.sleep(POLICY.retention + 1)
    stage.upstream.plays(Part(status=402))
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 402)
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_an_unsent_reexecution_leaves_the_doubt(stage: Stage) -> None:
    """That nothing was sent now says nothing of what was sent before, and the client is not told so."""
    await in_doubt(stage)
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)))
    assert refused(await stage.ask(AGAIN)) == (502, "outcome-unknown")
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
    assert refused(await stage.ask(AGAIN)) == (502, "outcome-unknown")
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
    request.wire = ((b"idempotency-attempt", b"7"),)
    await stage.engine.handle(request)
    assert [field for field in stage.upstream.sent[0].headers if field[0].lower() == ATTEMPT.lower()] == []
