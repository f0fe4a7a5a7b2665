"""Clients, as impatient and forgetful as they are; and the edge of a gateway, which serves one of their requests."""

import asyncio
import hashlib
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.model import Headers, RecordKey
from gateway.engine.answers import Passed, Promised, Refused, Relayed, Replayed, Switched
from gateway.engine.engine import Engine
from gateway.engine.request import GuardedRequest
from gateway.plan import GuardPlan
from gateway.ports import RelayCut
from tests.support.requests import StagedRequest
from tests.system.simulation.scenario import Order, Script

if TYPE_CHECKING:
    from tests.system.simulation.gateway import SimulatedGateway
    from tests.system.simulation.world import World

REQUEST: ContextVar[str | None] = ContextVar("request", default=None)
"""The request that a gateway's task works for."""


class ConnectionLost(Exception):
    """The client's connection ended before a whole answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request on the wire. `meaning` is its body: what the client wants done."""

    request_id: str
    key: RecordKey
    meaning: str
    asked: float

    def guarded(self, plan: GuardPlan) -> StagedRequest:
        headers: Headers = ((b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(self.meaning)))
        wire: Headers = (
            (b"X-Scope", self.key.scope_id.encode()),
            (b"Idempotency-Key", self.key.key.encode()),
            (b"X-Request-Id", self.request_id.encode()),
        )
        return StagedRequest(self.request_id, plan, self.key, self.meaning.encode(), Fields(headers), headers + wire)


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer, as the client has received it."""

    label: Label
    refused: Refused | None = None
    status: int = 0
    headers: Headers = ()
    body: bytes = b""
    replayed: bool = False
    digest: bytes = field(default=b"")
    promised: bool = False

    @property
    def abandoned(self) -> bool:
        """Whether accepted work was given up: nothing of it was ever sent."""
        return self.status == 408 and self.body == b"{}"

    def __str__(self) -> str:
        if self.refused is not None:
            return f"{self.refused.final_status} {self.refused.problem.value.slug}"
        if self.promised or self.abandoned:
            return "202" if self.promised else "408 abandoned"
        told = json.loads(self.body)
        return f"{self.status}{' replayed' if self.replayed else ''} of {told['request']} (execution {told['number']})"


async def serve(world: "World", engine: Engine, request: GuardedRequest) -> Answer:
    """What a gateway's edge does with one request. Raises ConnectionLost when the transfer is cut."""
    REQUEST.set(request.request_id)
    reply = await engine.handle(request)
    match reply.answer:
        case Refused():
            return Answer(reply.label, refused=reply.answer)
        case Passed(status, _, headers, bytes(body)):
            return Answer(reply.label, None, status, headers, body, digest=hashlib.sha256(body).digest())
        case Replayed(status, _, headers, bytes(body)):
            return Answer(reply.label, None, status, headers, body, replayed=True)
        case Relayed(status, _, headers, _, relayed):
            pieces: list[bytes] = []
            try:
                async for chunk in relayed.pieces():
                    pieces.append(chunk)
                    await asyncio.sleep(world.random.choice((0.0, 0.0, 0.05)))
            except RelayCut:
                world.journal.count("relay cut")
                raise ConnectionLost from None
            world.journal.count("relayed")
            body = b"".join(pieces)
            return Answer(reply.label, None, status, headers, body, digest=hashlib.sha256(body).digest())
        case Promised():
            return Answer(reply.label, promised=True)
        case Passed() | Replayed() | Switched():
            raise AssertionError("no answer of the simulation is large, or switches protocols")
        case _:
            assert_never(reply.answer)


class Client:
    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self._name = name

    async def run(self, script: Script) -> None:
        await asyncio.sleep(script.starts)
        for order in script.orders:
            await self._pursue(order)

    async def _pursue(self, order: Order) -> None:
        """Ask until there is an answer of the upstream, or the tries are used up."""
        world = self._world
        key = RecordKey(f"payments:principal-{order.principal}", f"key-{order.key}")
        for _ in range(order.tries):
            gateway = world.random.choice(world.gateways) if order.gateway is None else world.gateways[order.gateway]
            answer = await self.ask(gateway, key, f'{{"amount": {order.variant}}}', order.patience, cancels=order.cancels)
            if answer is not None and answer.refused is None and world.random.random() < 0.7:
                return
            await asyncio.sleep(world.random.choice((0.0, 0.01, 0.5, 1.5)))

    async def ask(self, gateway: "SimulatedGateway", key: RecordKey, meaning: str, patience: float, *, cancels: bool) -> Answer | None:
        """Ask a gateway once. None: no whole answer came. `cancels`: hanging up cancels the handler at the gateway."""
        world = self._world
        ask = Ask(world.next_request_id(), key, meaning, world.loop.time())
        world.oracle.asked(ask)
        world.journal.tell(self._name, "asks {} as {}: {} {}", gateway.name, ask.request_id, key.key, meaning)
        try:
            answer = await self._wait(gateway, ask, patience, cancels=cancels)
        except ConnectionLost:
            world.journal.tell(self._name, "{}: connection lost", ask.request_id)
            return None
        except TimeoutError:
            world.journal.count("client hung up")
            world.journal.tell(self._name, "{}: hangs up{}", ask.request_id, ", which cancels its handler" if cancels else "")
            return None
        world.journal.count(answer.label.value)
        world.journal.tell(self._name, "{}: {}", ask.request_id, answer)
        world.oracle.told(ask, answer)
        return answer

    async def _wait(self, gateway: "SimulatedGateway", ask: Ask, patience: float, *, cancels: bool) -> Answer:
        heard: asyncio.Future[Answer] = self._world.loop.create_future()
        task = gateway.accept(ask, heard)
        try:
            async with asyncio.timeout(patience):
                return await heard
        finally:
            gateway.forget(heard)
            if cancels and task is not None:
                gateway.cancel(task)
