"""The upstream of a torture run: it executes, keeps a ledger, and answers as badly as real ones do."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.upstream import Seen, _read_request
from tests.system.torture.story import PASSED_ON, Executed, Operation

LATEST = 1.5
"""Seconds after which an operation that was received is surely executed or dropped: below the route map's `max_execution`."""

MOODS = {
    "answers": 70,
    "is slow": 8,
    "executes and hangs up": 5,
    "executes and resets": 3,
    "hangs up before": 3,
    "executes late, after the client's patience": 3,
    "executes, then a proxy's 503": 3,
    "is busy: 429": 3,
    "breaks its answer off": 2,
}
"""What it does with an operation, by weight."""


@dataclass(slots=True)
class Ledger:
    """Serves on a free port of the loopback. `executed` hears of each execution, at the moment in which it becomes durable."""

    dice: random.Random
    now: Callable[[], float]
    executed: Callable[[Executed], None]
    calm: bool = False
    """In the end it only answers."""
    port: int = 0
    _runs: dict[str, Executed] = field(default_factory=dict)
    _count: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                seen = await _read_request(reader)
                if seen.method == b"GET":
                    writer.write(self._looked_up(seen))
                else:
                    await self._operate(seen, writer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    def _looked_up(self, seen: Seen) -> bytes:
        """What a lookup shows: the truth, as it is now."""
        found = self._runs.get(seen.target.rpartition(b"=")[2].decode())
        return response(200, {"runs": []} if found is None else {"runs": [_answer(found)]})

    async def _operate(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        mood = "answers" if self.calm else self.dice.choices(list(MOODS), list(MOODS.values()))[0]
        match mood:
            case "hangs up before":
                raise ConnectionAbortedError
            case "is busy: 429":
                writer.write(response(429, json.loads(PASSED_ON[429])))
            case "executes late, after the client's patience":
                await asyncio.sleep(self.dice.uniform(0.8, LATEST))
                writer.write(response(201, _answer(self._execute(seen))))
            case "is slow":
                await asyncio.sleep(self.dice.uniform(0.05, 0.5))
                writer.write(response(201, _answer(self._execute(seen))))
            case "executes and hangs up":
                self._execute(seen)
                writer.close()
                raise ConnectionAbortedError
            case "executes and resets":
                self._execute(seen)
                raise ConnectionAbortedError
            case "executes, then a proxy's 503":
                self._execute(seen)
                writer.write(response(503, json.loads(PASSED_ON[503])))
            case "breaks its answer off":
                writer.write(response(201, _answer(self._execute(seen)))[:-5])
                await writer.drain()
                writer.close()
                raise ConnectionAbortedError
            case _:
                writer.write(response(201, _answer(self._execute(seen))))

    def _execute(self, seen: Seen) -> Executed:
        """Each call is one execution: this upstream deduplicates nothing."""
        document = json.loads(seen.body)
        name, key = (seen.value("x-caller") or b"").decode(), (seen.value("x-key") or b"").decode()
        self._count += 1
        done = Executed(self.now(), Operation(name, key, document["amount"]), self._count)
        self._runs[(seen.value("idempotency-key") or b"").decode()] = done
        self.executed(done)
        return done


def _answer(executed: Executed) -> dict[str, object]:
    return {"number": executed.number, "caller": executed.operation.caller, "amount": executed.operation.amount}


def response(status: int, document: object) -> bytes:
    body = json.dumps(document, separators=(",", ":")).encode()
    return b"HTTP/1.1 %d S\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
