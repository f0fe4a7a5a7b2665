"""A gateway that counts the calls of its event loop's thread while it answers, one request at a time: what `benchmarks.calls` starts."""

import argparse
import asyncio
import gc
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import asyncpg
import uvloop

import gateway
from gateway.config import load
from gateway.run.server.process import Process

OURS = str(Path(gateway.__file__).parent) + os.sep
MINE = str(Path(__file__).parent) + os.sep
GENERATORS = 0x20 | 0x80 | 0x200
"""The flags of code that can be entered more than once: generators, coroutines, asynchronous generators."""
WARM_UP = 40
ROUNDS = 25
QUIET = 0.03
"""Seconds without a call after which a request counts as over: what is done after the answer belongs to it."""
LONGEST = 20
"""So many times that is waited."""
BODY = b'{"account":"acct_%06d","amount":%d,"currency":"EUR","description":"order %d"}'
HEAD = (
    b"POST %b HTTP/1.1\r\nHost: api.test\r\nUser-Agent: calls/1\r\nAccept: */*\r\nAuthorization: Bearer tenant-1\r\n"
    b"Content-Type: application/json\r\ntraceparent: 00-%032x-%016x-01\r\nIdempotency-Key: %b\r\nContent-Length: %d\r\n\r\n"
)


@dataclass(slots=True)
class Calls:
    """What was entered so far, by code. `resumed` counts coroutines and generators that went on after a wait."""

    entered: Counter[CodeType] = field(default_factory=Counter)
    resumed: Counter[CodeType] = field(default_factory=Counter)
    total: int = 0

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        """For `sys.setprofile`."""
        if event != "call":
            return
        code = frame.f_code
        again = code.co_flags & GENERATORS and code.co_code[frame.f_lasti + 1] & 3  # the argument of RESUME: 0 is a first entry
        (self.resumed if again else self.entered)[code] += 1
        self.total += 1

    def take(self) -> "Calls":
        """What came since the last time."""
        taken = Calls(self.entered, self.resumed, self.total)
        self.entered, self.resumed = Counter(), Counter()
        return taken


@dataclass(frozen=True, slots=True)
class Way:
    """The way of one kind of request: what the shortest of several entered. The others met background work, or replies that were slow
    enough to tell the clock of the database something new: on a busy machine most of them. `garbage`: objects that each left in a cycle, so
    that only the garbage collector frees them; together with what background work left meanwhile.
    """

    entered: Counter[CodeType]
    resumed: Counter[CodeType]
    garbage: int

    @classmethod
    def of(cls, requests: list[Calls], garbage: int) -> "Way":
        shortest = min(requests, key=lambda one: sum(_ours(one.entered).values()))
        return cls(shortest.entered, shortest.resumed, garbage)

    def figures(self) -> dict[str, Any]:
        """Calls and files of ours, how often a frame of ours went on after a wait, calls of libraries in Python, and garbage."""
        return {
            "calls": sum(_ours(self.entered).values()),
            "files": len({code.co_filename for code in _ours(self.entered)}),
            "resumed": sum(_ours(self.resumed).values()),
            "libraries": sum(times for code, times in self.entered.items() if not code.co_filename.startswith((OURS, MINE))),
            "garbage": self.garbage,
        }

    def functions(self) -> list[tuple[str, int]]:
        return Counter({_named(code): times for code, times in _ours(self.entered).items()}).most_common()


def _ours(counted: Counter[CodeType]) -> dict[CodeType, int]:
    return {code: times for code, times in counted.items() if code.co_filename.startswith(OURS)}


class Client:
    """One keep-alive connection. Key and body belong to the number of a request, its trace is its own."""

    def __init__(self, port: int, prefix: str) -> None:
        self._port = port
        self._prefix = prefix
        self._socket: socket.socket | None = None
        self._sent = 0

    def send(self, path: bytes, number: int) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 30)
        self._sent += 1
        body = BODY % (number, 100 + number, number)
        key = hashlib.sha256(f"{self._prefix} {number}".encode()).hexdigest()[:32].encode()
        self._socket.sendall(HEAD % (path, 0xABCDEF + self._sent, self._sent, key, len(body)) + body)

    def status(self) -> int:
        """Of the answer, which is read whole."""
        assert self._socket is not None
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._read()
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        while len(body) < length:
            body += self._read()
        return int(head[9:12])

    def _read(self) -> bytes:
        assert self._socket is not None
        data = self._socket.recv(65536)
        if not data:
            raise SystemExit("the gateway closed the connection")
        return data


