"""A connection that is kept for questions about where servers are: of Sentinels, and of nodes of a cluster."""

import asyncio
from collections.abc import Iterable

from gateway.store.redis.connection import ErrorReply, Opener, Wire
from gateway.store.redis.server import Answer, Unfit


class Kept:
    """Asks one server, over a connection that it makes when it is wanted. Callers that come while a question is under way must ask the
    same: they share its answer. `member`: it is a node of a cluster.
    """

    def __init__(self, make: Opener, *, member: bool = False) -> None:
        self._make = make
        self._member = member
        self._wire: Wire | None = None
        self._asking: asyncio.Task[list[Answer] | Exception] | None = None

    async def ask(self, commands: Iterable[tuple[bytes | int, ...]], deadline: float) -> list[Answer] | Exception:
        """The replies, by `deadline`; or why there are none. A caller that is cancelled leaves; the question goes on."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask([*commands], deadline), name="redis-question")
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        """Give up the question that is under way, and cut the connection. May be called repeatedly."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        self._cut()

    async def _ask(self, commands: list[tuple[bytes | int, ...]], deadline: float) -> list[Answer] | Exception:
        try:
            if self._wire is None or not self._wire.in_step:
                self._wire = await Wire.connect(self._make, deadline, member=self._member)
            return await self._wire.ask(commands, deadline)
        except (Unfit, ErrorReply, OSError) as error:
            self._cut()
            return error
        except BaseException:
            self._cut()
            raise

    def _cut(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
