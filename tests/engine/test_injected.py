"""A defect at any step ends in doubt or in a release, never in a hang, a lost key or a second execution.

Each case plays one request once, to count what the engine asks of its ports, and then once for each of these calls, which raises: before it
has done its work, and after.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from gateway.core.attempt_token import read_token
from gateway.core.model import Status
from gateway.core.policy import Execution, InFlight, Limits, Mode, OnUnknown, Participate, Policy
from gateway.engine.answers import Passed, Relayed, Replayed, Reply
from gateway.engine.dependencies import Dependencies
from gateway.engine.engine import Engine
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.ports import DoubtReason, Exchanging, InDoubt, NotSent, Receiver, Recollection, Retention, UpstreamRequest, UpstreamResponse
from gateway.ports.participation import Participant
from gateway.store.cached import CachedStore
from gateway.store.replay_cache import ReplayCache
from tests.engine.stage import KEY, POLICY, Stage
from tests.engine.upstream import Part
from tests.support.requests import StagedRequest
from tests.system.simulation.loop import SimulatedLoop

NO_FAULT = frozenset({"boottime", "drop", "close", "background_failed", "in_flight", "now_us"})
"""Calls that cannot fail (clocks and dictionaries), or whose failure nobody is left to be told of."""


class Defect(Exception):
    """What is raised."""


class Wire:
    """Stands between the engine and its ports: counts the calls, and has the one with number `at` raise, `before` or after its work."""

    def __init__(self, at: int = -1, *, before: bool = True) -> None:
        self.calls: list[str] = []
        self._at = at
        self._before = before

    def around(self, port: Any) -> Any:
        return _Port(self, port)

    def call(self, name: str, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if name in NO_FAULT:
            return function(*args, **named)
        number = len(self.calls)
        self.calls.append(name)
        if inspect.iscoroutinefunction(function):
            return self._awaited(number, function, *args, **named)
        if number == self._at and self._before:
            raise Defect(name)
        result = function(*args, **named)
        if number == self._at:
            raise Defect(name)
        return result

    async def _awaited(self, number: int, function: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
        if number == self._at and self._before:
            raise Defect
        result = await function(*args, **named)
        if number == self._at:
            raise Defect
        return result


class _Port:
    def __init__(self, wire: Wire, port: Any) -> None:
        self._wire = wire
        self._port = port

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found
        return lambda *args, **named: self._wire.call(name, found, *args, **named)


class WiredUpstream:
    """The stage's upstream, with `wire` before it and before its responses."""

    def __init__(self, wire: Wire, stage: Stage, *, commits: bool) -> None:
        self._wire = wire
        self._stage = stage
        self._commits = commits

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> UpstreamResponse:
        response: UpstreamResponse = await self._wire.call("send", self._stage.upstream.send, request, fence)
        self._commit(request)
        wired: UpstreamResponse = self._wire.around(response)
        return wired

    def begin(self, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver) -> Exchanging | None:
        begun: Exchanging | None = self._wire.call("begin", self._stage.upstream.begin, request, fence, WiredReceiver(self._wire, receiver))
        if begun is not None:
            self._commit(request)
        return begun

    def _commit(self, request: UpstreamRequest) -> None:
        """The upstream completes the record itself, before it answers."""
        if self._commits:
            token = read_token(dict(request.headers)[b"Idempotency-Token"].decode())
            assert token is not None
            self._stage.memory.participation.complete(token, 201, (), b"committed")


class WiredReceiver:
    """Stands between an upstream's connection and the attempt. What a call raises ends the exchange in doubt, as on a real connection."""

    def __init__(self, wire: Wire, receiver: Receiver) -> None:
        self._wire = wire
        self._receiver = receiver

    def answered(self, response: UpstreamResponse) -> None:
        self._tell("answered", self._receiver.answered, self._wire.around(response))

    def failed(self, failure: InDoubt | NotSent) -> None:
        self._tell("failed", self._receiver.failed, failure)

    def not_begun(self) -> None:
        self._tell("not_begun", self._receiver.not_begun)

    def _tell(self, name: str, call: Callable[..., None], *what: Any) -> None:
        try:
            self._wire.call(name, call, *what)
        except Defect:
            self._receiver.failed(InDoubt(DoubtReason.GATEWAY_ERROR))


