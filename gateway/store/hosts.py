"""Connecting to Postgres where it may be at several hosts: the one that takes writes is wanted, and no former primary.

The driver tries hosts in order, within one time limit: the first that is silent, as a host without power is, would take all of it, and a
former primary that came back would be as good as its successor. Here hosts are asked at the same time, and of those that take writes the
one with the latest timeline counts. What the DSN refers to (names, a service, a password file) is looked up anew each time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import asyncpg

from gateway.core.conninfo import Target, Wanted
from gateway.core.histories import Histories, History
from gateway.store.lookups import looked_up, password_for, resolved

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

LOOK_AGAIN = 1.0
"""Seconds for which the host that was right counts as the right one. Then all are asked, as another may have become the primary."""

GRACE = 0.5
"""Seconds that the others have to answer once one is found that takes writes."""

IDENTITY = """
SELECT
    (SELECT system_identifier FROM pg_control_system()) AS system,
    CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END AS timeline
"""
"""Of which cluster a server is, and on which of its timelines it writes; each promotion begins a new one."""

_AWAY = (
    TimeoutError,
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.exceptions.TargetServerAttributeNotMatched,
)
"""What makes us try another host: it tells of the server, and not of our login."""

_CANNOT_TELL = ("0A", "42", "55")
"""Classes of SQLSTATE of a server that does not say which it is: other makes, rights that were taken away."""


class Opened(NamedTuple):
    connection: "Connection"
    history: History | None


Open: TypeAlias = Callable[[Target, float], Awaitable[Opened]]
"""Connects to one host within so many seconds."""


class Hosts:
    """Where the server of a DSN is. `moved` hears when a server is found that was promoted since: what is connected to another is
    connected to a former primary.
    """

    def __init__(self, dsn: str, moved: Callable[[], None] = lambda: None) -> None:
        self._dsn = dsn
        self.tried = "the host of its DSN"
        """Where a connection was tried last, for log lines: each host as the DSN has it."""
        self._moved = moved
        self._histories = Histories()
        self._made: WeakKeyDictionary[Connection, History] = WeakKeyDictionary()
        self._last: Target | None = None
        self._looked = 0.0
        self._late: set[asyncio.Future[Opened]] = set()

    async def connect(self, timeout: float, **settings: Any) -> "Connection":
        """A connection within `timeout` seconds. Raises as `asyncpg.connect` does; what was said at each host, if none will do."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        info = looked_up(self._dsn)
        self.tried = ", ".join(map(str, dict.fromkeys(info.targets)))
        targets = list(dict.fromkeys(await resolved(info)))
        wanted: Wanted = info.wanted or ("any" if len(targets) == 1 else "read-write")

        async def open_at(target: Target, limit: float) -> Opened:
            seconds = min(max(0.001, limit), info.connect_timeout or limit)
            connection: Connection = await asyncpg.connect(
                info.dsn(target, wanted, password_for(info, target)), timeout=seconds, **settings
            )
            return await self._known(connection, seconds, pooled=settings.get("statement_cache_size") == 0)

        if len(targets) == 1:
            try:
                return (await open_at(targets[0], timeout)).connection
            except asyncpg.exceptions.TargetServerAttributeNotMatched as error:
                raise _told({targets[0]: error}) from error
        if info.balanced:
            random.shuffle(targets)
        elif self._last in targets and loop.time() < self._looked + LOOK_AGAIN:
            targets = [self._last, *(target for target in targets if target != self._last)]
            try:
                return (await open_at(targets[0], timeout / 2)).connection
            except _AWAY:
                pass
        if wanted == "any":
            target, opened = await _in_order(targets, open_at, until)
        else:
            target, opened = await _at_once(targets, open_at, until, self._late)
        self._last, self._looked = target, loop.time()
        return opened.connection

    def former(self, connection: "Connection") -> bool:
        """Whether a successor of the server of a connection that was made here has been found since."""
        history = self._made.get(connection)
        return history is not None and self._histories.former(history) is not None

    async def _known(self, connection: "Connection", seconds: float, *, pooled: bool) -> Opened:
        """Raises `CannotConnectNowError` for a former primary."""
        try:
            async with asyncio.timeout(seconds):
                history = await _history(connection, pooled=pooled)
            former = None if history is None else self._histories.former(history)
            if former is not None:
                raise asyncpg.CannotConnectNowError(former)
        except BaseException:
            connection.terminate()
            raise
        if history is not None:
            self._made[connection] = history
            if self._histories.seen(history):
                self._moved()
        return Opened(connection, history)


