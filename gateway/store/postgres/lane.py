"""One connection to Postgres, and what its errors mean for the statement that met them."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg

from gateway.ports import StoreUnavailable
from gateway.store.postgres.rows import Row

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[Row]  # generic only in its stubs
else:
    Connection = asyncpg.Connection

T = TypeVar("T")

STORE = "postgres"
RETRIES = 8
"""How often a statement that lost a serialization conflict or a deadlock is repeated. It was rolled back, so that is no second sending."""

PLANS_KEPT = 1000
"""Statements after which a connection plans anew. A plan that was made while a table was empty reads the whole of it for each key, and
Postgres keeps it until it next looks at the table, up to minutes later; meanwhile a busy table grows by tens of thousands of rows.
"""

BURY_TIMEOUT = 1.0
"""Seconds for the last words on a connection that is given up."""

_DATA_CLASSES = frozenset({"22", "23", "54"})
_NOT_READY = frozenset({"25006", "42P01", "42703", "57P03"})
"""Read-only (a standby after a failover), tables or columns not there yet, still starting."""
_FINAL = frozenset({"25006", "57P01", "57P02", "57P03", "57P05"})
"""After these the connection is of no more use: the server goes, or is not the primary any more."""


class Refused(Exception):
    """The statement was refused for its data (SQLSTATE class 22, 23 or 54, or a value that the driver cannot send); nothing was written."""


def unavailable(reason: str, *, may_have_landed: bool) -> StoreUnavailable:
    return StoreUnavailable(STORE, reason, may_have_landed=may_have_landed)


def failure_reason(error: BaseException) -> str:
    """The closed-set word for an error of asyncpg or the operating system."""
    match error:
        case TimeoutError() | asyncpg.QueryCanceledError():
            return "timeout"
        case ConnectionRefusedError() | FileNotFoundError():
            return "refused"
        case asyncpg.PostgresConnectionError() | asyncpg.AdminShutdownError() | asyncpg.CrashShutdownError() | OSError():
            return "disconnected"
        case asyncpg.PostgresError() if error.sqlstate in _NOT_READY:
            return "not_ready"
        case asyncpg.InsufficientResourcesError():
            return "overloaded"
        case _:
            return "error"


class Lane:
    """A connection that one statement at a time uses, up to `deadline` (event loop time), which its user sets.

    `usable` turns False for good after a timeout or an error that leaves its state in doubt: such a lane must be buried, not used.
    `explicit` wraps each statement in a transaction of its own, so that a pooler in transaction mode keeps the steps of the extended
    protocol on one server connection.
    """

    __slots__ = ("_connection", "_explicit", "_planned", "_sent", "_usable", "deadline")

    def __init__(self, connection: Connection, *, explicit: bool) -> None:
        self.deadline = 0.0
        self._connection = connection
        self._explicit = explicit
        self._planned = 0
        self._usable = True
        self._sent = False

    @property
    def usable(self) -> bool:
        return self._usable and not self._connection.is_closed()

    async def fetch(self, sql: str, *arguments: Any) -> list[Row]:
        """Run one statement and return its rows. Raises `Refused` or `StoreUnavailable`; repeated after a serialization conflict."""
        return await self._guarded(lambda connection: connection.fetch(sql, *arguments), together=self._explicit)

    async def together(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in one READ COMMITTED transaction. Raises as `fetch`; `work` is repeated after a serialization conflict."""
        return await self._guarded(work, together=True)

    async def bury(self) -> None:
        """Close the connection within `BURY_TIMEOUT`, or cut it.

        The driver first asks the server to cancel what was given up: a backend that waits for a lock would otherwise not notice that
        its client has gone, and repeated calls would fill the server with such backends.
        """
        with contextlib.suppress(Exception):  # there is nobody whom an error could concern
            await self._connection.close(timeout=BURY_TIMEOUT)

    async def _guarded(self, work: Callable[[Connection], Awaitable[T]], *, together: bool) -> T:
        self._sent = False
        try:
            async with asyncio.timeout_at(self.deadline):
                return await self._repeated(work, together=together)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise self._translated(error) from error
        except asyncio.CancelledError:
            self._usable = False
            raise

    async def _repeated(self, work: Callable[[Connection], Awaitable[T]], *, together: bool) -> T:
        attempt = 0
        while True:
            try:
                return await (self._transaction(work) if together else self._alone(work))
            except asyncpg.TransactionRollbackError:  # 40001, 40P01: undone as a whole, by the server's word
                attempt += 1
                if attempt > RETRIES:
                    raise
                await asyncio.sleep(random.random() * 0.001 * 2**attempt)  # noqa: S311 (spreads repeats, hides nothing)

    async def _alone(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        if self._connection.is_closed():
            raise ConnectionResetError
        self._planned += 1
        if self._planned > PLANS_KEPT:
            await self._connection.execute("DISCARD PLANS")
            self._planned = 1
        self._sent = True
        return await work(self._connection)

    async def _transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Not the driver's context manager, whose way out waits for a peer that may have stalled."""
        await self._connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        self._sent = True
        try:
            result = await work(self._connection)
        except Exception:
            if not self._connection.is_closed():
                await self._connection.execute("ROLLBACK")
            raise
        await self._connection.execute("COMMIT")
        return result

    def _translated(self, error: Exception) -> Exception:
        state = error.sqlstate if isinstance(error, asyncpg.PostgresError) else None
        if (state is not None and state[:2] in _DATA_CLASSES) or isinstance(error, ValueError):
            return Refused(str(error))
        if state is None or state in _FINAL or isinstance(error, asyncpg.PostgresConnectionError):
            self._usable = False
        reason = "disconnected" if isinstance(error, asyncpg.InterfaceError) else failure_reason(error)
        return unavailable(reason, may_have_landed=self._sent)
