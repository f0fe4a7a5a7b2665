"""One attempt from its lease to its answer, while the authority is there."""

from dataclasses import replace

import pytest

from gateway.core.decision import Label
from gateway.core.model import Status
from gateway.core.policy import OnUnknown
from gateway.engine.answers import Passed, Refused, Replayed
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason
from tests.engine.stage import POLICY, Scene, Stage, refused, scene, told
from tests.engine.store import AnswersLate
from tests.engine.upstream import ActingUpstream, Part


@scene
async def test_the_first_answer_leaves_after_its_commit(stage: Stage) -> None:
    """Reserve, send, complete, answer: in this order; the retry gets the same bytes and nothing is sent again."""
    first = await stage.ask()
    assert stage.transcript == ["reserve: lease, attempt 1", "upstream: sent", "complete: done"]
    assert told(first) == (Label.EXECUTE, 201, b'{"id": "ch_1"}')
    assert (first.settlement, first.reason, first.attempt, first.upstream_status) == ("complete", "responded", 1, 201)
    again = await stage.ask()
    assert told(again) == (Label.REPLAY, 201, b'{"id": "ch_1"}')
    assert isinstance(again.answer, Replayed)
    assert again.answer.original_request == "request-1"
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_date_is_added_where_the_upstream_sent_none(stage: Stage) -> None:
    """RFC 9110 section 6.6.1; the stored answer carries it as well, while a cookie is passed on but never stored."""
    stage.upstream.plays(Part(headers=((b"Set-Cookie", b"a=1"),)))
    first, again = await stage.ask(), await stage.ask()
    date = (b"Date", b"Sat, 01 Jan 2028 00:00:00 GMT")
    assert isinstance(first.answer, Passed)
    assert first.answer.headers == ((b"Set-Cookie", b"a=1"), date)
    assert isinstance(again.answer, Replayed)
    assert again.answer.headers == (date,)


def _not_sent(reason: NotSentReason, status: int) -> Scene:
    async def play(stage: Stage) -> None:
        stage.upstream.plays(Part(raises_unsent=NotSent(reason)))
        reply = await stage.ask()
        assert refused(reply) == (status, "upstream-unreachable")
        assert isinstance(reply.answer, Refused)
        assert (reply.answer.retry_after, reply.answer.members) == (1, {"reason": reason.value})
        assert (reply.settlement, reply.reason) == ("release", reason.value)
        assert (await stage.record()).status is Status.FAILED_RETRYABLE
        assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 201)
        assert len(stage.upstream.sent) == 1

    return play


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (NotSentReason.DNS, 502),
        (NotSentReason.CONNECT_REFUSED, 502),
        (NotSentReason.CONNECT_TIMEOUT, 504),
        (NotSentReason.TLS, 502),
        (NotSentReason.NO_SLOT, 503),
        (NotSentReason.SHUTTING_DOWN, 503),
    ],
)
def test_what_was_not_sent_is_released_and_may_run_again(reason: NotSentReason, status: int) -> None:
    """A proof that nothing was sent gives the key back: the retry executes as attempt 2."""
    scene(_not_sent(reason, status))()


def _in_doubt(reason: DoubtReason, status: int) -> Scene:
    async def play(stage: Stage) -> None:
        stage.upstream.plays(Part(pieces=(), raises=InDoubt(reason)))
        reply = await stage.ask()
        assert refused(reply) == (status, "outcome-unknown")
        assert (reply.settlement, reply.reason) == ("doubt", reason.value)
        assert (await stage.record()).status is Status.UNKNOWN
        assert refused(await stage.ask()) == (409, "outcome-unknown")
        assert len(stage.upstream.sent) == 1

    return play


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (DoubtReason.FIRST_BYTE_TIMEOUT, 504),
        (DoubtReason.READ_TIMEOUT, 504),
        (DoubtReason.TOTAL_TIMEOUT, 504),
        (DoubtReason.DISCONNECTED, 502),
        (DoubtReason.INVALID_RESPONSE, 502),
    ],
)
def test_what_is_in_doubt_is_never_run_again(reason: DoubtReason, status: int) -> None:
    """After the first byte nothing but doubt is left: 504 for a timeout, 502 else, and 409 from then on."""
    scene(_in_doubt(reason, status))()


@scene
async def test_the_first_answer_in_doubt_says_what_its_retries_will(stage: Stage) -> None:
    """Where the outcome is found out: come back with the same key, and when. It once told the client to ask the API itself, for good."""
    found_out = replace(POLICY, on_unknown=OnUnknown.REEXECUTE)
    stage.upstream.plays(Part(pieces=(), raises=InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT)))
    first, again = (await stage.ask(found_out)).answer, (await stage.ask(found_out)).answer
    assert isinstance(first, Refused)
    assert isinstance(again, Refused)
    assert (first.final_status, again.final_status) == (504, 409)
    assert (first.detail, first.retry_after) == (again.detail, again.retry_after)
    assert first.retry_after is not None


@scene
async def test_where_nobody_finds_out_the_first_answer_names_no_time(stage: Stage) -> None:
    """As its retries do: a person has to look, and nobody knows when."""
    stage.upstream.plays(Part(pieces=(), raises=InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT)))
    for answer in ((await stage.ask()).answer, (await stage.ask()).answer):
        assert isinstance(answer, Refused)
        assert (answer.detail, answer.retry_after) == (None, None)


