"""The primary that Redis Sentinels know by a name: found before each connection, and followed when they promote another server."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redis._parsers.helpers import parse_sentinel_master

from gateway.core.redis_url import Host, SentinelUrl, spelled
from gateway.store.redis.connection import Opener, opener
from gateway.store.redis.kept import Kept
from gateway.store.redis.server import REFUSALS, Answer, Refusal, Unfit

EVERY = 1.0
"""Seconds between two looks for another primary: a Sentinel that promotes one cuts the old one's connections if it can reach it."""

PATIENCE = 1.0
"""Seconds for which a look that nobody waits for may take."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """What one Sentinel says of the primary. `epoch` is that of the promotion that made it one."""

    epoch: int
    host: Host


class SentinelPlace:
    """A `Place`. All Sentinels of the URL are asked at once; what most of them answer is enough, and of different answers the one of the
    latest promotion counts: a Sentinel that was cut off still names a former primary.
    """

    def __init__(self, url: SentinelUrl) -> None:
        self._url = url
        self._sentinels = {host: Kept(opener(url.sentinel.at(host))) for host in url.hosts}
        self._found: Told | None = None
        opener(url.primary.at(url.hosts[0]))  # says what is wrong with the options
        self.address = f"the primary {url.master} of the Sentinels {', '.join(map(spelled, url.hosts))}"

    async def find(self, deadline: float) -> Opener:
        """As `Place.find`."""
        self._found = await self._look(deadline)
        self.address = spelled(self._found.host)
        return opener(self._url.primary.at(self._found.host))

    async def changed(self) -> None:
        """As `Place.changed`."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(EVERY)
            try:
                if self._supersedes(await self._look(loop.time() + PATIENCE)):
                    return
            except (Unfit, OSError):
                pass  # the connection says whether the primary is there
            except Exception:
                _log.exception("The Sentinels could not be asked")

    async def check(self, deadline: float) -> list[str]:
        """What is wrong with single Sentinels, as sentences."""
        answers = await asyncio.gather(*(self._ask(host, deadline) for host in self._url.hosts))
        return [f"{spelled(host)}: {answer}" for host, answer in zip(self._url.hosts, answers, strict=True) if not isinstance(answer, Told)]

    async def close(self) -> None:
        """As `Place.close`."""
        await asyncio.gather(*(sentinel.close() for sentinel in self._sentinels.values()))

    def _supersedes(self, told: Told) -> bool:
        """Whether it is another primary than the one that was found. A Sentinel that has not heard of the last promotion yet says nothing
        new.
        """
        found = self._found
        return found is None or (told.host != found.host and told.epoch >= found.epoch)

    async def _look(self, deadline: float) -> Told:
        loop = asyncio.get_running_loop()
        waiting: set[asyncio.Task[Told | Exception]] = {loop.create_task(self._ask(host, deadline)) for host in self._sentinels}
        told: list[Told] = []
        failed: list[Exception] = []
        try:
            while waiting and len(told) <= len(self._sentinels) // 2:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    answer = one.result()
                    told.append(answer) if isinstance(answer, Told) else failed.append(answer)
        finally:
            for one in waiting:
                one.cancel()  # its question goes on, within its time
        if told:
            return max(told, key=lambda one: one.epoch)
        raise _worst(failed)

    async def _ask(self, host: Host, deadline: float) -> Told | Exception:
        answers = await self._sentinels[host].ask([(b"SENTINEL", b"MASTER", self._url.master.encode())], deadline)
        return answers if isinstance(answers, Exception) else told_by(answers[0])


def told_by(answer: Answer) -> Told | Exception:
    """What a reply to `SENTINEL MASTER` says."""
    if isinstance(answer, Refusal):
        if answer.code in REFUSALS:
            return Unfit(REFUSALS[answer.code], answer.text)
        return Unfit("no_primary" if "No such master" in answer.text else "no_sentinel", answer.text)
    try:
        state: Mapping[str, object] = parse_sentinel_master(answer)  # type: ignore[no-untyped-call]
        return Told(int(str(state["config-epoch"])), (str(state["ip"]), int(str(state["port"]))))
    except (TypeError, ValueError, KeyError, AttributeError):
        return Unfit("no_sentinel", "it answered SENTINEL MASTER with something else")


def _worst(failed: Iterable[Exception]) -> Exception:
    """The failure that says most: that of a server which answers."""
    for kind in (Unfit, OSError, Exception):
        for error in failed:
            if isinstance(error, kind):
                return error if isinstance(error, (Unfit, OSError)) else ConnectionError(str(error))
    return ConnectionError("no Sentinel answers")
