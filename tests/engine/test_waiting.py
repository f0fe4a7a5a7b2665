"""Duplicates of a running request: told so, or kept waiting. And what becomes of those whose owner is gone."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.core.decision import Label
from gateway.core.model import Lease, Status, StoredResponse
from gateway.core.policy import InFlight, OnExpired
from gateway.engine import waiting
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, Retention
from tests.engine.stage import FORWARD, KEY, POLICY, Stage, refused, scene, told
from tests.engine.store import AnswersLate, Refuses
from tests.engine.upstream import Part

WAIT = replace(POLICY, in_flight=InFlight.WAIT, wait=10.0)
ANSWER = StoredResponse(201, b"Created", (), b"theirs", 6, b"d" * 32)


class LeavingClient:
    """A client's connection, which a test lets end."""

    def __init__(self) -> None:
        self.half_closed = False
        self.leave: Callable[[], object] = lambda: None

    def on_lost(self, callback: Callable[[], object], *, streaming: bool = False) -> Callable[[], None]:
        assert streaming
        self.leave = callback
        return lambda: None


@scene
async def test_a_duplicate_is_told_that_its_request_is_running(stage: Stage) -> None:
    """409 at once, with a Retry-After; nothing is sent."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    first = stage.begin()
    await stage.clock.sleep(1)
    duplicate = await stage.ask()
    assert (duplicate.label, refused(duplicate)) == (Label.IN_PROGRESS, (409, "request-in-progress"))
    assert told(await first)[1] == 201


@scene
async def test_a_waiter_is_woken_by_the_end_of_an_attempt_here(stage: Stage) -> None:
    """It replays the moment the attempt of its own process has settled, however long polls have become."""
    stage.upstream.plays(Part(pauses=(7.3,)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    waiter = await stage.ask(WAIT)
    assert told(waiter) == (Label.REPLAY, 201, b'{"id": "ch_1"}')
    assert stage.loop.time() < 7.4
    assert first.done()
    assert stage.transcript.count("find: completed") == 1


@scene
async def test_a_waiter_polls_for_an_attempt_elsewhere(stage: Stage) -> None:
    """Of another process's attempt it learns from the authority, within a second."""
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(4.0,)))
    await stage.clock.sleep(0.1)
    assert told(await stage.ask(WAIT))[0] is Label.REPLAY
    assert 4.0 <= stage.loop.time() < 5.2
    assert told(await elsewhere)[1] == 201


@scene
async def test_waiting_is_capped(stage: Stage) -> None:
    """At its cap a waiter gets the conflict answer, whether the attempt is here or elsewhere."""
    stage.upstream.plays(Part(pauses=(25.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    here, elsewhere = stage.begin(WAIT), stage.begin(WAIT, engine=stage.another()[0])
    assert refused(await here) == (409, "request-in-progress")
    assert refused(await elsewhere) == (409, "request-in-progress")
    assert 10.0 <= stage.loop.time() < 11.5
    await first
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_crowd_shares_its_looks(stage: Stage) -> None:
    """However many wait for an attempt of another process: each look at the authority is for all of them."""
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(4.0,)))
    await stage.clock.sleep(0.1)
    waiters = [stage.begin(WAIT) for _ in range(300)]
    assert {told(reply)[:2] for reply in await asyncio.gather(*waiters)} == {(Label.REPLAY, 201)}
    assert stage.loop.time() < 5.2
    assert len([line for line in stage.transcript if line.startswith("find")]) < 12
    await elsewhere


@scene
async def test_a_look_that_began_before_a_waiter_came_is_not_for_it(stage: Stage) -> None:
    """It may have read the record as it was before: the late-comer hears of the next one."""
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(0.4,)))
    await stage.clock.sleep(0.1)
    stage.store.script("find", AnswersLate(1.0))
    early = stage.begin(WAIT)
    await stage.clock.sleep(0.2)
    late = stage.begin(WAIT)
    assert told(await early)[0] is told(await late)[0] is Label.REPLAY
    assert [line for line in stage.transcript if line.startswith("find")] == ["find: in_progress", "find: completed"]
    await elsewhere


@scene
async def test_a_record_whose_owner_is_gone_is_lapsed_once_for_all_who_wait(stage: Stage) -> None:
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(300.0,)))
    await stage.clock.sleep(25)
    waiters = [stage.begin(WAIT) for _ in range(50)]
    assert {refused(reply) for reply in await asyncio.gather(*waiters)} == {(409, "outcome-unknown")}
    assert [line for line in stage.transcript if line.startswith("lapse")] == ["lapse: true"]
    assert told(await elsewhere)[1] == 201


