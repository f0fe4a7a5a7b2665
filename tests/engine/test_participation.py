"""Upstreams that take part: what they are told, where they resume, and what they complete themselves."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.core.attempt_token import AttemptToken, read_token
from gateway.core.decision import Label
from gateway.core.model import Status
from gateway.core.policy import Mode, OnUnknown, Participate, Policy
from gateway.core.recovery_point import RecoveryPoint
from gateway.engine.answers import Passed, Replayed, Reply
from gateway.ports import DoubtReason, InDoubt, Retention, StoreUnavailable, UpstreamRequest
from gateway.ports.participation import Participant, Progress
from tests.engine.stage import KEY, POLICY, Stage, refused, scene, told
from tests.engine.store import Refuses
from tests.engine.upstream import Part

TELLS = replace(POLICY, participate=Participate(progress=True))
RESUMES = replace(TELLS, on_unknown=OnUnknown.RESUME)
COMMITS = replace(POLICY, participate=Participate(co_commit=True))
LOST = Part(pieces=(), raises=InDoubt(DoubtReason.DISCONNECTED))
CHARGED = RecoveryPoint("charge_created", '{"charge":"ch_é"}')
DATA = b'{"charge":"ch_\\u00e9"}'
OURS = b"committed"


def fields(request: UpstreamRequest) -> dict[bytes, bytes]:
    """What the upstream was told of its attempt."""
    return {name: value for name, value in request.headers if name.startswith(b"Idempotency-") and name != b"Idempotency-Token"}


def token(request: UpstreamRequest) -> AttemptToken:
    found = read_token(dict(request.headers)[b"Idempotency-Token"].decode())
    assert found is not None
    return found


async def commit(stage: Stage, body: bytes = OURS, status: int = 201) -> None:
    """The upstream's transaction for its newest request."""
    stage.memory.participation.complete(token(stage.upstream.sent[-1]), status, ((b"X-Kept", b"1"),), body)


async def known(stage: Stage) -> None:
    await stage.memory.participation.register([Participant("charge", 30.0, Retention.of(POLICY), 1000, co_commit=True)])


def kept(reply: Reply) -> tuple[int, object, Sequence[tuple[bytes, bytes]]]:
    assert isinstance(reply.answer, Passed | Replayed)
    return reply.answer.status, reply.answer.body, reply.answer.headers


@scene
async def test_each_attempt_has_a_token_of_its_own(stage: Stage) -> None:
    """It names the record and the owner; on other routes there is none."""
    stage.upstream.plays(Part(status=429), Part())
    assert told(await stage.ask(TELLS))[1] == 429
    assert told(await stage.ask(TELLS))[1] == 201
    first, second = stage.upstream.sent
    assert [fields(request) for request in (first, second)] == [{b"Idempotency-Attempt": b"1"}, {b"Idempotency-Attempt": b"2"}]
    assert token(first).key == token(second).key == KEY
    assert token(first).owner != token(second).owner == (await stage.record()).owner


@scene
async def test_others_are_told_nothing(stage: Stage) -> None:
    await stage.ask(POLICY)
    assert not any(name.startswith(b"Idempotency-") for name, _ in stage.upstream.sent[0].headers)


@scene
async def test_the_next_attempt_hears_of_the_point(stage: Stage) -> None:
    """Of whichever attempt told it last, with its data in ASCII."""
    stage.upstream.plays(Part(status=429, pauses=(1.0,)), Part(status=429), Part())
    asked = stage.begin(TELLS)
    await stage.clock.sleep(0.5)
    assert await stage.memory.participation.advance(token(stage.upstream.sent[0]), CHARGED) is not None
    await asked
    await stage.ask(TELLS)
    await stage.ask(TELLS)
    wanted = {b"Idempotency-Recovery-Point": b"charge_created", b"Idempotency-Recovery-Data": DATA}
    assert fields(stage.upstream.sent[1]) == {b"Idempotency-Attempt": b"2", **wanted}
    assert fields(stage.upstream.sent[2]) == {b"Idempotency-Attempt": b"3", **wanted}


@scene
async def test_a_doubt_resumes_at_its_point(stage: Stage) -> None:
    """Not before the upstream has surely finished; the answer then is the operation's. The attempt before is superseded."""
    stage.upstream.plays(Part(pieces=(), raises=InDoubt(DoubtReason.DISCONNECTED), pauses=(1.0,)), Part())
    asked = stage.begin(RESUMES)
    await stage.clock.sleep(0.5)
    before = token(stage.upstream.sent[0])
    await stage.memory.participation.advance(before, CHARGED)
    assert refused(await asked) == (502, "outcome-unknown")
    assert refused(await stage.ask(RESUMES)) == (409, "outcome-unknown")
    assert len(stage.upstream.sent) == 1
    await stage.clock.sleep(POLICY.lease + POLICY.max_execution + 1)
    assert told(await stage.ask(RESUMES))[:2] == (Label.REEXECUTE, 201)
    assert fields(stage.upstream.sent[1])[b"Idempotency-Recovery-Point"] == b"charge_created"
    assert await stage.memory.participation.advance(before, CHARGED) is None
    assert told(await stage.ask(RESUMES))[0] is Label.REPLAY


