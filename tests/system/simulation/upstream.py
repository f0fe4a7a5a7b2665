"""The upstream: executes operations, counts them, and answers as badly as the seed wants."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.core.attempt_token import AttemptToken, read_token
from gateway.core.headers import first
from gateway.core.model import Headers
from gateway.core.recovery_point import RecoveryPoint
from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason, Receiver, Tunnel, UpstreamRequest
from tests.support.memory_store.participation import Superseded
from tests.support.responses import Body
from tests.system.simulation.authority import at_once
from tests.system.simulation.scenario import LEASE, MAX_EXECUTION

if TYPE_CHECKING:
    from tests.system.simulation.world import World

KINDS = ("not_sent", "slow_to_connect", "slow", "dropped", "dropped_executed", "late", "truncated", "raises", "statuses")
WAITS = frozenset({"not_sent", "slow_to_connect", "raises"})
"""Of these, what only `send` can do."""
STATUSES = ((500, True), (500, False), (422, False), (429, False), (503, True), (503, False))
"""(status, whether it was executed). Those of `release_on` are truthful: never executed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a request asks for, read from the request itself as the upstream got it."""

    scope: str
    key: str
    meaning: str
    request_id: str
    token: AttemptToken | None = None
    point: str | None = None

    @classmethod
    def of(cls, request: UpstreamRequest) -> "Operation":
        assert isinstance(request.body, bytes)
        words = [(first(request.headers, name) or b"").decode() for name in (b"x-scope", b"idempotency-key", b"x-request-id")]
        token, point = first(request.headers, b"idempotency-token"), first(request.headers, b"idempotency-recovery-point")
        known = None if token is None else read_token(token.decode())
        return cls(words[0], words[1], request.body.decode(), words[2], known, None if point is None else point.decode())


class SimulatedUpstream:
    """`gateway.ports.Upstream` for one gateway; what is executed is told to the oracle."""

    def __init__(self, world: "World", who: str) -> None:
        self._world = world
        self._who = who
        self.shut = False
        """Set when the gateway has drained: nothing may be sent any more."""

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> "SimulatedResponse":
        world, kind = self._world, self._kind()
        if kind != "ok":
            world.journal.count(f"upstream {kind}")
        await asyncio.sleep(world.random.uniform(0.5, 2.5) * LEASE if kind == "slow_to_connect" else self._moment())
        if kind == "not_sent":
            reason = world.random.choice((NotSentReason.CONNECT_REFUSED, NotSentReason.CONNECT_TIMEOUT, NotSentReason.NO_SLOT))
            world.journal.tell(self._who, "cannot send {}: {}", Operation.of(request).request_id, reason.value)
            raise NotSent(reason)
        return await self._exchange(self._take(request, fence, kind), kind)

    def begin(self, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver) -> "SimulatedExchange | None":
        """Sends every other request for which there is a connection at once."""
        kind = self._kind()
        if kind in WAITS or self._world.random.random() < 0.5:
            return None
        if self._world.random.random() < 0.3:
            exchange = SimulatedExchange(held=True)
            exchange.task = self._world.loop.create_task(self._hold(exchange, request, fence, kind, receiver))
            return exchange
        self._world.journal.count("sent at once")
        operation = self._take(request, fence, kind)
        coming = self._exchange(operation, kind)  # the upstream has it now, whatever becomes of this process
        return SimulatedExchange(self._world.loop.create_task(_tell(coming, receiver)))

    async def _hold(
        self, exchange: "SimulatedExchange", request: UpstreamRequest, fence: Callable[[], bool], kind: str, receiver: Receiver
    ) -> None:
        """At the end of the turn it is sent, unless its lease may not be trusted any more, or its connection has gone."""
        await asyncio.sleep(0)
        exchange.held = False
        if self._world.random.random() < 0.2:
            self._world.journal.count("not begun")
            receiver.not_begun()
            return
        try:
            operation = self.take_late(request, fence, kind)
        except NotSent as failure:
            receiver.failed(failure)
            return
        self._world.journal.count("sent at the end of a turn")
        await _tell(self._exchange(operation, kind), receiver)

    def take_late(self, request: UpstreamRequest, fence: Callable[[], bool], kind: str) -> Operation:
        """Send what was held back. Raises `NotSent`."""
        return self._take(request, fence, kind)

    def _take(self, request: UpstreamRequest, fence: Callable[[], bool], kind: str) -> Operation:
        world, operation = self._world, Operation.of(request)
        if not fence():
            world.journal.count("fence held")
            world.journal.tell(self._who, "may not send {}: its lease is not trusted any more", operation.request_id)
            raise NotSent(NotSentReason.LEASE_LAPSED)
        world.journal.tell(self._who, "sends {} to the upstream, which will be {}", operation.request_id, kind)
        guarded = world.oracle.sent(operation)
        if self.shut and guarded:
            world.fail(f"{operation.request_id} was sent after {self._who} had drained")
        return operation

    def _exchange(self, operation: Operation, kind: str) -> "Awaitable[SimulatedResponse]":
        """Let the upstream act, and give what comes of it for the gateway."""
        world = self._world
        if operation.token is not None and kind != "raises":
            return self.participate(operation, operation.token, kind)
        match kind:
            case "raises":
                return _fails(self._moment(), RuntimeError("a defect in the upstream client"))
            case "dropped":
                return _fails(self._moment(), InDoubt(DoubtReason.DISCONNECTED))
            case "dropped_executed":
                world.loop.outside(self._moment(), world.oracle.executed, operation)
                reason = world.random.choice((DoubtReason.DISCONNECTED, DoubtReason.TOTAL_TIMEOUT))
                return _fails(self._moment(), InDoubt(reason))
            case "late":
                world.loop.outside(world.random.uniform(0.3, 0.99) * MAX_EXECUTION, world.oracle.executed, operation)
                return _fails(0.2, InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT))
            case _:
                pass
        arrived: asyncio.Future[SimulatedResponse] = world.loop.create_future()
        takes = world.random.uniform(0.1, 0.95) * MAX_EXECUTION if kind == "slow" else self._moment()
        world.loop.outside(takes, self._act, operation, kind, arrived)
        return arrived

    # ---- taking part

    def participate(self, operation: Operation, token: AttemptToken, kind: str) -> "Awaitable[SimulatedResponse]":
        """Tell a point, then commit: the operation, and its answer. What the attempts before have done is not done again."""
        world, random = self._world, self._world.random
        world.oracle.attempt_began(operation)
        arrived: asyncio.Future[SimulatedResponse | None] = world.loop.create_future()
        slow = kind in {"slow", "late"}
        takes = random.uniform(0.3, 0.95) * MAX_EXECUTION if slow else random.choice((0.001, 0.02, 0.3))
        if kind == "late" and random.random() < 0.5:
            takes *= 4  # an upstream that breaks its own limit: the token alone keeps it from committing twice
        world.loop.outside(takes / 2, self._tell_point, operation, token)
        if kind == "dropped":  # it dies before its commit
            world.loop.outside(takes, world.oracle.attempt_ended, operation)
            return _fails(takes, InDoubt(DoubtReason.DISCONNECTED))
        world.loop.outside(takes, self._commit, operation, token, kind, arrived)
        if kind == "late":
            return _fails(0.2, InDoubt(DoubtReason.FIRST_BYTE_TIMEOUT))
        return _comes(arrived)

    def _tell_point(self, operation: Operation, token: AttemptToken) -> None:
        """A point of the attempt that began, where the one before has told none."""
        if operation.point is None and at_once(self._world.authority.participation.advance(token, RecoveryPoint("charged"))) is not None:
            self._world.journal.count("point told")
            self._world.oracle.told_point(token)

    def _commit(self, operation: Operation, token: AttemptToken, kind: str, arrived: "asyncio.Future[SimulatedResponse | None]") -> None:
        world = self._world
        body = answer_body(operation, executed=True, number=world.oracle.next_number(operation))
        try:
            self.complete(token, ((b"X-Answer", operation.request_id.encode()),), body)
        except Superseded:
            world.journal.count("superseded")
            world.journal.tell("upstream", "rolls {} back: it is superseded", operation.request_id)
            kind = "dropped"
        else:
            world.journal.count("co-committed")
            world.oracle.executed(operation)
            world.oracle.co_committed(token.key)
        world.oracle.attempt_ended(operation)
        if arrived.done():
            return
        if kind in {"dropped", "dropped_executed"}:
            arrived.set_result(None)
        else:
            status, told = (503, b"{}") if kind == "statuses" else (201, body)
            arrived.set_result(SimulatedResponse(world, operation, status, told, truncated=kind == "truncated"))

    def complete(self, token: AttemptToken, headers: Headers, body: bytes) -> None:
        """Raises `Superseded`."""
        self._world.authority.participation.complete(token, 201, headers, body)

    def _act(self, operation: Operation, kind: str, arrived: "asyncio.Future[SimulatedResponse]") -> None:
        """Execute and answer; the answer may find nobody."""
        world = self._world
        status, executes = world.random.choice(STATUSES) if kind == "statuses" else (201, True)
        number = world.oracle.executed(operation) if executes else None
        if not arrived.done():
            body = answer_body(operation, executed=executes, number=number)
            arrived.set_result(SimulatedResponse(world, operation, status, body, truncated=kind == "truncated"))

    def _kind(self) -> str:
        if self._world.healed:
            return "ok"
        drawn = self._world.random.random()
        for kind in KINDS:
            chance: float = getattr(self._world.scenario.upstream, kind)
            if drawn < chance:
                return kind
            drawn -= chance
        return "ok"

    def _moment(self) -> float:
        return self._world.random.choice((0.0, 0.001, 0.02, 0.3))


async def _comes(arrived: "asyncio.Future[SimulatedResponse | None]") -> "SimulatedResponse":
    response = await arrived
    if response is None:
        raise InDoubt(DoubtReason.DISCONNECTED)
    return response


async def _fails(after: float, failure: Exception) -> "SimulatedResponse":
    await asyncio.sleep(after)
    raise failure


async def _tell(coming: "Awaitable[SimulatedResponse]", receiver: Receiver) -> None:
    try:
        response = await coming
    except InDoubt as failure:
        receiver.failed(failure)
    else:
        receiver.answered(response)


def answer_body(operation: Operation, *, executed: bool, number: int | None, verdict: bool = False) -> bytes:
    """A body that says of which operation it speaks, so that nobody can be answered with another's unnoticed."""
    told = {
        "scope": operation.scope,
        "key": operation.key,
        "meaning": operation.meaning,
        "request": operation.request_id,
        "executed": executed,
        "number": number,
        "verdict": verdict,
    }
    return json.dumps(told).encode()