@scene
async def test_where_nothing_is_found_one_of_the_waiters_reserves_again(stage: Stage) -> None:
    """The record is gone: the key is free, as for any request. One runs, the others wait for it and replay; nobody is told 409."""
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(dials=1.0, raises_unsent=NotSent(NotSentReason.CONNECT_REFUSED)), Part(pauses=(0.5,)))
    await stage.clock.sleep(0.1)
    waiters = [stage.begin(WAIT) for _ in range(20)]
    assert refused(await elsewhere) == (502, "upstream-unreachable")
    stage.forget()
    labels = [told(reply)[0] for reply in await asyncio.gather(*waiters)]
    assert sorted(labels) == [Label.EXECUTE] + [Label.REPLAY] * 19
    assert len(stage.upstream.sent) == 1


@scene
async def test_a_waiter_who_finds_a_tombstone_is_told_that_the_key_has_expired(stage: Stage) -> None:
    """Not that anything is in progress."""
    gone = replace(WAIT, on_expired=OnExpired.GONE, tombstone=1000.0)
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(0.9,)))
    await stage.clock.sleep(0.1)
    waiter = stage.begin(gone)
    await elsewhere
    await stage.bury(1000.0)
    assert refused(await waiter) == (410, "key-expired")


@scene
async def test_a_client_that_leaves_frees_its_place(stage: Stage) -> None:
    """At once, also one that ends its sending: nobody can tell it from one that has left. Others wait on."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    clients = [LeavingClient() for _ in range(waiting.MAX_WAITERS)]
    waiters = [stage.begin(WAIT, client=client) for client in clients]
    await stage.clock.sleep(0.1)
    assert refused(await stage.ask(WAIT)) == (409, "request-in-progress")
    for client in clients[1:]:
        client.leave()
    assert {refused(reply) for reply in await asyncio.gather(*waiters[1:])} == {(409, "request-in-progress")}
    assert stage.loop.time() < 1
    assert told(await stage.ask(WAIT))[0] is told(await waiters[0])[0] is Label.REPLAY
    await first


@scene
async def test_a_client_that_has_ended_its_sending_gets_no_place(stage: Stage) -> None:
    stage.upstream.plays(Part(pauses=(5.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    client = LeavingClient()
    client.half_closed = True
    assert refused(await stage.begin(WAIT, client=client)) == (409, "request-in-progress")
    assert stage.loop.time() < 1
    await first


@scene
async def test_a_waiter_never_executes_what_an_attempt_gave_back(stage: Stage) -> None:
    """When the attempt turns out not to have executed, a waiter is told to come again rather than sent."""
    stage.upstream.plays(Part(dials=1.0, raises_unsent=NotSent(NotSentReason.CONNECT_REFUSED)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    assert refused(await stage.ask(WAIT)) == (409, "request-in-progress")
    assert refused(await first) == (502, "upstream-unreachable")
    assert stage.upstream.sent == []


@scene
async def test_a_waiter_hears_of_doubt(stage: Stage) -> None:
    """An attempt that ends in doubt ends the wait with `outcome-unknown`."""
    stage.upstream.plays(Part(pieces=(), pauses=(1.0,), raises=InDoubt(DoubtReason.DISCONNECTED)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    assert refused(await stage.ask(WAIT)) == (409, "outcome-unknown")
    await first


@scene
async def test_a_waiter_lapses_the_record_of_an_owner_that_is_gone(stage: Stage) -> None:
    """Without any sweeper: the lease lapses during the wait, the waiter says so to the authority and answers that nobody knows."""
    elsewhere = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(300.0,)))
    await stage.clock.sleep(25)
    assert refused(await stage.ask(WAIT)) == (409, "outcome-unknown")
    assert "lapse: true" in stage.transcript
    assert told(await elsewhere)[1] == 201


@scene
async def test_a_waiter_whose_authority_goes_away_is_never_forwarded(stage: Stage) -> None:
    """Whatever the route says of an outage: the operation is known to be running."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    stage.store.script("find", Refuses())
    reply = await stage.ask(replace(FORWARD, in_flight=InFlight.WAIT))
    assert (reply.label, refused(reply)) == (Label.STORE_UNAVAILABLE, (503, "store-unavailable"))
    await first
    assert len(stage.upstream.sent) == 1