class Driver:
    """Asks a gateway of this process from another thread, and counts what that costs the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, dsn: str) -> None:
        self._loop = loop
        self._port = port
        self._dsn = dsn
        self._calls = Calls()

    def run(self, *, functions: bool) -> dict[str, Any]:
        """The figures of each kind of request."""
        self._until_it_serves()
        self._loop.call_soon_threadsafe(sys.setprofile, self._calls.hook)
        client = Client(self._port, f"of {self._port}")  # other gateways may have left keys in the same Redis
        ways: dict[str, Way] = {}
        for name, path in (("new key", b"/v1/charges"), ("replay", b"/v1/charges"), ("unguarded", b"/other")):
            self._warm_up(client, path)
            ways[name] = self._walk(client, path, again=name == "replay")
        figures: dict[str, Any] = {name: way.figures() for name, way in ways.items()}
        stacks = self._stacks_at_reserve()
        figures["new key"]["frames"] = max((len(stack) for stack in stacks if not stack[0].startswith("store/")), default=0)
        if functions:
            figures["functions"] = {name: way.functions() for name, way in ways.items()}
            figures["stacks"] = stacks
        return figures

    def _warm_up(self, client: Client, path: bytes) -> None:
        for number in range(WARM_UP):
            client.send(path, number)
            client.status()
        self._until_quiet()

    def _until_it_serves(self) -> None:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.05)
        raise SystemExit("the gateway does not serve")

    def _walk(self, client: Client, path: bytes, *, again: bool) -> Way:
        """What each of the requests entered. Those of a second walk along a guarded path are replays; asked `again`, each is one of what
        the process has replayed a moment ago.
        """
        walked, asked = [], 3 if again else 1
        self._on_loop(gc.disable)
        self._on_loop(gc.collect)
        for number in range(WARM_UP, WARM_UP + ROUNDS):
            for _ in range(asked - 1):  # one learns it, if it was forgotten meanwhile; one makes ready what the next is told
                self._ask(client, path, number)
            self._calls.take()
            self._ask(client, path, number)
            walked.append(self._calls.take())
        garbage = self._on_loop(gc.collect) // (ROUNDS * asked)
        self._on_loop(gc.enable)
        return Way.of(walked, garbage)

    def _ask(self, client: Client, path: bytes, number: int) -> None:
        client.send(path, number)
        status = client.status()
        if status != 201:
            raise SystemExit(f"unexpected status {status}")
        self._until_quiet()

    def _until_quiet(self) -> None:
        """Until nothing was entered for a while. Background work may go on for ever."""
        for _ in range(LONGEST):
            before = self._calls.total
            time.sleep(QUIET)
            if before == self._calls.total:
                return

    # ---- frames

    def _stacks_at_reserve(self) -> list[list[str]]:
        """The coroutines of ours in each task that a request made or waits for while Postgres holds its reserve back."""
        holding, held = threading.Event(), threading.Event()
        locker = threading.Thread(target=asyncio.run, args=(self._hold(held, holding),), daemon=True)
        locker.start()
        if not held.wait(30):
            raise SystemExit("the table could not be locked")
        before = self._on_loop(lambda: asyncio.all_tasks(self._loop))
        client = Client(self._port, f"frames of {self._port}")
        client.send(b"/v1/charges", 1)
        self._until_quiet()
        stacks: list[list[str]] = self._on_loop(lambda: [list(_frames(task)) for task in asyncio.all_tasks(self._loop) - before])
        holding.set()
        if client.status() != 201:
            raise SystemExit("the held request was refused")
        locker.join(30)
        return [stack for stack in stacks if stack]

    async def _hold(self, held: threading.Event, holding: threading.Event) -> None:
        connection = await asyncpg.connect(self._dsn)
        async with connection.transaction():
            await connection.execute("LOCK TABLE gateway_records IN ACCESS EXCLUSIVE MODE")
            held.set()
            await asyncio.to_thread(holding.wait, 20)
        await connection.close()

    def _on_loop(self, look: Callable[[], Any]) -> Any:
        async def work() -> Any:
            return look()

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)


def _frames(task: asyncio.Task[Any]) -> Iterator[str]:
    """The coroutines of ours that wait for each other in a task, outermost first, and on in a task that the innermost waits for."""
    waiting: Any = task.get_coro()
    while waiting is not None:
        code = getattr(waiting, "cr_code", None) or getattr(waiting, "gi_code", None)
        if code is not None and code.co_filename.startswith(OURS):
            yield _named(code)
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    inner = getattr(task, "_fut_waiter", None)
    if isinstance(inner, asyncio.Task):
        yield from _frames(inner)


def _named(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(OURS)} {code.co_qualname}"


def main() -> None:
    """Serve, count, write the figures to a file as JSON, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("dsn")
    parser.add_argument("result", type=Path)
    parser.add_argument("--functions", action="store_true")
    chosen = parser.parse_args()
    config = load(chosen.config, os.environ)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        driver = Driver(runner.get_loop(), chosen.port, chosen.dsn)

        def drive() -> None:
            try:
                chosen.result.write_text(json.dumps(driver.run(functions=chosen.functions)))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=drive, daemon=True).start()
        sys.exit(runner.run(Process(config).run(accept_scope_change=False, accept_clock=False)))


if __name__ == "__main__":
    main()
