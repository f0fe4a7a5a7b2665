"""Answers that go out as they come: by the route's wish, or because they are too large to be held."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.core.decision import Label
from gateway.core.model import Lease, Status, StoredResponse
from gateway.core.policy import Limits
from gateway.engine.answers import Passed, Refused, Relayed
from gateway.ports import DoubtReason, InDoubt, RelayCut, Retention
from tests.engine.stage import KEY, POLICY, Stage, refused, relayed, scene, told
from tests.engine.store import LosesReply, Stalls
from tests.engine.upstream import Part

STREAM = replace(POLICY, stream=True)
SMALL = replace(POLICY, limits=Limits(response_body=10))
PIECES = (b"one ", b"two ", b"three ", b"four")


async def everything(chunks: AsyncIterator[bytes]) -> list[bytes]:
    return [chunk async for chunk in chunks]


@scene
async def test_a_stream_leaves_as_it_comes_but_for_its_last_piece(stage: Stage) -> None:
    """The head and all pieces but the last leave at once; the last waits for the commit."""
    stage.upstream.plays(Part(pieces=PIECES, pauses=(0.1, 1.0, 1.0, 1.0, 1.0), length=18))
    stage.store.script("complete", Stalls(0.5))
    reply = await stage.ask(STREAM)
    assert stage.loop.time() < 0.2
    assert isinstance(reply.answer, Relayed)
    assert (reply.label, reply.answer.status, reply.answer.length, reply.settlement) == (Label.EXECUTE, 201, 18, None)
    arrived = [(round(stage.loop.time(), 1), chunk) async for chunk in reply.answer.body.pieces()]
    assert arrived == [(2.1, b"one "), (3.1, b"two "), (4.1, b"three "), (4.6, b"four")]
    assert (await stage.record()).status is Status.COMPLETED
    assert told(await stage.ask(STREAM)) == (Label.REPLAY, 201, b"one two three four")


@scene
async def test_a_silent_stream_holds_no_event_back(stage: Stage) -> None:
    """Where the length is not known, a piece waits for the next one for a moment only; then the end alone waits for the commit."""
    stage.upstream.plays(Part(pieces=PIECES, pauses=(0.1, 1.0, 1.0, 1.0, 1.0)))
    stage.store.script("complete", Stalls(0.5))
    chunks = relayed(await stage.ask(STREAM))
    arrived = [(round(stage.loop.time(), 2), chunk) async for chunk in chunks]
    assert [(at, chunk) for at, chunk in arrived[:3]] == [(1.15, b"one "), (2.15, b"two "), (3.15, b"three ")]
    assert arrived[3][1] == b"four"
    assert arrived[3][0] >= 4.6
    assert told(await stage.ask(STREAM)) == (Label.REPLAY, 201, b"one two three four")


@scene
async def test_a_stream_of_one_piece_waits_for_its_commit(stage: Stage) -> None:
    """Its only piece is its last; an empty one behind it changes nothing."""
    stage.upstream.plays(Part(pieces=(b"all", b"")))
    stage.store.script("complete", Stalls(1.5))
    chunks = relayed(await stage.ask(STREAM))
    assert await anext(chunks) == b"all"
    assert 1.5 <= stage.loop.time() < 1.6
    assert await everything(chunks) == []


@scene
async def test_an_answer_above_the_cap_is_relayed_and_kept_without_its_body(stage: Stage) -> None:
    """It goes out whole; a retry hears that it ran, how it ended and what its body was like, and nothing runs again."""
    stage.upstream.plays(Part(pieces=PIECES))
    chunks = await everything(relayed(await stage.ask(SMALL)))
    assert b"".join(chunks) == b"one two three four"
    again = await stage.ask(SMALL)
    assert (again.label, refused(again)) == (Label.REPLAY_WITHOUT_BODY, (409, "response-not-stored"))
    assert isinstance(again.answer, Refused)
    assert (again.answer.members["original_status"], again.answer.members["body_length"]) == (201, 18)
    assert len(stage.upstream.sent) == 1


@scene
async def test_an_answer_at_the_cap_is_held_and_kept(stage: Stage) -> None:
    """Exactly `response_body` bytes are not too many."""
    stage.upstream.plays(Part(pieces=(b"12345", b"67890")))
    assert isinstance((await stage.ask(SMALL)).answer, Passed)
    assert told(await stage.ask(SMALL))[2] == b"1234567890"


@scene
async def test_a_stream_is_cut_when_its_settle_is_stale(stage: Stage) -> None:
    """A verdict was first: the client must not take what it got for the operation's answer."""
    stage.upstream.plays(Part(pieces=PIECES, pauses=(0.1, 0.1, 0.1, 0.1, 1.0)))
    chunks = relayed(await stage.ask(STREAM))
    assert await anext(chunks) == b"one "
    found = await stage.record()
    lease = Lease(KEY, found.record_id, found.owner, found.attempt, 0.0, 0.0)
    await stage.memory.complete(lease, StoredResponse(200, b"OK", (), b"found out", 9, b"d" * 32), Retention(1000.0))
    with pytest.raises(RelayCut):
        await everything(chunks)
    assert stage.observer.stale == ["complete"]


