"""A caller's place is free in the end, whatever happens; and what is known is for callers without a quota, too."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.decision import Label
from gateway.core.model import RecordKey, Status
from gateway.core.policy import Execution, MaxPending, OnExpired, OnStoreOutage, OnUnknown, Policy
from gateway.core.quota import NewKeys, Quota
from gateway.core.units import Rate
from gateway.engine.answers import Refused, Reply
from gateway.engine.engine import Engine
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason
from gateway.store.limited import LimitedStore
from gateway.store.quotas import QuotaCounter
from tests.engine.stage import KEY, POLICY, Stage, refused, scene, told
from tests.engine.store import AnswersLate, Fails, Lands, LosesReply, Refuses, Stalls, Trouble, Undone
from tests.engine.test_accepted import ask as ask_for_later
from tests.engine.test_accepted import promised, work_of
from tests.engine.upstream import Part

ONE = replace(POLICY, quota=Quota(1, NewKeys(Rate(1, 1), 1)))
SLOW = replace(POLICY, quota=Quota(new_keys=NewKeys(Rate(1, 86_400), 1)))


def limited(stage: Stage) -> tuple[Engine, QuotaCounter]:
    """The stage's gateway, where quotas are counted."""
    counter = QuotaCounter(stage.clock)
    deps = replace(stage.engine._deps, store=LimitedStore(stage.store, counter), quotas=counter)
    stage.engine._deps = deps
    assert stage.engine.accepted is not None
    stage.engine.accepted._deps = deps
    return stage.engine, counter


async def ask(stage: Stage, key: str, policy: Policy) -> Reply:
    request = stage.request(policy=policy)
    request.key = RecordKey(KEY.scope_id, key)
    return await stage.engine.handle(request)


@scene
async def test_over_quota_nothing_is_reserved_and_what_is_known_is_told(stage: Stage) -> None:
    """A refusal reads the authority once, and writes nothing."""
    limited(stage)
    assert told(await ask(stage, "a", SLOW))[0] is Label.EXECUTE
    stage.transcript.clear()
    assert refused(await ask(stage, "b", replace(SLOW, on_store_outage=OnStoreOutage.FORWARD))) == (429, "quota-exceeded")
    assert stage.transcript == ["find: none"]
    assert told(await ask(stage, "a", SLOW))[0] is Label.REPLAY
    assert len(stage.upstream.sent) == 1


@scene
async def test_nobody_is_refused_by_a_quota_who_may_have_an_answer(stage: Stage) -> None:
    """A 429 says that nothing has run: who knows, while the authority is away? Nor is it forwarded."""
    limited(stage)
    assert told(await ask(stage, "a", SLOW))[0] is Label.EXECUTE
    for outage in OnStoreOutage:
        stage.store.script("find", Refuses())
        stage.store.script("reserve", Refuses())
        assert refused(await ask(stage, "a", replace(SLOW, on_store_outage=outage))) == (503, "store-unavailable")
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_key_that_is_used_up_is_refused_as_that(stage: Stage) -> None:
    """A 429 would say that its operation can still come; only a tombstone knows of it."""
    limited(stage)
    gone = replace(SLOW, on_expired=OnExpired.GONE, tombstone=1e6)
    assert told(await ask(stage, KEY.key, gone))[0] is Label.EXECUTE
    await stage.bury(1e6)
    assert refused(await ask(stage, KEY.key, gone)) == (410, "key-expired")
    assert refused(await ask(stage, "b", gone)) == (429, "quota-exceeded")
    stage.store.script("tombstone", Refuses())
    assert refused(await ask(stage, "b", gone)) == (503, "store-unavailable")