@scene
async def test_a_truncated_answer_is_in_doubt(stage: Stage) -> None:
    """An answer that breaks off is no answer, whatever its head said."""
    stage.upstream.plays(Part(pieces=(b'{"id"',), raises=InDoubt(DoubtReason.TRUNCATED_RESPONSE, 201)))
    reply = await stage.ask()
    assert refused(reply) == (502, "outcome-unknown")
    assert (reply.upstream_status, reply.reason) == (201, "upstream_truncated_response")


@scene
async def test_release_on_statuses_are_passed_on_and_free_the_key(stage: Stage) -> None:
    """The route asserts that 429 comes before execution: the client sees it, the retry runs."""
    stage.upstream.plays(Part(status=429, pieces=(b"slow down",)))
    first = await stage.ask()
    assert told(first) == (Label.EXECUTE, 429, b"slow down")
    assert (first.settlement, first.reason) == ("release", "status_429")
    assert told(await stage.ask())[:2] == (Label.EXECUTE_RETRY, 201)


@scene
async def test_doubt_on_statuses_are_passed_on_and_keep_the_key(stage: Stage) -> None:
    """A 503 may come from somebody behind us, after the upstream had executed."""
    stage.upstream.plays(Part(status=503, pieces=(b"away",)))
    first = await stage.ask()
    assert told(first) == (Label.EXECUTE, 503, b"away")
    assert (first.settlement, first.reason) == ("doubt", "status_503")
    assert refused(await stage.ask()) == (409, "outcome-unknown")


@scene
async def test_any_other_status_completes(stage: Stage) -> None:
    """A complete 500 is an answer: it is stored and replayed."""
    stage.upstream.plays(Part(status=500, pieces=(b"oops",)))
    await stage.ask()
    assert told(await stage.ask()) == (Label.REPLAY, 500, b"oops")


@scene
async def test_another_body_under_the_key_is_refused(stage: Stage) -> None:
    """A key stands for one operation: no other one is answered with its response, nor run."""
    await stage.ask(body=b'{"amount": 1}')
    reply = await stage.ask(body=b'{"amount": 2}')
    assert (reply.label, refused(reply)) == (Label.KEY_MISUSE, (422, "key-reused"))
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_defect_in_the_upstream_client_ends_in_doubt(stage: Stage) -> None:
    """An exception that the port does not allow is reported, and its attempt settled as doubt: nobody waits for a lease to lapse."""
    stage.upstream.plays(Part(pieces=(), raises=ZeroDivisionError()))
    reply = await stage.ask()
    assert (refused(reply), reply.reason) == ((502, "outcome-unknown"), "gateway_error")
    assert [task for task, _ in stage.observer.failures] == ["attempt"]
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_nothing_is_sent_past_the_lease(stage: Stage) -> None:
    """A dial that outlasts the lease, with nobody renewing it, ends at the fence: released, though the record is unknown by then."""
    await outlasts_its_lease(stage, Part(dials=28.0))


@scene
async def test_nothing_that_was_held_back_is_sent_past_the_lease(stage: Stage) -> None:
    """A process that is frozen within a turn of its event loop goes on when its lease has lapsed."""
    await outlasts_its_lease(stage, Part(held_for=28.0))


async def outlasts_its_lease(stage: Stage, part: Part) -> None:
    stage.upstream.plays(part)
    reply = stage.begin()
    await stage.clock.sleep(27.5)
    assert not reply.done()
    assert refused(await reply) == (503, "upstream-unreachable")
    assert stage.upstream.sent == []
    assert (await stage.record()).status is Status.FAILED_RETRYABLE


@scene
async def test_what_was_held_back_and_not_begun_is_sent_once(stage: Stage) -> None:
    """Its connection went before anything was written."""
    stage.upstream.plays(Part(held_for=0.5, connection_lost=True))
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 201)
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_renewed_lease_may_be_sent_under(stage: Stage) -> None:
    """The keeper renews a lease every third of it, so that a slow dial does not end at the fence."""
    keeping = stage.loop.create_task(stage.keeper.run())
    stage.upstream.plays(Part(dials=70.0))
    assert told(await stage.ask())[:2] == (Label.EXECUTE, 201)
    keeping.cancel()
    assert stage.transcript.count("renew: 1 renewed") == 6


@scene
async def test_a_slow_reserve_does_not_stretch_the_lease(stage: Stage) -> None:
    """Trust runs from before the statement was sent: a reserve that took most of a lease leaves none to send under."""
    stage.store.script("reserve", AnswersLate(28.0))
    assert refused(await stage.ask()) == (503, "upstream-unreachable")
    assert stage.upstream.sent == []


@scene
async def test_each_settle_is_told_once(stage: Stage) -> None:
    """Whatever an attempt comes to, the observer hears of it once, and of its upstream once."""
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)), Part(status=429), Part())
    for _ in range(4):
        await stage.ask()
    assert stage.observer.settlements == [("release", "dns_error"), ("release", "status_429"), ("complete", "responded")]
    assert stage.observer.upstream == [None, 429, 201]
    assert stage.observer.stale == []


@scene
async def test_a_request_under_way_keeps_the_upstream_of_its_plan(stage: Stage) -> None:
    """A reload that gives its route another upstream, or none, is for requests to come."""
    request = stage.request()
    stage.upstream, before = ActingUpstream(stage), stage.upstream
    before.plays(Part())
    assert told(await stage.engine.handle(request))[1] == 201
    assert (len(before.sent), stage.upstream.sent) == (1, [])
