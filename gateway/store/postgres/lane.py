"""One connection to Postgres, and what its errors mean for the statement that met them."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg

from gateway.core.conninfo import DsnError
from gateway.ports import StoreUnavailable
from gateway.store.postgres.rows import Row

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[Row]  # generic only in its stubs
    PreparedStatement: TypeAlias = asyncpg.prepared_stmt.PreparedStatement[Row]
else:
    Connection = asyncpg.Connection
    PreparedStatement = asyncpg.prepared_stmt.PreparedStatement

T = TypeVar("T")

_log = logging.getLogger(__name__)

STORE = "postgres"
RETRIES = 8
"""How often a statement that lost a serialization conflict or a deadlock is repeated. It was rolled back, so that is no second sending."""

PLANS_KEPT = 1000
"""Statements after which a connection plans anew. A plan that was made while a table was empty reads the whole of it for each key, and
Postgres keeps it until it next looks at the table, up to minutes later; meanwhile a busy table grows by tens of thousands of rows.
"""

BURY_TIMEOUT = 1.0
"""Seconds for the last words on a connection that is given up."""

SERVER_SHARE = 0.9
"""The part of a call's time after which the server itself ends a statement that waits for a lock, and says so. It never ends the commit."""

_DATA_CLASSES = frozenset({"22", "23", "54"})
_NOT_READY = frozenset({"25006", "42P01", "42703", "57P03"})
"""Read-only (a standby after a failover), tables or columns not there yet, still starting."""
_DEMOTED = "25006"
_FINAL = frozenset({_DEMOTED, "25P03", "25P04", "57P01", "57P02", "57P03", "57P04", "57P05"})
"""After these the connection is of no more use: the server goes or ends the session, or is not the primary any more."""
_NO_PROOF = frozenset({"08", "57", "58", "F0", "XX"})
"""Classes of errors that tell of the connection or the server, and that something on the way may have made up."""
_CANCELLED = "57014"
_WAIT_CUT = "SyncRepWaitForLSN"
"""The routine of the server whose warnings say that a commit did not wait for its standby. Their texts are translated, this is not."""


class Unfit(Exception):
    """The server answers, and must not be the authority."""


class DataRefused(Exception):
    """The statement was refused for its data (SQLSTATE class 22, 23 or 54, or a value that the driver cannot send); nothing was written."""


def unavailable(reason: str, *, may_have_landed: bool, asked: bool | None = None) -> StoreUnavailable:
    return StoreUnavailable(STORE, reason, may_have_landed=may_have_landed, asked=asked)


def server_limit(seconds: float, *, local: bool = False) -> str:
    """The statement that has the server end each later statement (`local`: of this transaction) in time for a call of so many seconds.

    Of a commit that waits for a standby this limit does not count (Postgres disarms it before), and neither does anything else that
    gives up: whoever cuts that wait short makes a commit visible that a failover takes back.
    """
    return f"SET {'LOCAL ' if local else ''}statement_timeout = {max(1, int(seconds * SERVER_SHARE * 1000))}"


def begin(seconds: float) -> str:
    """The statements that begin a transaction for a call of so many seconds.

    The server ends one in which nobody speaks for so long, and frees what it holds. A client that lost its power says no goodbye, and
    behind a pooler nobody would ever notice.
    """
    limit = f"SET LOCAL idle_in_transaction_session_timeout = {max(1, int(seconds * 1000))}"
    return f"BEGIN ISOLATION LEVEL READ COMMITTED; {server_limit(seconds, local=True)}; {limit}"


def undone(error: BaseException) -> bool:
    """Whether the server itself says that the statement was rolled back: an ERROR does, as nothing else ends a commit that has begun.

    A session that is ended (FATAL) may have committed before; so may one of which somebody between the server and us speaks.
    """
    if not isinstance(error, asyncpg.PostgresError) or getattr(error, "severity_en", None) != "ERROR":
        return False
    state = error.sqlstate or ""
    return state == _CANCELLED or state[:2] not in _NO_PROOF


def failure_reason(error: BaseException) -> str:
    """The closed-set word for an error of asyncpg or the operating system."""
    match error:
        case TimeoutError() | asyncpg.QueryCanceledError():
            return "timeout"
        case ConnectionRefusedError() | FileNotFoundError():
            return "refused"
        case asyncpg.PostgresConnectionError() | asyncpg.AdminShutdownError() | asyncpg.CrashShutdownError() | OSError():
            return "disconnected"
        case Unfit():
            return "not_ready"
        case asyncpg.PostgresError() if error.sqlstate in _NOT_READY:
            return "not_ready"
        case asyncpg.PostgresError() if error.sqlstate in _FINAL:
            return "disconnected"
        case asyncpg.InsufficientResourcesError():
            return "overloaded"
        case _:
            return "error"