@scene
async def test_a_doubt_that_finds_no_place_to_be_run_again_stays_a_doubt(stage: Stage) -> None:
    """Its first attempt may have run: the client is told so, and when to come again."""
    _, counter = limited(stage)
    policy = replace(POLICY, on_unknown=OnUnknown.REEXECUTE, quota=Quota(1))
    stage.upstream.plays(Part(raises=InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT)), Part(pauses=(5.0,)))
    assert refused(await ask(stage, "a", policy))[1] == "outcome-unknown"
    await stage.clock.sleep(policy.lease + 121)
    running = stage.loop.create_task(ask(stage, "b", policy))
    await stage.clock.sleep(1)
    reply = await ask(stage, "a", policy)
    assert refused(reply) == (409, "outcome-unknown")
    assert isinstance(reply.answer, Refused)
    assert reply.answer.retry_after == 1
    assert told(await running)[1] == 201
    assert told(await ask(stage, "a", policy))[:2] == (Label.REEXECUTE, 201)
    await stage.clock.sleep(1)
    assert not counter.running


@scene
async def test_what_did_not_run_is_retried_without_a_new_key(stage: Stage) -> None:
    """It is the same operation."""
    limited(stage)
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.CONNECT_REFUSED)))
    assert refused(await ask(stage, "a", SLOW))[1] == "upstream-unreachable"
    assert told(await ask(stage, "a", SLOW))[0] is Label.EXECUTE_RETRY
    assert refused(await ask(stage, "b", SLOW)) == (429, "quota-exceeded")


@scene
async def test_an_expired_key_begins_a_new_operation(stage: Stage) -> None:
    limited(stage)
    short = replace(SLOW, retention=1.0)
    assert told(await ask(stage, "a", short))[0] is Label.EXECUTE
    await stage.clock.sleep(2)
    assert refused(await ask(stage, "a", short)) == (429, "quota-exceeded")


STORE = [Refuses(), Undone(), LosesReply(), Lands(None), Lands(1.0), Stalls(3.0), AnswersLate(3.0), Fails()]
UPSTREAM = [
    Part(status=503),
    Part(raises=InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT)),
    Part(raises=ZeroDivisionError()),
    Part(raises_unsent=NotSent(NotSentReason.CONNECT_REFUSED)),
    Part(raises_unsent=ZeroDivisionError()),
]


def _ends_free(arrange: Callable[[Stage], object], policy: Policy) -> Callable[[], None]:
    async def play(stage: Stage) -> None:
        _, counter = limited(stage)
        arrange(stage)
        with contextlib.suppress(ZeroDivisionError):  # a defect of the store's is the request's, before anything was sent
            await ask(stage, "a", policy)
        await stage.clock.sleep(120)
        assert not counter.running
        stage.upstream.parts.clear()
        assert told(await ask(stage, "b", policy))[0] is Label.EXECUTE

    return scene(play)


@pytest.mark.parametrize("operation", ["reserve", "complete", "find", "renew"])
@pytest.mark.parametrize("trouble", STORE, ids=lambda trouble: type(trouble).__name__)
def test_a_place_is_free_after_any_trouble_of_a_store(operation: str, trouble: Trouble) -> None:
    first: list[Any] = [] if operation in {"reserve", "complete"} else [LosesReply()]

    def arrange(stage: Stage) -> None:
        stage.store.script("reserve", *first)
        stage.store.script(operation, trouble)

    _ends_free(arrange, ONE)()


@pytest.mark.parametrize("part", UPSTREAM, ids=["status", "in doubt", "defect", "not sent", "defect unsent"])
def test_a_place_is_free_after_any_trouble_of_an_upstream(part: Part) -> None:
    _ends_free(lambda stage: stage.upstream.plays(part), ONE)()


@scene
async def test_an_attempt_whose_reserve_lost_its_reply_holds_a_place(stage: Stage) -> None:
    """The share was given back when the reserve failed; the attempt runs, since a renewal confirmed it."""
    _, counter = limited(stage)
    running: list[dict[str, int]] = []
    stage.store.script("reserve", LosesReply())
    stage.upstream.plays(Part(comes=lambda: running.append(dict(counter.running))))
    assert told(await ask(stage, "a", ONE))[:2] == (Label.EXECUTE, 201)
    assert running == [{KEY.scope_id: 1}]
    await stage.clock.sleep(1)
    assert not counter.running