@scene
async def test_a_stream_is_cut_when_the_upstream_breaks_off(stage: Stage) -> None:
    """A truncated answer never looks whole, and its record is unknown."""
    stage.upstream.plays(Part(pieces=PIECES[:3], raises=InDoubt(DoubtReason.TRUNCATED_RESPONSE, 201)))
    chunks = relayed(await stage.ask(STREAM))
    with pytest.raises(RelayCut):
        await everything(chunks)
    assert refused(await stage.ask(STREAM)) == (409, "outcome-unknown")


@scene
async def test_the_end_of_a_stream_waits_no_longer_than_settle_timeout(stage: Stage) -> None:
    """With the authority away the true end goes out after `settle_timeout`, and the record completes later."""
    stage.upstream.plays(Part(pieces=PIECES))
    asked = stage.begin(STREAM)
    await stage.clock.sleep(0.0005)
    stage.store.script("complete", Stalls(20.0))
    assert b"".join(await everything(relayed(await asked))) == b"one two three four"
    assert 2.0 <= stage.loop.time() < 2.1
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED


@scene
async def test_a_stream_that_completes_though_its_reply_was_lost_ends_well(stage: Stage) -> None:
    """The repetition of a settle lets the end go like the first."""
    stage.upstream.plays(Part(pieces=PIECES))
    stage.store.script("complete", LosesReply())
    assert b"".join(await everything(relayed(await stage.ask(STREAM)))) == b"one two three four"


@scene
async def test_a_stream_in_doubt_by_its_status_ends_well(stage: Stage) -> None:
    """A 503 is passed on as it is; only its record is unknown."""
    stage.upstream.plays(Part(status=503, pieces=PIECES))
    assert b"".join(await everything(relayed(await stage.ask(STREAM)))) == b"one two three four"
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_a_client_that_reads_nothing_holds_nothing_back(stage: Stage) -> None:
    """Reading the upstream never waits for a client: the record completes, and the client gets all of it whenever it comes to read."""
    pieces = tuple(bytes([number]) * 1024 * 1024 for number in range(10))
    stage.upstream.plays(Part(pieces=pieces))
    policy = replace(STREAM, limits=Limits(response_body=16 * 1024 * 1024))
    chunks = relayed(await stage.ask(policy))
    await stage.quiet()
    assert b"".join(await everything(chunks)) == b"".join(pieces)
    assert await stage.whole(await stage.ask(policy)) == b"".join(pieces)


@scene
async def test_what_outgrew_the_cap_arrives_whole_however_late(stage: Stage) -> None:
    """What was held until the answer outgrew the cap, and what came behind it, is all there for a client that comes late."""
    pieces = (b"x" * 3 * 1024 * 1024, b"y" * 1024, b"z" * 2 * 1024 * 1024)
    policy = replace(POLICY, limits=Limits(response_body=3 * 1024 * 1024))
    stage.upstream.plays(Part(pieces=pieces))
    reply = await stage.ask(policy)
    await stage.quiet()
    assert b"".join(await everything(relayed(reply))) == b"".join(pieces)


@scene
async def test_a_large_answer_within_the_cap_waits_for_its_commit(stage: Stage) -> None:
    """It is too large for memory and goes out from disk, but not before it is committed; its replay likewise."""
    pieces = tuple(bytes([number]) * 500_000 for number in range(10))
    stage.upstream.plays(Part(pieces=pieces))
    stage.store.script("complete", Stalls(1.5))
    reply = await stage.ask()
    assert 1.5 <= stage.loop.time() < 1.6
    assert (reply.label, reply.settlement) == (Label.EXECUTE, "complete")
    assert await stage.whole(reply) == b"".join(pieces)
    again = await stage.ask()
    assert again.label is Label.REPLAY
    assert await stage.whole(again) == b"".join(pieces)


async def nothing_is_held_after(stage: Stage, raises: BaseException | None) -> None:
    """Whatever became of an answer that nobody read, its memory is counted off in the end."""
    stage.upstream.plays(Part(pieces=tuple(b"x" * 100_000 for _ in range(30)), raises=raises))
    reply = await stage.ask(replace(STREAM, limits=Limits(response_body=1_000_000)))
    assert isinstance(reply.answer, Relayed)
    await stage.quiet()
    reply.answer.body.close()
    assert stage.memory_budget.held == 0


@scene
async def test_nothing_is_held_after_an_answer(stage: Stage) -> None:
    """An answer above the cap that its client left unread holds no memory when it is closed."""
    await nothing_is_held_after(stage, None)


@scene
async def test_nothing_is_held_after_a_broken_answer(stage: Stage) -> None:
    """Nor does one that the upstream broke off."""
    await nothing_is_held_after(stage, InDoubt(DoubtReason.TRUNCATED_RESPONSE, 201))


@scene
async def test_a_client_that_goes_away_changes_nothing(stage: Stage) -> None:
    """Nobody reads the stream: the record completes."""
    stage.upstream.plays(Part(pieces=PIECES, pauses=(0.1, 0.5, 0.5, 0.5, 0.5)))
    await stage.ask(STREAM)
    await stage.quiet()
    assert (await stage.record()).status is Status.COMPLETED
