"""Clients of a torture run: they insist, hang up, ask twice at once, and make mistakes."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.client import Client
from tests.system.torture.fleet import Fleet, Place
from tests.system.torture.story import Operation, Told

CALLERS = ("ada", "bob", "cyd")
TRIES = 4
FEW = 16
PATIENCE = 8.0
"""Seconds that a client waits for one answer."""


@dataclass(slots=True)
class Crowd:
    """`wanted` are all operations so far; a client of each insists until it hears its answer."""

    fleet: Fleet
    dice: random.Random
    now: Callable[[], float]
    heard: Callable[[Told], None]
    wanted: list[Operation] = field(default_factory=list)
    open: set[Operation] = field(default_factory=set)
    closing: bool = False

    async def work(self) -> None:
        """One client after the other, until the run closes; then those that still lack their answer go on."""
        while not self.closing:
            operation = self._new()
            await self._insist(operation)
            for _ in range(self.dice.choice((0, 1, 2))):
                await self._look_back()

    async def finish(self, deadline: float) -> list[Operation]:
        """Every operation that has no answer yet is asked for again and again; returns those that have none by then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                # A few at a time, in turn: a crowd of hundreds would be a load of its own.
                while self.open:
                    await asyncio.gather(
                        *(self._try_last(operation) for operation in self.dice.sample(sorted(self.open, key=str), self._few()))
                    )
                    await asyncio.sleep(0.05)
        return sorted(self.open, key=lambda one: one.key)

    def _new(self) -> Operation:
        """Callers use the same keys, each for something of its own."""
        operation = Operation(self.dice.choice(CALLERS), f"k{len(self.wanted) // 2}", 100 + 10 * len(self.wanted))
        if any((one.caller, one.key) == (operation.caller, operation.key) for one in self.wanted[-4:]):
            operation = Operation(operation.caller, f"x{len(self.wanted)}", operation.amount)
        self.wanted.append(operation)
        self.open.add(operation)
        return operation

    async def _insist(self, operation: Operation) -> None:
        """A few times, then others go on: whoever is left without an answer is asked for in the end."""
        left = TRIES
        while operation in self.open and left and not self.closing:
            left -= 1
            tries = [self._try(operation) for _ in range(self.dice.choice((1, 1, 1, 2, 3)))]
            if any(await asyncio.gather(*tries)):
                self.open.discard(operation)
            else:
                await asyncio.sleep(self.dice.uniform(0.0, 0.3))

    def _few(self) -> int:
        return min(FEW, len(self.open))

    async def _try_last(self, operation: Operation) -> None:
        if await self._try(operation):
            self.open.discard(operation)

    async def _look_back(self) -> None:
        """Ask for an old one again, or for another one under its key."""
        old = self.dice.choice(self.wanted)
        if old not in self.open and self.dice.random() < 0.3:
            await self._try(old.other())
        elif await self._try(old):
            self.open.discard(old)

    async def _try(self, operation: Operation) -> bool:
        """Ask once, through any gateway; whether the answer came."""
        place = self.dice.choice(self.fleet.places)
        asked = self.now()
        with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            told = await self._ask(place, operation, asked)
            if told is not None:
                self.heard(told)
                return told.status == 201
        return False

    async def _ask(self, place: Place, operation: Operation, asked: float) -> Told | None:
        gateway = place.gateway
        if gateway is None:
            await asyncio.sleep(0.02)
            return None
        async with asyncio.timeout(PATIENCE), await Client.connect(gateway.port) as client:
            await client.send(request(operation))
            if not self.closing and self.dice.random() < 0.08:
                await asyncio.sleep(self.dice.uniform(0.0, 0.05))
                client.reset()
                return None
            answer = await client.receive()
        replayed = answer.field("idempotent-replayed") is not None
        return Told(asked, self.now(), operation, answer.status, answer.body, answer.problem, replayed, place.name)


def request(operation: Operation) -> bytes:
    """What the client sends. The upstream learns caller and key by fields of its own: for the ledger, not for the gateway."""
    lines = ["POST /v1/pay HTTP/1.1", "Host: gateway.test", "Content-Type: application/json", f"X-Caller: {operation.caller}"]
    lines += [f"X-Key: {operation.key}", f"Idempotency-Key: {operation.key}", f"Content-Length: {len(operation.body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + operation.body