class SimulatedExchange:
    """A request that was sent at once, or is held back, in a task of the gateway's."""

    def __init__(self, task: "asyncio.Task[None] | None" = None, *, held: bool = False) -> None:
        self.task = task
        self.held = held

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()


class SimulatedResponse:
    """`gateway.ports.UpstreamResponse` whose body comes in three pieces."""

    reason = b"Whatever"

    def __init__(self, world: "World", operation: Operation, status: int, body: bytes, *, truncated: bool) -> None:
        self._world = world
        self._operation = operation
        self._truncated = truncated
        third = len(body) // 3 + 1
        self._pieces = Body(_Pieces(self, [body[at : at + third] for at in range(0, len(body), third)]), len(body))
        self.status = status
        self.headers: Headers = ((b"X-Answer", operation.request_id.encode()), (b"Set-Cookie", b"session=" + operation.request_id.encode()))
        self.content_length: int | None = len(body)

    def at_hand(self, limit: int) -> bytes | None:
        return None

    async def read(self, limit: int) -> bytes | None:
        return await self._pieces.read(limit)

    def chunks(self) -> AsyncIterator[bytes]:
        return self._pieces

    def tunnel(self) -> Tunnel:
        raise AssertionError("nobody asked to switch protocols")

    def close(self) -> None:
        pass

    async def between(self, *, last: bool) -> None:
        """Wait before the next piece."""
        await asyncio.sleep(self._world.random.choice((0.0, 0.0, 0.01)))
        if last and self._truncated:
            raise InDoubt(DoubtReason.TRUNCATED_RESPONSE, self.status)
        if last:
            self._world.oracle.answer_read(self._operation)


class _Pieces:
    """An iterator, not a generator: it needs no event loop to be collected."""

    def __init__(self, response: SimulatedResponse, pieces: list[bytes]) -> None:
        self._response = response
        self._pieces = pieces

    def __aiter__(self) -> "_Pieces":
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        await self._response.between(last=len(self._pieces) == 1)
        return self._pieces.pop(0)
