"""Clients that insist, through two gateways, while the database behind them fails over."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.client import Answer, ask, payment
from tests.support.upstream import CountingUpstream

PAUSE = 0.1
"""Seconds that a client waits before it repeats what was refused."""


@dataclass(slots=True)
class Traffic:
    """`ports` gives those of the gateways that are there now. `errors` counts what clients got instead of an answer; `answers` are those
    that they heard, by key; `lost` tells of answers that a later repetition did not get.
    """

    ports: Callable[[], list[int]]
    requests: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    answers: dict[bytes, bytes] = field(default_factory=dict)
    firsts: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    open: set[bytes] = field(default_factory=set)
    _ending: bool = False
    _dice: random.Random = field(default_factory=lambda: random.Random(11))

    async def run(self, clients: int) -> None:
        """Until `end`, and until every key has its answer."""
        await asyncio.gather(*(self._client(number) for number in range(clients)))

    def end(self) -> None:
        self._ending = True

    async def repeat_all(self) -> None:
        """Every answer once more, each at any gateway: what was told is told again."""
        keys = list(self.answers)
        for start in range(0, len(keys), 32):
            await asyncio.gather(*(self._insist(key) for key in keys[start : start + 32]))

    def longest_silence(self, since: float) -> float:
        """The longest time from then on in which no new key got its answer."""
        heard = [since, *(at for at in self.firsts if at >= since)]
        return max((later - earlier for earlier, later in itertools.pairwise(heard)), default=0.0)

    async def _client(self, number: int) -> None:
        count, own = 0, list[bytes]()
        while not self._ending:
            key = b"c%d-%d" % (number, count)
            count += 1
            self.open.add(key)
            await self._insist(key)
            self.open.discard(key)
            self.firsts.append(time.monotonic())
            own.append(key)
            await self._insist(self._dice.choice(own))
            await asyncio.sleep(self._dice.uniform(0.0, 0.05))

    async def _insist(self, key: bytes) -> None:
        """Until it is answered, at one gateway or the other."""
        while True:
            self.requests += 1
            try:
                answer = await ask(self._dice.choice(self.ports()), payment(key, b'{"key":"%b"}' % key), timeout=30.0)
            except (OSError, EOFError) as error:
                self.errors[type(error).__name__] += 1
            else:
                if answer.status == 201:
                    self._heard(key, answer)
                    return
                self.errors[f"{answer.status} {answer.problem}"] += 1
            await asyncio.sleep(PAUSE)

    def _heard(self, key: bytes, answer: Answer) -> None:
        before = self.answers.setdefault(key, answer.body)
        if before != answer.body:
            self.lost.append(f"{key!r}: {before!r}, and later {answer.body!r}")


def double_runs(upstream: CountingUpstream) -> list[str]:
    return [f"{key!r} ran {count} times" for (_, key), count in upstream.runs.items() if count > 1]