@scene
async def test_too_many_waiters_are_not_kept(stage: Stage) -> None:
    """Above the cap on waiters a duplicate gets the conflict answer at once."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    waiters = [stage.begin(WAIT) for _ in range(waiting.MAX_WAITERS)]
    await stage.clock.sleep(0.1)
    assert refused(await stage.ask(WAIT)) == (409, "request-in-progress")
    assert stage.loop.time() < 1
    assert {told(reply)[0] for reply in await asyncio.gather(*waiters)} == {Label.REPLAY}
    await first


@scene
async def test_a_waiter_that_hangs_up_leaves_its_place(stage: Stage) -> None:
    """A cancelled waiter disturbs nothing: the attempt goes on, others may wait."""
    stage.upstream.plays(Part(pauses=(5.0,)))
    first = stage.begin()
    await stage.clock.sleep(0.1)
    waiter = stage.begin(WAIT)
    await stage.clock.sleep(0.1)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert told(await stage.ask(WAIT))[0] is Label.REPLAY
    assert told(await first)[1] == 201


@scene
async def test_a_record_whose_owner_is_gone_becomes_unknown(stage: Stage) -> None:
    """A lapsed lease is never taken for free: the record is moved to unknown first, then looked at again."""
    gone = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(300.0,)))
    await stage.clock.sleep(31)
    reply = await stage.ask()
    assert (reply.label, refused(reply)) == (Label.UNKNOWN, (409, "outcome-unknown"))
    assert stage.transcript[-3:] == ["reserve: in_progress (lapsed)", "lapse: true", "reserve: unknown"]
    record = await stage.record()
    assert (record.status, record.last_error_code) == (Status.UNKNOWN, "lease_expired")
    await gone


@scene
async def test_a_lapse_whose_reply_was_lost_is_refused(stage: Stage) -> None:
    """503: nothing is known for certain, and nothing is sent; the next request sees what became of it."""
    gone = stage.begin(engine=stage.another()[0])
    stage.upstream.plays(Part(pauses=(300.0,)))
    await stage.clock.sleep(31)
    stage.store.script("lapse", Refuses())
    assert refused(await stage.ask(FORWARD)) == (503, "store-unavailable")
    await gone
    assert len(stage.upstream.sent) == 1


@scene
async def test_what_the_last_look_finds_is_told(stage: Stage) -> None:
    """Others were faster three times, and have completed it meanwhile: a replay, and not that it is in progress."""
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)))
    await stage.ask()

    async def others_are_faster() -> None:
        while stage.transcript.count("claim: none") < 3:
            record = await stage.record()
            if record.status is Status.FAILED_RETRYABLE and stage.transcript[-1].startswith("reserve"):
                taken = await stage.memory.claim(record, stage.intent())
                assert taken is not None
                if stage.transcript.count("claim: none") < 2:
                    await stage.memory.release(taken, "faster", Retention(1000.0))
                else:
                    await stage.memory.complete(taken, ANSWER, Retention(1000.0))
            await asyncio.sleep(0.0005)

    faster = stage.loop.create_task(others_are_faster())
    assert told(await stage.ask()) == (Label.REPLAY, 201, b"theirs")
    await faster


@scene
async def test_somebody_who_is_faster_three_times_is_at_it(stage: Stage) -> None:
    """A request looks again after a claim that somebody else won; after three rounds it says that another is at it."""
    stage.upstream.plays(Part(raises_unsent=NotSent(NotSentReason.DNS)))
    await stage.ask()
    found = await stage.record()

    async def others_are_faster() -> None:
        while "claim: none" not in stage.transcript[-6:] or stage.transcript.count("claim: none") < 3:
            record = await stage.record()
            lease = Lease(KEY, record.record_id, record.owner, record.attempt, 0.0, 0.0)
            if record.status is Status.FAILED_RETRYABLE and stage.transcript[-1].startswith("reserve"):
                taken = await stage.memory.claim(record, stage.intent())
                assert taken is not None
                await stage.memory.release(taken, "faster", Retention(1000.0))
            assert lease.key == found.key
            await asyncio.sleep(0.0005)

    faster = stage.loop.create_task(others_are_faster())
    assert refused(await stage.ask()) == (409, "request-in-progress")
    await faster
    assert stage.upstream.sent == []
