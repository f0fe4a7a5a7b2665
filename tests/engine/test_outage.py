"""The authority is away before anything was sent to it: refuse, or, where the route says so, forward unprotected."""

from dataclasses import replace

import pytest

from gateway.core.decision import Label
from gateway.core.model import RecordKey
from gateway.core.policy import Mode
from gateway.engine.answers import Passed, Refused, Relayed
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, RelayCut, StoreUnavailable
from tests.engine.stage import FORWARD, POLICY, Stage, refused, relayed, scene, told
from tests.engine.store import Lands, LosesReply, Refuses
from tests.engine.upstream import Part


@scene
async def test_a_guarded_request_is_refused_while_the_authority_is_away(stage: Stage) -> None:
    """503 with a Retry-After, and nothing sent."""
    stage.store.away = True
    reply = await stage.ask()
    assert (reply.label, refused(reply)) == (Label.STORE_UNAVAILABLE, (503, "store-unavailable"))
    assert isinstance(reply.answer, Refused)
    assert reply.answer.retry_after == 1
    assert stage.upstream.sent == []


@scene
async def test_forward_passes_on_what_was_never_asked(stage: Stage) -> None:
    """The operator chose availability: the request goes through, named unprotected, and leaves no record."""
    stage.store.away = True
    stage.upstream.plays(Part(length=14))
    assert told(await stage.ask(FORWARD)) == (Label.UNPROTECTED, 201, b'{"id": "ch_1"}')
    assert await stage.memory.find(stage.request().key) is None
    assert (stage.observer.settlements, stage.observer.upstream) == ([], [201])


@scene
async def test_forward_does_not_pass_on_what_is_known_to_be_somebody_elses(stage: Stage) -> None:
    """Nothing was sent to the authority, but Redis holds another request's entry under this key: it may be running, or has run."""
    stage.store.script("reserve", Refuses(asked=True))
    assert refused(await stage.ask(FORWARD)) == (503, "store-unavailable")
    assert stage.upstream.sent == []


@scene
async def test_forward_needs_proof_that_nothing_was_sent_to_the_authority(stage: Stage) -> None:
    """A reserve that may have landed is refused: its record may be somebody's lease by now."""
    for trouble in (Lands(None), LosesReply(), Lands(3.0)):
        stage.store.script("reserve", trouble)
        stage.store.script("find", Refuses())
        assert refused(await stage.ask(FORWARD)) == (503, "store-unavailable")
        await stage.quiet()
    assert stage.upstream.sent == []


@scene
async def test_forward_never_follows_a_record_that_was_seen(stage: Stage) -> None:
    """A second reserve that is refused comes after a first that saw the record: no outage to forward in."""
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(100.0,)))
    await stage.clock.sleep(40)
    stage.store.script("reserve", Lands(None))
    stage.store.script("find", Lands(None))
    assert refused(await stage.ask(FORWARD)) == (503, "store-unavailable")
    await elsewhere
    await stage.quiet()
    assert len(stage.upstream.sent) == 1


@scene
async def test_an_unprotected_failure_is_told_as_it_is(stage: Stage) -> None:
    """Not reached: safe to retry. Anything else: the upstream failed, and nobody knows what it did."""
    stage.store.away = True
    stage.upstream.plays(
        Part(raises_unsent=NotSent(NotSentReason.DNS)),
        Part(pieces=(), raises=InDoubt(DoubtReason.DISCONNECTED)),
        Part(pieces=(), raises=ZeroDivisionError()),
    )
    assert [refused(await stage.ask(FORWARD)) for _ in range(3)] == [
        (502, "upstream-unreachable"),
        (502, "upstream-failed"),
        (502, "upstream-failed"),
    ]
    assert [task for task, _ in stage.observer.failures] == ["attempt"]


@scene
async def test_a_mistake_of_ours_has_one_name_with_a_record_and_without(stage: Stage) -> None:
    """Without one, no reason was logged, and `Proxy-Status` told of an incomplete response of the upstream's."""
    part = Part(pieces=(), raises=ZeroDivisionError())
    stage.upstream.plays(part, part)
    replies = [await stage.ask()]
    stage.store.away = True
    replies.append(await stage.ask(FORWARD))
    for reply in replies:
        assert isinstance(reply.answer, Refused)
        assert (reply.reason, reply.answer.cause, reply.answer.final_status) == ("gateway_error", "gateway_error", 502)


@pytest.mark.parametrize("reason", [*NotSentReason, *DoubtReason])
def test_a_failure_has_one_status(reason: NotSentReason | DoubtReason) -> None:
    """Guarded, observed and forwarded without a record alike: how long to wait before the next try is the same, too."""
    part = Part(raises_unsent=NotSent(reason, 7.0)) if isinstance(reason, NotSentReason) else Part(pieces=(), raises=InDoubt(reason))
    answers: list[tuple[int, int | None]] = []

    async def ask(stage: Stage) -> None:
        stage.upstream.plays(part, part, part)
        observed = stage.request(policy=replace(POLICY, mode=Mode.OBSERVE))
        observed.key = RecordKey("payments:none", "key-2")
        replies = [await stage.ask(), await stage.engine.handle(observed)]
        stage.store.away = True
        replies.append(await stage.ask(FORWARD))
        assert all(isinstance(reply.answer, Refused) for reply in replies)
        refusals = [reply.answer for reply in replies if isinstance(reply.answer, Refused)]
        answers.extend((refusal.final_status, refusal.retry_after) for refusal in refusals)

    scene(ask)()
    assert len(set(answers)) == 1


@scene
async def test_an_unprotected_answer_of_unknown_length_is_relayed(stage: Stage) -> None:
    """Only what is known to be small is held in memory; what breaks off is cut."""
    stage.store.away = True
    stage.upstream.plays(
        Part(pieces=(b"a", b"b"), length=None), Part(pieces=(b"a",), raises=InDoubt(DoubtReason.DISCONNECTED), length=None)
    )
    reply = await stage.ask(FORWARD)
    assert isinstance(reply.answer, Relayed)
    assert [chunk async for chunk in reply.answer.body.pieces()] == [b"a", b"b"]
    chunks = relayed(await stage.ask(FORWARD))
    assert await anext(chunks) == b"a"
    cut = False
    try:
        await anext(chunks)
    except RelayCut:
        cut = True
    assert cut


@scene
async def test_a_policy_that_cannot_be_looked_up_is_no_mismatch(stage: Stage) -> None:
    """A record under a foreign fingerprint policy, whose text cannot be read now: 503, never 422 and never forwarded."""
    await stage.ask()
    stage.foreign_policies(StoreUnavailable("memory", "refused", may_have_landed=False))
    assert refused(await stage.ask(FORWARD)) == (503, "store-unavailable")
    stage.foreign_policies(None)
    reply = await stage.ask(FORWARD)
    assert (reply.label, refused(reply)) == (Label.STORE_UNAVAILABLE, (503, "store-unavailable"))
    assert len(stage.upstream.sent) == 1
    assert not isinstance(reply.answer, Passed)
