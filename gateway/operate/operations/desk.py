"""What one caller may see and do: the operator's service behind that caller's role, in that caller's name."""

import datetime as dt
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from uuid import UUID

from gateway.background.probe import Finding
from gateway.core.model import Headers, RecordKey
from gateway.core.roles import Action
from gateway.operate.operations.callers import Caller, Grounds
from gateway.operate.operations.inputs import LINE_MAX, PAGE_MAX
from gateway.operate.operations.outcomes import Changed, NotFound
from gateway.operate.operations.service import Operator
from gateway.operate.operations.views import Json
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.reconciliation import AuditLine, Listed, Page, Selection, Shown


class Desk:
    """The methods of `Operator` and of its `Records`, for one caller. All raise `Forbidden` before they do anything, and
    whatever those raise. The API, the console and the commands reach records through this alone.
    """

    def __init__(self, operator: Operator, caller: Caller) -> None:
        self._operator = operator
        self.caller = caller

    @property
    def _keeps_back(self) -> bool:
        return self._operator.seals() and not self.caller.may(Action.SEE_BODY)

    async def select(self, selection: Selection, *, limit: int = 50, cursor: str | None = None) -> Page:
        """As `Records.select`. What is encrypted is left out for those who may see no bodies."""
        self.caller.check(Action.SEE)
        page = await self._operator.records.select(selection, limit=limit, cursor=cursor)
        return replace(page, records=[_without_values(one) for one in page.records]) if self._keeps_back else page

    async def named(self, text: str) -> Sequence[RecordKey]:
        """As `Records.named`."""
        self.caller.check(Action.SEE)
        return await self._operator.records.named(text)

    async def show(self, key: RecordKey) -> Shown | NotFound:
        """As `Records.show`. What is encrypted is left out for those who may see no bodies."""
        self.caller.check(Action.SEE)
        shown = await self._operator.records.show(key)
        return shown if isinstance(shown, NotFound) or not self._keeps_back else _without_what_is_sealed(shown)

    async def show_body(self, key: RecordKey, grounds: Grounds) -> Shown | NotFound:
        """As `Records.show_body`."""
        self.caller.check(Action.SEE_BODY)
        return await self._operator.records.show_body(key, self.caller.by(grounds))

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

    async def ask(self, shown: Shown, grounds: Grounds) -> Finding | None:
        """As `Operator.ask`."""
        self.caller.check(Action.LOOK)
        return await self._operator.ask(shown, self.caller.by(grounds))

    async def look_now(self, key: RecordKey, grounds: Grounds, *, version: int | None = None) -> Changed:
        """As `Operator.look_now`."""
        self.caller.check(Action.LOOK)
        return await self._operator.look_now(key, self.caller.by(grounds), version=version)

    async def requeue_all(self, selection: Selection, grounds: Grounds, *, limit: int = PAGE_MAX) -> tuple[int, int]:
        """As `Operator.requeue_all`."""
        self.caller.check(Action.REQUEUE)
        return await self._operator.requeue_all(selection, self.caller.by(grounds), limit=limit)

    async def by_amount(self, selection: Selection, capture: str, *, limit: int = 100) -> tuple[Sequence[Listed], bool]:
        """As `Records.by_amount`. The order tells of amounts: where they are encrypted, it is for those who may see bodies."""
        self.caller.check(Action.SEE_BODY if self._operator.seals() else Action.SEE)
        return await self._operator.records.by_amount(selection, capture, limit=limit)

    async def preview(self, key: RecordKey, *, status: int, headers: Headers = (), body: bytes = b"") -> bytes | NotFound:
        """As `Operator.preview`."""
        self.caller.check(Action.RESOLVE)
        return await self._operator.preview(key, status=status, headers=headers, body=body)

    async def proposal(self, key: RecordKey) -> Waiting | None:
        """As `Operator.proposal`. Without its answer for those who may see no bodies."""
        self.caller.check(Action.SEE)
        found = await self._operator.proposal(key)
        if found is None or self.caller.may(Action.SEE_BODY):
            return found
        return replace(found, proposal=replace(found.proposal, response=None))

    async def proposals(self, *, after: tuple[dt.datetime, UUID] | None = None, limit: int = 100) -> Sequence[Waiting]:
        """As `Operator.proposals`."""
        self.caller.check(Action.SEE)
        return await self._operator.proposals(after=after, limit=limit)

    async def approve(self, key: RecordKey, proposal_id: UUID, grounds: Grounds, *, version: int | None = None) -> Changed:
        """As `Operator.approve`."""
        self.caller.check(Action.APPROVE)
        return await self._operator.approve(key, proposal_id, self.caller.by(grounds), version=version)

    async def reject(self, key: RecordKey, proposal_id: UUID, grounds: Grounds) -> Changed:
        """As `Operator.reject`. Everybody may take back what he has proposed himself."""
        found = None if self.caller.may(Action.APPROVE) else await self._operator.proposal(key)
        if found is None or found.proposal.identity != self.caller.identity:
            self.caller.check(Action.APPROVE)
        return await self._operator.reject(key, proposal_id, self.caller.by(grounds))

    async def audit(self, *, after: int = 0, limit: int = 100) -> Sequence[AuditLine]:
        """As `Records.audit`."""
        self.caller.check(Action.SEE)
        return await self._operator.records.audit(after=after, limit=limit)

    async def audit_last(self, *, after: int = 0, before: int = LINE_MAX, limit: int = 100) -> Sequence[AuditLine]:
        """As `Records.audit_last`."""
        self.caller.check(Action.SEE)
        return await self._operator.records.audit_last(after=after, before=before, limit=limit)

    def export(self, selection: Selection, grounds: Grounds, *, bodies: bool = False) -> AsyncIterator[Json]:
        """As `Records.export`."""
        self.caller.check(Action.EXPORT_BODIES if bodies else Action.EXPORT)
        return self._operator.records.export(selection, self.caller.by(grounds), bodies=bodies)


def _without_values(listed: Listed) -> Listed:
    return replace(listed, captured={})


def _without_what_is_sealed(shown: Shown) -> Shown:
    response = shown.response
    return replace(
        shown,
        listed=_without_values(shown.listed),
        target=b"",
        captured={},
        response=None if response is None else replace(response, headers=()),
    )