async def recollection(stage: Stage) -> Recollection:
    """What a process remembers that has replayed the stage's record a moment ago."""
    store = CachedStore(stage.memory, ReplayCache(1 << 20, 60.0, stage.clock.boottime), stage.clock)
    await store.reserve(stage.intent())
    return store.known


def wired(stage: Stage, wire: Wire, remembered: Recollection | None = None) -> Engine:
    deps = stage.engine._deps
    return Engine(
        Dependencies(
            wire.around(deps.store),
            wire.around(deps.clock),
            wire.around(deps.randomness),
            wire.around(deps.observer),
            wire.around(deps.keeper),
            deps.memory,
            deps.offload,
            meanings=wire.around(deps.meanings),
            reconciliation=deps.reconciliation,
            participation=wire.around(deps.participation),
            sealer=deps.sealer,
            acceptance=wire.around(deps.acceptance),
            abandoned=deps.abandoned,
            remembered=None if remembered is None else partial(wire.call, "known", remembered),
        ),
        ForeignFingerprints(stage._lookup, b""),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """`prepare` brings the key into the state that the request meets."""

    policy: Policy
    prepare: Callable[[Stage], Awaitable[None]]
    part: Part = field(default_factory=Part)
    remembered: bool = False
    commits: bool = False


async def nothing(_: Stage) -> None: ...


async def released(stage: Stage) -> None:
    stage.upstream.plays(Part(status=429))
    await stage.ask()


async def completed(stage: Stage) -> None:
    await stage.ask()


async def lapsed(stage: Stage) -> None:
    await stage.memory.reserve(stage.intent())
    await stage.clock.sleep(31.0)


async def in_doubt(stage: Stage) -> None:
    stage.upstream.plays(Part(status=503))
    await stage.ask(AGAIN)
    await stage.clock.sleep(200.0)


async def under_way(stage: Stage) -> None:
    stage.upstream.plays(Part(pauses=(1.0,)))
    stage.later(0.0, stage.ask())
    await stage.clock.sleep(0.5)


async def slot_taken(stage: Stage) -> None:
    """Nothing is in the way but the slots of a process that is going away."""


async def known(stage: Stage) -> None:
    await stage.memory.participation.register([Participant("charge", 30.0, Retention.of(POLICY), 1000, co_commit=True)])


COMMITS = replace(POLICY, participate=Participate(co_commit=True))
ASYNC = replace(POLICY, execution=Execution.ASYNC)
AGAIN = replace(POLICY, on_unknown=OnUnknown.REEXECUTE)
CASES = {
    "a new key": Case(POLICY, nothing),
    "an observed one": Case(replace(POLICY, mode=Mode.OBSERVE), nothing),
    "one that was released": Case(POLICY, released),
    "one that is completed": Case(POLICY, completed),
    "one that is remembered": Case(POLICY, completed, remembered=True),
    "one whose lease has lapsed": Case(POLICY, lapsed),
    "one that waits": Case(replace(POLICY, in_flight=InFlight.WAIT), under_way),
    "one that is held back": Case(POLICY, nothing, Part(held_for=0.0)),
    "one that is held back for too long": Case(POLICY, nothing, Part(held_for=28.0)),
    "one whose connection goes meanwhile": Case(POLICY, nothing, Part(held_for=0.0, connection_lost=True)),
    "a refusal": Case(POLICY, nothing, Part(status=429)),
    "a doubt": Case(POLICY, nothing, Part(status=503)),
    "a stream": Case(replace(POLICY, stream=True), nothing, Part(pieces=(b"a", b"b", b"c"))),
    "a large answer": Case(replace(POLICY, limits=Limits(response_body=1000)), nothing, Part(pieces=(b"x" * 1000, b"y"))),
    "a re-execution": Case(AGAIN, in_doubt),
    "a resumption": Case(replace(AGAIN, on_unknown=OnUnknown.RESUME, participate=Participate(progress=True)), in_doubt),
    "an upstream that commits": Case(COMMITS, known, commits=True),
    "an upstream that commits and refuses": Case(COMMITS, known, Part(status=429), commits=True),
    "an upstream that may commit": Case(COMMITS, known),
    "one that is accepted": Case(ASYNC, nothing),
    "one that is accepted and refused": Case(ASYNC, nothing, Part(status=429)),
    "one that is accepted and waits": Case(replace(ASYNC, concurrency=1), slot_taken),
}


async def play(stage: Stage, case: Case, wire: Wire) -> None:
    await case.prepare(stage)
    before = len(stage.upstream.sent)
    engine = wired(stage, wire, await recollection(stage) if case.remembered else None)
    request = stage.request(policy=case.policy)
    request.guard = replace(request.guard, upstream=WiredUpstream(wire, stage, commits=case.commits))
    request.later = case.policy.accepts
    if case.prepare is slot_taken and engine.accepted is not None:
        engine.accepted.stop()
    stage.upstream.plays(case.part)
    await answered(engine, request)
    async with asyncio.timeout(3600):
        while engine.in_flight or stage.engine.in_flight:
            await asyncio.sleep(1)
    assert request.payload == b"", "the body is held"
    assert stage.keeper.holding == 0, "the lease is held"
    assert len(stage.upstream.sent) - before <= 1
    await judge(stage, before, guarded=not request.guard.observes)


async def answered(engine: Engine, request: StagedRequest) -> None:
    """Ask, and take whatever answer there is, for an hour at most. A defect before anything was reserved is the edge's to answer."""
    async with asyncio.timeout(3600):
        try:
            reply = await engine.handle(request)
        except Defect:
            return
        await taken(reply)


async def taken(reply: Reply) -> None:
    if isinstance(reply.answer, Passed | Relayed | Replayed) and not isinstance(reply.answer.body, bytes):
        try:
            async for _ in reply.answer.body.pieces():
                pass
        except Exception:
            pass
        finally:
            reply.answer.body.close()


async def judge(stage: Stage, before: int, *, guarded: bool) -> None:
    """Once the lease has lapsed, a retry finds what was done, or that nobody knows; it executes only if nothing was, or it was refused or
    only observed.
    """
    sent = stage.upstream.sent[before:]
    stage.upstream.parts.clear()
    await stage.clock.sleep(31.0)
    found = await stage.memory.find(KEY)
    executed = bool(sent) and found is not None and found.status is not Status.FAILED_RETRYABLE
    reply = await stage.ask()
    await taken(reply)
    again = len(stage.upstream.sent) - before - len(sent)
    assert again <= 1
    if guarded and sent and (found is None or executed):
        assert not again, "it ran a second time"
    assert (await stage.record()).status is not Status.IN_PROGRESS, "the key is stuck"


def calls_of(case: Case, wire: Wire, order: int, *, at_once: bool) -> list[str]:
    loop = SimulatedLoop(Random(order))
    try:
        stage = Stage(loop, at_once=at_once)
        loop.run_until_complete(play(stage, case, wire))
        loop.run_until_complete(stage.quiet())
    finally:
        loop.dispose()
    return wire.calls


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_defect_at_any_step(name: str, before: bool, at_once: bool) -> None:
    """Of all that the engine asks of its ports, one call after the other raises."""
    case = CASES[name]
    calls = calls_of(case, Wire(), 0, at_once=at_once)
    assert len(calls) >= (2 if case.remembered else 3)
    for at, call in enumerate(calls):
        try:
            calls_of(case, Wire(at, before=before), at, at_once=at_once)
        except BaseException as error:
            error.add_note(f"{name}: {call}, which is call {at} of {calls}, raises {'before' if before else 'after'} its work")
            raise
