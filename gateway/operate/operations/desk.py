"""What one caller may see and do: the operator's service behind that caller's role, in that caller's name."""

from collections.abc import AsyncIterator, Sequence

from gateway.core.model import Headers, RecordKey
from gateway.core.roles import Action
from gateway.operate.operations.callers import Caller, Grounds
from gateway.operate.operations.outcomes import Changed, NotFound
from gateway.operate.operations.service import Operator
from gateway.operate.operations.views import Json
from gateway.ports.reconciliation import AuditLine, Page, Selection, Shown


class Desk:
    """The methods of `Operator`, for one caller. All raise `Forbidden` before they do anything, and whatever `Operator` raises. The API,
    the console and the commands reach records through this alone.
    """

    def __init__(self, operator: Operator, caller: Caller) -> None:
        self._operator = operator
        self.caller = caller

    async def select(self, selection: Selection, *, limit: int = 50, cursor: str | None = None) -> Page:
        """As `Operator.select`."""
        self.caller.check(Action.SEE)
        return await self._operator.select(selection, limit=limit, cursor=cursor)

    async def named(self, text: str) -> Sequence[RecordKey]:
        """As `Operator.named`."""
        self.caller.check(Action.SEE)
        return await self._operator.named(text)

    async def show(self, key: RecordKey) -> Shown | NotFound:
        """As `Operator.show`."""
        self.caller.check(Action.SEE)
        return await self._operator.show(key)

    async def show_body(self, key: RecordKey, grounds: Grounds) -> Shown | NotFound:
        """As `Operator.show_body`."""
        self.caller.check(Action.SEE_BODY)
        return await self._operator.show_body(key, self.caller.by(grounds))

    async def resolve_completed(
        self,
        key: RecordKey,
        grounds: Grounds,
        *,
        status: int,
        headers: Headers = (),
        body: bytes = b"",
        retention: float | None = None,
        version: int | None = None,
    ) -> Changed:
        """As `Operator.resolve_completed`."""
        self.caller.check(Action.RESOLVE)
        return await self._operator.resolve_completed(
            key, self.caller.by(grounds), status=status, headers=headers, body=body, retention=retention, version=version
        )

    async def resolve_not_executed(
        self, key: RecordKey, grounds: Grounds, *, retention: float | None = None, version: int | None = None
    ) -> Changed:
        """As `Operator.resolve_not_executed`."""
        self.caller.check(Action.RESOLVE)
        return await self._operator.resolve_not_executed(key, self.caller.by(grounds), retention=retention, version=version)

    async def release(self, key: RecordKey, grounds: Grounds, *, retention: float | None = None, version: int | None = None) -> Changed:
        """As `Operator.release`."""
        self.caller.check(Action.RELEASE)
        return await self._operator.release(key, self.caller.by(grounds), retention=retention, version=version)

    async def delete(self, key: RecordKey, grounds: Grounds, *, version: int | None = None) -> Changed:
        """As `Operator.delete`."""
        self.caller.check(Action.DELETE)
        return await self._operator.delete(key, self.caller.by(grounds), version=version)

    async def requeue(self, key: RecordKey, grounds: Grounds, *, version: int | None = None) -> Changed:
        """As `Operator.requeue`."""
        self.caller.check(Action.REQUEUE)
        return await self._operator.requeue(key, self.caller.by(grounds), version=version)

    async def asked(self, shown: Shown, grounds: Grounds) -> None:
        """As `Operator.asked`."""
        self.caller.check(Action.LOOK)
        await self._operator.asked(shown, self.caller.by(grounds))

    async def audit(self, *, after: int = 0, limit: int = 100) -> Sequence[AuditLine]:
        """As `Operator.audit`."""
        self.caller.check(Action.SEE)
        return await self._operator.audit(after=after, limit=limit)

    def export(self, selection: Selection, grounds: Grounds, *, bodies: bool = False) -> AsyncIterator[Json]:
        """As `Operator.export`."""
        self.caller.check(Action.EXPORT_BODIES if bodies else Action.EXPORT)
        return self._operator.export(selection, self.caller.by(grounds), bodies=bodies)
