"""Synchronous use of a world, as property tests need it: the loop stands still between two batches."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from gateway.devtools.embedded import RedisServer
from tests.support.services import redis_command
from tests.system.fuzz.cases import LATE, Case, Played
from tests.system.fuzz.judge import judge
from tests.system.fuzz.world import World, world

REPLAY = "python3 scripts/fuzz --replay"


class Found(AssertionError):
    """Something is wrong. Its text names each fault and how to see it again; `cases` are those that show one, with the fault."""

    def __init__(self) -> None:
        super().__init__()
        self.cases: list[tuple[Case, str]] = []

    def add(self, story: str, case: Case | None = None, fault: str = "") -> None:
        self.args = ("\n".join([*self.args, story]),)
        if case is not None:
            self.cases.append((case, fault))


class Bench:
    """Plays cases and says what was wrong. `played` counts them, `found` is the first that was: what depends on time may not show again."""

    def __init__(self, runner: asyncio.Runner, world: World) -> None:
        self.runner = runner
        self.world = world
        self.played = 0
        self.found: Found | None = None

    def __repr__(self) -> str:
        return "the edge"

    def play(self, cases: list[Case]) -> list[Played]:
        """Play cases at the same time."""
        self.played += len(cases)
        return self.runner.run(self.world.play(cases))

    def check(self, cases: list[Case]) -> None:
        """Play cases at the same time and hold them to the rules. Raises Found."""
        found = Found()
        for played in self.play(cases):
            if (fault := judge(played, self.world.used)) is not None:
                found.add(describe(played, fault), played.case, fault)
        for complaint in self.complaints():
            left = [f"  left      {REPLAY} {quoted(case.dump())}" for case in cases if case.end != LATE]
            found.add("\n".join([complaint, *left]))
        if found.args:
            self.found = self.found or found
            raise found

    def fault(self, case: Case) -> str | None:
        """What is wrong with one case, played alone; None: nothing."""
        played = self.play([case])[0]
        return judge(played, self.world.used) or next(iter(self.complaints()), None)

    def complaints(self) -> list[str]:
        """What is wrong with the gateway itself, apart from any one case."""
        return self.runner.run(self.world.complaints())


def describe(played: Played, fault: str) -> str:
    """A fault, with the bytes that went either way."""
    told = [fault, f"  sent      {played.raw!r}, client ends {played.case.end}", f"  says      {played.stream}"]
    return "\n".join([*told, f"  received  {played.received!r}", f"  replay    {REPLAY} {quoted(played.case.dump())}"])


def quoted(text: str) -> str:
    """An argument as a shell takes it."""
    return "'" + text.replace("'", "'\\''") + "'"


@contextlib.contextmanager
def bench(postgres: str, redis: RedisServer, folder: Path) -> Iterator[Bench]:
    """A gateway to play cases against, until the block ends. Redis is emptied first: keys are new in each world, not beyond."""
    assert redis_command(redis, "FLUSHALL") == b"+OK"
    with asyncio.Runner() as runner:
        place = world(postgres, redis.url, folder)
        opened = runner.run(place.__aenter__())
        try:
            yield Bench(runner, opened)
        finally:
            runner.run(place.__aexit__(None, None, None))


def smallest(bench: Bench, case: Case, fault: str) -> Case:
    """A smaller case with the same kind of fault, found by leaving out pieces of it as long as that goes on."""
    bench.world.patience = 1.0

    def fails(one: Case) -> bool:
        return _kind(bench.fault(one) or "") == _kind(fault)

    for simpler in (Case(case.raw), Case(case.raw, case.cuts), Case(case.raw, (), case.end), case):
        if fails(simpler):
            case = simpler
            break
    size = len(case.raw) // 2
    while size:
        at = 0
        while at < len(case.raw):
            shorter = Case(case.raw[:at] + case.raw[at + size :], case.cuts, case.end)
            if fails(shorter):
                case = shorter
            else:
                at += size
        size //= 2
    return case


def _kind(fault: str) -> str:
    """A fault without what is different each time."""
    return re.sub(r"""b'[^']*'|b"[^"]*"|[0-9]+""", "", fault)[:60]