def said(error: BaseException) -> str:
    """An error of asyncpg or the operating system in one line, which names no secret."""
    match error:
        case TimeoutError():
            return "no answer in time"
        case Unfit():
            return "the server is not fit to be the authority"
        case asyncpg.PostgresError() | OSError() | DsnError():
            return " ".join(str(error).split()) or type(error).__name__
        case _:
            return type(error).__name__


class Lane:
    """A connection that one statement at a time uses, up to `deadline` (event loop time), which its user sets.

    `usable` turns False for good after a timeout or an error that leaves its state in doubt: such a lane must be buried, not used.
    `explicit` wraps each statement in a transaction of its own, so that a pooler in transaction mode keeps the steps of the extended
    protocol on one server connection. `limit` is how many seconds a statement may take; the session is told `limit` when it is made.

    At its deadline a lane *hangs up*. It never asks the server to cancel: a commit that waits for its standby would become visible then,
    and a failover would take it back. What has been sent goes on at the server, to its end or to the limit there.
    """

    __slots__ = (
        "_asked",
        "_busy",
        "_connection",
        "_demoted",
        "_disowned",
        "_explicit",
        "_hung_up",
        "_limited",
        "_planned",
        "_rings_at",
        "_sent",
        "_statements",
        "_timer",
        "_undurable",
        "_usable",
        "deadline",
        "limit",
    )

    def __init__(self, connection: Connection, *, explicit: bool, limit: float) -> None:
        self.deadline = 0.0
        self.limit = limit
        self._connection = connection
        self._explicit = explicit
        self._limited = limit
        self._planned = 0
        self._usable = True
        self._asked = False
        self._sent = False
        self._hung_up = False
        self._undurable = False
        self._demoted = False
        self._disowned = False
        self._statements: dict[str, PreparedStatement] = {}
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0  # uvloop's handles of what is due at once do not tell
        connection.add_log_listener(self._listen)

    @property
    def usable(self) -> bool:
        return self._usable and not self._connection.is_closed()

    @property
    def hung_up(self) -> bool:
        """Whether a statement was left running at the server."""
        return self._hung_up

    @property
    def demoted(self) -> bool:
        """Whether the server said that it takes no writes."""
        return self._demoted

    def retire(self, *, disown: bool) -> None:
        """Use it for nothing more. `disown`: what runs on it now is not believed either, since another server is the primary."""
        self._usable = False
        self._disowned |= disown

    async def fetch(self, sql: str, *arguments: Any) -> list[Row]:
        """Run one statement and return its rows. Raises `DataRefused` or `StoreUnavailable`; repeated after a serialization conflict."""
        if self._explicit:
            return await self._guarded(lambda connection: connection.fetch(sql, *arguments), together=True)
        statement = self._statements.get(sql)
        if statement is None or self._planned >= PLANS_KEPT or self.limit != self._limited or self._connection.is_closed():
            return await self._guarded(lambda _: self._prepared(sql, arguments), together=False)
        self._begin()
        self._planned += 1
        self._asked = self._sent = True
        try:
            rows = await statement.fetch(*arguments)
        except (asyncpg.TransactionRollbackError, asyncpg.InvalidCachedStatementError):
            return await self._guarded(lambda _: self._prepared(sql, arguments), together=False)
        except BaseException as error:
            judged = self._judged(error, together=False)
            if judged is error:
                raise
            raise judged from error
        finally:
            self._busy = False
        return self._lasting(rows)

    async def _prepared(self, sql: str, arguments: tuple[Any, ...]) -> list[Row]:
        """Not the driver's own cache, which keeps no long statements, prepares each anew every five minutes, and costs
        more to ask.
        """
        statement = self._statements.get(sql)
        if statement is None:
            statement = self._statements[sql] = await self._connection.prepare(sql)
        return await statement.fetch(*arguments)

    async def together(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in one READ COMMITTED transaction. Raises as `fetch`; `work` is repeated after a serialization conflict."""
        return await self._guarded(work, together=True)

    async def bury(self) -> None:
        """Close the connection, on which nothing runs any more, within `BURY_TIMEOUT`, or cut it."""
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(Exception):  # there is nobody whom an error could concern
            await self._connection.close(timeout=BURY_TIMEOUT)

    async def _guarded(self, work: Callable[[Connection], Awaitable[T]], *, together: bool) -> T:
        self._begin()
        try:
            result = await self._repeated(work, together=together)
        except BaseException as error:
            judged = self._judged(error, together=together)
            if judged is error:
                raise
            raise judged from error
        finally:
            self._busy = False
        return self._lasting(result)

    def _begin(self) -> None:
        self._asked = self._sent = self._undurable = False
        self._busy = True
        if self._timer is None or self._rings_at > self.deadline:
            self._ring_by(asyncio.get_running_loop())

    def _lasting(self, result: T) -> T:
        """The result, if its commit waited for what it should wait for, at a server that is the primary still."""
        if self._undurable:
            raise unavailable("timeout", may_have_landed=True)
        if self._disowned:
            raise unavailable("disconnected", may_have_landed=True)
        return result

    def _judged(self, error: BaseException, *, together: bool) -> BaseException:
        """What to raise instead of an error that `work` or the driver raised."""
        match error:
            case OSError() | asyncpg.PostgresError() | asyncpg.InterfaceError() | asyncpg.InternalClientError():
                return self._translated(error)
            case AttributeError() if self._connection.is_closed():
                # What the driver says where it was cut between two of its steps, as it prepares and then executes.
                return self._translated(ConnectionResetError())
            case asyncio.CancelledError():
                self._hang_up()  # at once: the driver's own cancel request, which it has just made a task of, must not be sent
                return error
            case Exception() if not together:
                return self._unexpected(error)
            case _:
                return error  # of `work`, whose transaction was rolled back

    def _ring_by(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that the timer fires by the deadline. It is left where it is when a statement ends: nearly all end
        long before.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self.deadline
        self._timer = loop.call_at(self.deadline, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._busy:
            return
        if self.deadline > loop.time() + 0.001:  # timers may be a clock tick early
            self._ring_by(loop)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        self._usable = False
        self._hung_up = True
        self._connection.terminate()

    def _listen(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        """The driver tells of a warning before it gives the result that came after it."""
        self._undurable |= getattr(message, "server_source_function", None) == _WAIT_CUT

    async def _repeated(self, work: Callable[[Connection], Awaitable[T]], *, together: bool) -> T:
        attempt = 0
        while True:
            try:
                return await (self._transaction(work) if together else self._alone(work))
            except (asyncpg.TransactionRollbackError, asyncpg.InvalidCachedStatementError) as error:
                # 40001, 40P01: undone as a whole, by the server's word. 0A000: not begun, as a migration changed what it was prepared for.
                if isinstance(error, asyncpg.InvalidCachedStatementError):
                    self._statements.clear()
                self._sent = False
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
        if self.limit != self._limited:
            await self._connection.execute(server_limit(self.limit))
            self._limited = self.limit
        self._asked = self._sent = True
        return await work(self._connection)

    async def _transaction(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Not the driver's context manager, whose way out waits for a peer that may have stalled.

        What is lost before COMMIT was sent is rolled back, whoever lost it.
        """
        if self._connection.is_closed():
            raise ConnectionResetError
        await self._connection.execute(begin(self.limit))
        self._asked = True
        try:
            result = await work(self._connection)
        except Exception:
            if not self._connection.is_closed():
                await self._connection.execute("ROLLBACK")
            raise
        self._sent = True
        await self._connection.execute("COMMIT")
        return result

    def _unexpected(self, error: Exception) -> StoreUnavailable:
        """The driver failed in a way of which it tells nothing: what was sent may have landed, and the connection is of no more use."""
        _log.error("Unexpected failure of the driver", exc_info=error)
        self._usable = False
        return unavailable("error", may_have_landed=True)

    def _translated(self, error: Exception) -> Exception:
        if self._hung_up:
            return unavailable("timeout", may_have_landed=self._sent, asked=self._asked)
        state = error.sqlstate if isinstance(error, asyncpg.PostgresError) else None
        if (state is not None and state[:2] in _DATA_CLASSES) or isinstance(error, ValueError):
            return DataRefused(str(error))
        if state is None or state in _FINAL or isinstance(error, asyncpg.PostgresConnectionError):
            self._usable = False
        self._demoted |= state == _DEMOTED
        reason = "disconnected" if isinstance(error, asyncpg.InterfaceError) else failure_reason(error)
        return unavailable(reason, may_have_landed=self._sent and not undone(error), asked=self._asked)