@scene
async def test_a_point_that_cannot_be_read_sends_nothing(stage: Stage) -> None:
    """The upstream would begin anew. The attempt is released, or the doubt stays."""
    stage.upstream.plays(Part(status=429), Part())
    await stage.ask(TELLS)
    progress = stage.memory.participation.progress

    async def away(token: AttemptToken) -> Progress | None:
        raise StoreUnavailable("memory", "timeout", may_have_landed=True)

    stage.memory.participation.progress = away  # type: ignore[method-assign]  # an outage
    assert refused(await stage.ask(TELLS)) == (503, "upstream-unreachable")
    assert stage.observer.settlements[-1] == ("release", "recovery_point_unknown")
    stage.memory.participation.progress = progress  # type: ignore[method-assign]
    assert told(await stage.ask(TELLS))[1] == 201
    assert [fields(request)[b"Idempotency-Attempt"] for request in stage.upstream.sent] == [b"1", b"3"]


@pytest.mark.parametrize(
    "part",
    [
        Part(pauses=(1.0,)),
        Part(pauses=(1.0,), status=429),
        Part(pauses=(1.0,), status=503),
        Part(pauses=(1.0,), status=500),
        Part(pauses=(1.0,), pieces=(), raises=InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT)),
        Part(pauses=(1.0,), pieces=(), raises=InDoubt(DoubtReason.DISCONNECTED)),
    ],
)
def test_what_is_committed_is_the_answer(part: Part) -> None:
    """Whatever the upstream says over HTTP, or fails to: the first client gets what every retry gets."""

    @scene
    async def play(stage: Stage) -> None:
        await known(stage)
        stage.upstream.plays(part)
        asked = stage.begin(COMMITS)
        await stage.clock.sleep(0.5)
        await commit(stage)
        reply = await asked
        assert kept(reply) == (201, OURS, ((b"X-Kept", b"1"),))
        assert (reply.label, reply.settlement, reply.reason) == (Label.EXECUTE, "complete", "responded")
        assert stage.observer.settlements == [("complete", "responded")]
        assert stage.observer.differing == ([] if part.raises else ["request-1"])
        assert stage.observer.conflicts == []
        again = await stage.ask(COMMITS)
        assert (again.label, *kept(again)[:2]) == (Label.REPLAY, 201, OURS)

    play()


@scene
async def test_the_same_answer_is_no_difference(stage: Stage) -> None:
    """It is the stored one all the same, with its fields."""
    await known(stage)
    stage.upstream.plays(Part(pauses=(1.0,), pieces=(OURS,)))
    asked = stage.begin(COMMITS)
    await stage.clock.sleep(0.5)
    await commit(stage)
    assert kept(await asked) == (201, OURS, ((b"X-Kept", b"1"),))
    assert stage.observer.differing == []


@scene
async def test_an_upstream_that_commits_nothing(stage: Stage) -> None:
    """Its answer settles the record as on any route."""
    await known(stage)
    assert told(await stage.ask(COMMITS))[:2] == (Label.EXECUTE, 201)
    assert stage.observer.settlements == [("complete", "responded")]


@scene
async def test_a_commit_after_the_doubt(stage: Stage) -> None:
    """The upstream is slower than the gateway waits: its transaction ends the doubt."""
    await known(stage)
    stage.upstream.plays(LOST)
    assert refused(await stage.ask(COMMITS)) == (502, "outcome-unknown")
    await commit(stage)
    assert (await stage.record()).status is Status.COMPLETED
    assert kept(await stage.ask(COMMITS))[1] == OURS


@scene
async def test_a_commit_between_look_and_settle(stage: Stage) -> None:
    """The settle is refused, and the client gets what is stored."""
    await known(stage)
    stage.upstream.plays(Part(pauses=(1.0,), pieces=(b"said",)))
    asked = stage.begin(COMMITS)
    await stage.clock.sleep(1.0015)  # the look takes a millisecond, and the settle lands one later
    await commit(stage)
    assert kept(await asked)[1] in {OURS, b"said"}
    assert kept(await asked)[1] == kept(await stage.ask(COMMITS))[1]


@scene
async def test_a_store_that_is_away(stage: Stage) -> None:
    """The look fails: the true answer goes out once the record is settled, or after `settle_timeout`."""
    await known(stage)
    stage.store.script("find", Refuses())
    stage.upstream.plays(Part(pieces=(b"said",)))
    assert kept(await stage.ask(COMMITS))[1] == b"said"
    assert stage.observer.settlements == [("complete", "responded")]


@scene
async def test_what_is_only_observed_is_told_nothing(stage: Stage) -> None:
    observed: Policy = replace(COMMITS, mode=Mode.OBSERVE)
    await stage.ask(observed)
    assert fields(stage.upstream.sent[0]) == {}
