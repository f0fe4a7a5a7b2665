"""One torture run: clients, gateways, stores and the upstream, broken at random, and the judgement over what happened."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.services import new_root, remove_data
from tests.system.torture.clients import Crowd
from tests.system.torture.fleet import Fleet, fleet
from tests.system.torture.ledger import Ledger
from tests.system.torture.story import Executed, Story, Told, violations

ENDING = 90.0
"""Seconds within which every key reaches its answer once nothing is broken any more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: `broken` are lines for people, each with the story of its key."""

    operations: int
    answers: Counter[str]
    faults: int
    broken: list[str]


async def torture(
    seed: int, seconds: float, *, clients: int = 12, breakers: int = 2, settle_timeout: str = "20s", standby: bool = False
) -> Outcome:
    """Break things for `seconds`, mend everything, wait until every client has its answer, judge. `seed` decides what is tried, not
    what the machine makes of it.
    """
    story, begun = Story(), time.monotonic()

    def now() -> float:
        return time.monotonic() - begun

    ledger = Ledger(random.Random(seed), now, story.add)
    folder = new_root()
    await ledger.start()
    try:
        async with fleet(folder, random.Random(seed + 1), now, story.add, ledger.port, settle_timeout, standby=standby) as made:
            crowd = Crowd(made, random.Random(seed + 2), now, story.add)
            stuck = await _play(made, crowd, ledger, seconds, clients, breakers)
        defects = await asyncio.to_thread(_defects, folder)
    finally:
        await ledger.stop()
        remove_data(folder)
    broken = [f"{what}\n" + "\n".join(story.of(key)) for key, what in violations(story, ended=crowd.wanted)]
    broken += [f"{operation} had no answer {ENDING:g} s after everything was mended" for operation in stuck]
    broken += [f"a gateway logged a defect of its own: {line}" for line in defects]
    return Outcome(len(crowd.wanted), _counted(story), sum(not isinstance(one, Executed | Told) for one in story.events), broken)


async def _play(made: Fleet, crowd: Crowd, ledger: Ledger, seconds: float, clients: int, breakers: int) -> list[object]:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    at_work = [loop.create_task(crowd.work()) for _ in range(clients)]

    async def breaking() -> None:
        while loop.time() < until:
            await made.pause(0.0, 1.0)
            await made.break_something()

    await asyncio.gather(*(breaking() for _ in range(breakers)))
    ledger.calm = crowd.closing = True
    for way in made.ways:
        await way.relay.heal()
    deadline = loop.time() + ENDING
    stuck = await crowd.finish(deadline)
    _, late = await asyncio.wait(at_work, timeout=max(1.0, deadline - loop.time()))
    for task in late:
        task.cancel()
    for task in at_work:
        if task not in late:
            task.result()
    return list(stuck)


def _defects(folder: Path) -> list[str]:
    """Log lines with a traceback, in its own form or in that of our logs, the first of each kind: a store or an upstream that is away is
    no reason for one.
    """
    lines = [
        line for log in sorted(folder.glob("*.log")) for line in log.read_text().splitlines() if '"stack"' in line or "Traceback" in line
    ]
    return list({line[-200:]: line for line in reversed(lines)}.values())


def _counted(story: Story) -> Counter[str]:
    told = [event for event in story.events if isinstance(event, Told)]
    return Counter(one.problem or (f"{one.status} replayed" if one.replayed else str(one.status)) for one in told)