async def connect(dsn: str, timeout: float, **settings: Any) -> "Connection":
    """One connection to the server of a DSN: see `Hosts.connect`."""
    return await Hosts(dsn).connect(timeout, **settings)


async def _in_order(targets: Sequence[Target], open_at: Open, until: float) -> tuple[Target, Opened]:
    """The first that will do; each has an equal share of the time that is left."""
    failed: dict[Target, Exception] = {}
    for number, target in enumerate(targets):
        share = (until - asyncio.get_running_loop().time()) / (len(targets) - number)
        try:
            return target, await open_at(target, share)
        except _AWAY as error:
            failed[target] = error
    raise _told(failed)


async def _at_once(targets: Sequence[Target], open_at: Open, until: float, late: "set[asyncio.Future[Opened]]") -> tuple[Target, Opened]:
    """The one with the latest timeline; of equals the first. Those that have not answered by then go on, in `late`, within their time: one
    of them may turn out to be the primary, of which the one that was chosen is a former one.
    """
    loop = asyncio.get_running_loop()
    tasks = {target: asyncio.ensure_future(open_at(target, until - loop.time())) for target in targets}
    chosen: Opened | None = None
    try:
        pending: set[asyncio.Future[Opened]] = set(tasks.values())
        while pending and not any(_fits(task) for task in tasks.values()):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending:
            await asyncio.wait(pending, timeout=min(GRACE, max(0.0, until - loop.time())))
        fitting = [(target, task.result()) for target, task in tasks.items() if _fits(task)]
        if not fitting:
            raise _told({target: error for target, task in tasks.items() if isinstance(error := task.exception(), Exception)})
        target, chosen = max(fitting, key=lambda found: -1 if found[1].history is None else found[1].history.timeline)
        return target, chosen
    finally:
        for task in tasks.values():
            late.add(task)
            task.add_done_callback(late.discard)
            task.add_done_callback(lambda done: _drop(done, chosen))
            if chosen is None:
                task.cancel()


def _fits(task: "asyncio.Future[Opened]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _drop(done: "asyncio.Future[Opened]", chosen: Opened | None) -> None:
    if _fits(done) and done.result() is not chosen:
        done.result().connection.terminate()


def _told(failed: dict[Target, Exception]) -> Exception:
    """What to raise when no host will do: what tells of our login first. If one answered and takes no writes, that is what each said."""
    for error in failed.values():
        if not isinstance(error, _AWAY):
            return error
    if any(
        isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched | asyncpg.CannotConnectNowError) for error in failed.values()
    ):
        return asyncpg.CannotConnectNowError(
            "no host of the DSN takes writes: " + "; ".join(f"{target}: {_words(error)}" for target, error in failed.items())
        )
    return next(reversed(failed.values()))


def _words(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case asyncpg.exceptions.TargetServerAttributeNotMatched():
            return "takes no writes"
        case _:
            return " ".join(str(error).split()) or type(error).__name__


async def _history(connection: "Connection", *, pooled: bool = False) -> History | None:
    """None if the server does not tell. `pooled`: a pooler may be in between, which keeps nothing but a transaction together."""
    if pooled:
        await connection.execute("BEGIN")
    try:
        row = await connection.fetchrow(IDENTITY)
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "")[:2] not in _CANNOT_TELL:
            raise
        row = None
    if pooled:
        await connection.execute("ROLLBACK")
    if row is None:
        return None
    return History(row["system"], row["timeline"])