@pytest.mark.parametrize("places", [1, 2])
def test_a_claim_that_is_made_again_takes_no_second_place(places: int) -> None:
    """The authority has lost the claim of an attempt that has executed: it is made again, as if there were no limit."""

    @scene
    async def play(stage: Stage) -> None:
        _, counter = limited(stage)
        policy = replace(POLICY, quota=Quota(places, NewKeys(Rate(1, 86_400), 1)))
        stage.upstream.plays(Part(status=429), Part(pauses=(1.0,)))
        await ask(stage, "a", policy)
        released = dict(stage.memory._rows)
        asked = stage.loop.create_task(ask(stage, "a", policy))
        await stage.clock.sleep(0.5)
        stage.memory._rows.update(released)
        assert told(await asked)[:2] == (Label.EXECUTE_RETRY, 201)
        assert told(await ask(stage, "a", policy))[:2] == (Label.REPLAY, 201)
        await stage.clock.sleep(1)
        assert not counter.running

    play()


@pytest.mark.parametrize("quota", [Quota(new_keys=NewKeys(Rate(1, 86_400), 3)), Quota(in_flight=2)])
def test_what_a_client_was_told_202_of_takes_its_share_once(quota: Quota) -> None:
    """Too many wait, which was known after the 202: the record is made anew, and runs."""

    @scene
    async def play(stage: Stage) -> None:
        _, counter = limited(stage)
        policy = replace(POLICY, execution=Execution.PREFER, concurrency=1, max_pending=MaxPending(1, 1), quota=quota)
        work = work_of(stage, policy)
        stage.upstream.plays(Part(pauses=(30.0,)))
        third = RecordKey(KEY.scope_id, "third")
        await ask_for_later(stage, policy)
        await ask_for_later(stage, policy, key=RecordKey(KEY.scope_id, "second"))
        stage.store.script("park", LosesReply(), *[Refuses()] * 8)
        assert promised(await ask_for_later(stage, policy, key=third)) is Status.PENDING
        for _ in range(80):
            await stage.clock.sleep(1.0)
            await work.look()
        done = await stage.memory.find(third)
        assert done is not None
        assert done.status is Status.COMPLETED
        assert stage.observer.failures == []
        assert not counter.running

    play()


@scene
async def test_what_is_not_accepted_takes_no_new_key(stage: Stage) -> None:
    """Too many wait: who asks again and again begins one operation in the end."""
    _, counter = limited(stage)
    quota = Quota(new_keys=NewKeys(Rate(1, 86_400), 3))
    policy = replace(POLICY, execution=Execution.ASYNC, concurrency=1, max_pending=MaxPending(1, 1), quota=quota)
    work = work_of(stage, policy)
    stage.upstream.plays(Part(pauses=(5.0,)))
    second, third = (RecordKey(KEY.scope_id, name) for name in ("second", "third"))
    await ask_for_later(stage, policy)
    await ask_for_later(stage, policy, key=second)
    for _ in range(5):
        assert refused(await ask_for_later(stage, policy, key=third)) == (429, "too-many-pending")
    await stage.clock.sleep(6)
    await work.look()
    promised(await ask_for_later(stage, policy, key=third))
    assert refused(await ask_for_later(stage, policy, key=RecordKey(KEY.scope_id, "fourth"))) == (429, "quota-exceeded")
    for _ in range(3):
        await stage.clock.sleep(2)
        await counter.tick()
        await work.look()
    assert not counter._places


@scene
async def test_a_defect_as_a_place_is_left_hangs_nobody(stage: Stage) -> None:
    """The client has its answer, the record is settled, and the attempt has ended."""
    _, counter = limited(stage)

    def fail(_: bytes) -> None:
        raise ZeroDivisionError

    counter.leave = fail  # type: ignore[assignment, method-assign]  # a test's own
    assert told(await ask(stage, KEY.key, ONE))[:2] == (Label.EXECUTE, 201)
    assert (await stage.record()).status is Status.COMPLETED
    await stage.clock.sleep(1)
    assert stage.engine.in_flight == 0
    stage.loop.errors.clear()
