"""Two gateways behind one address, replaced one by one by those of another release, under clients that insist."""

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from gateway.devtools.embedded.ports import free_port
from tests.support.client import Answer, ask, payment
from tests.support.forking import Forked
from tests.support.gateway import Setup
from tests.support.upstream import CountingUpstream, Exchange

READY = 60.0
"""Seconds until a gateway that was started must be ready."""


Run: TypeAlias = "Callable[[Path, list[str], BinaryIO], Awaitable[asyncio.subprocess.Process | Forked]]"
"""Starts a command of the code in a tree, with its output in a file."""


@dataclass(slots=True)
class Outcome:
    """What clients were told. `broken` are answers that no client should have got; `moved` counts requests that a gateway did not take any
    more, and the other one took.
    """

    answers: Counter[tuple[int, str | None]] = field(default_factory=Counter)
    bodies: dict[bytes, bytes] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    moved: int = 0


class Place:
    """One of the two addresses behind the balancer. It runs the code of one tree, and then of another."""

    def __init__(self, name: str, setup: Setup, folder: Path, run: Run) -> None:
        self._run = run
        self.port, self._admin = free_port(), free_port()
        self.config = folder / f"{name}.yaml"
        self.config.write_text(setup.yaml(self.port, self._admin))
        self._log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | Forked | None = None

    async def start(self, tree: Path) -> None:
        """Until it is ready. Raises RuntimeError with the end of its log."""
        with self._log.open("ab") as log:
            self._process = await self._run(tree, ["serve", "--config", str(self.config)], log)
        try:
            async with asyncio.timeout(READY):
                while not await self._ready():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise RuntimeError(f"the gateway of {tree} is not ready:\n{self._log.read_text()[-2000:]}") from None

    async def migrate(self, tree: Path) -> None:
        """Raises RuntimeError if it fails."""
        with self._log.open("ab") as log:
            process = await self._run(tree, ["migrate", "--config", str(self.config)], log)
        if await process.wait() != 0:
            raise RuntimeError(f"migrate of {tree} failed:\n{self._log.read_text()[-2000:]}")

    async def _ready(self) -> bool:
        try:
            return (await ask(self._admin, b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).status == 200
        except (OSError, EOFError):
            return False

    async def stop(self) -> None:
        """Drain it. Raises RuntimeError if that fails."""
        if self._process is not None:
            process, self._process = self._process, None
            process.terminate()
            if (code := await process.wait()) != 0:
                raise RuntimeError(f"the drain ended with {code}:\n{self._log.read_text()[-2000:]}")


async def run_gateway(tree: Path, arguments: list[str], output: BinaryIO) -> asyncio.subprocess.Process:
    """Under this interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "gateway", *arguments, cwd=tree, env=environment, stdout=output, stderr=output
    )


class Clients:
    """Each sends new keys, some of them twice at once, and repeats keys that have their answer; at either gateway, and at the other one
    where that takes no request.
    """

    def __init__(self, places: tuple[Place, Place], count: int) -> None:
        self._places = places
        self._count = count
        self._dice = random.Random(3)
        self._ended = asyncio.Event()
        self.outcome = Outcome()

    async def run(self) -> None:
        """Until `end`."""
        await asyncio.gather(*(self._insist(number) for number in range(self._count)))

    def end(self) -> None:
        self._ended.set()

    def judged(self, upstream: CountingUpstream) -> Outcome:
        """What they were told, with what `upstream` ran more than once."""
        self.outcome.broken += [f"{key!r} ran {count} times" for (_, key), count in upstream.runs.items() if count != 1]
        return self.outcome

    async def _insist(self, number: int) -> None:
        count, own = 0, list[bytes]()
        while not self._ended.is_set():
            key = b"c%d-%d" % (number, count)
            count += 1
            await asyncio.gather(*(self._once(key) for _ in range(1 + (self._dice.random() < 0.3))))
            own.append(key)
            await self._once(key)
            await self._once(self._dice.choice(own))

    async def _once(self, key: bytes) -> None:
        raw = payment(key, b'{"key":"%b"}' % key)
        while True:
            for place in self._dice.sample(self._places, 2):
                try:
                    self._judge(key, await ask(place.port, raw, timeout=30.0))
                except (OSError, EOFError):
                    self.outcome.moved += 1
                else:
                    return
            await asyncio.sleep(0.05)

    def _judge(self, key: bytes, answer: Answer) -> None:
        outcome = self.outcome
        outcome.answers[answer.status, answer.problem] += 1
        if answer.status == 201:
            if outcome.bodies.setdefault(key, answer.body) != answer.body:
                outcome.broken.append(f"{key!r}: another answer than before")
        elif (answer.status, answer.problem) != (409, "request-in-progress"):
            outcome.broken.append(f"{key!r}: {answer.status} {answer.body[:200]!r}")


async def roll(
    setup: Setup,
    upstream: CountingUpstream,
    folder: Path,
    before: Path,
    after: Path,
    *,
    clients: int,
    seconds: float,
    tell: Callable[[str], None],
    run: Run = run_gateway,
) -> Outcome:
    """From `before` to `after`, one gateway of two back and forth again, each stage for so many seconds. `upstream` and the empty database
    of `setup` are the run's own. Raises RuntimeError where a gateway does not start, drain or migrate.
    """
    one, two = places = (Place("one", setup, folder, run), Place("two", setup, folder, run))
    insistent = Clients(places, clients)
    upstream.behave = _slowly

    async def stage(name: str) -> None:
        tell(f"{name}: {sum(insistent.outcome.answers.values())} answers until now, {len(insistent.outcome.broken)} of them wrong")
        await asyncio.sleep(seconds)

    async def replace_by(place: Place, tree: Path, name: str) -> None:
        await place.stop()
        await place.start(tree)
        await stage(name)

    try:
        await one.migrate(before)
        await asyncio.gather(one.start(before), two.start(before))
        insisting = asyncio.create_task(insistent.run())
        await stage("both of the release before")
        await one.migrate(after)
        await stage("the schema is the new one")
        await replace_by(one, after, "one of each")
        await replace_by(two, after, "both new")
        await replace_by(one, before, "one of them taken back")
        await replace_by(one, after, "both new again")
        insistent.end()
        await insisting
    finally:
        await asyncio.gather(one.stop(), two.stop())
    return insistent.judged(upstream)


async def stay(setup: Setup, upstream: CountingUpstream, folder: Path, tree: Path, *, seconds: float) -> Outcome:
    """As `roll`, of one gateway that nothing happens to."""
    place = Place("one", setup, folder, run_gateway)
    clients = Clients((place, place), 8)
    upstream.behave = _slowly
    try:
        await place.migrate(tree)
        await place.start(tree)
        insisting = asyncio.create_task(clients.run())
        await asyncio.sleep(seconds)
        clients.end()
        await insisting
    finally:
        await place.stop()
    return clients.judged(upstream)


async def _slowly(exchange: Exchange) -> None:
    exchange.execute()
    await asyncio.sleep(random.uniform(0.0, 0.15))
    await exchange.answer()
