"""What operators see of records: lists, one record with its history, exports, and the audit table."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

from gateway.core.model import RecordKey, Status
from gateway.core.second_approval import amount_of
from gateway.operate.operations.bodies import unpacked
from gateway.operate.operations.ids import parse_record_id, parse_short_id
from gateway.operate.operations.inputs import AMOUNTS, LINE_MAX, PAGE_MAX, By, Wrong, check_limit, check_selection
from gateway.operate.operations.outcomes import NotFound
from gateway.operate.operations.views import Json, listed_json, selection_json, shown_json
from gateway.ports.reconciliation import (
    Audit,
    AuditLine,
    Detail,
    Listed,
    Operations,
    Page,
    Selection,
    Shown,
)

PAGES_AT_ONCE = 20
"""How many pages of the store make one of ours, at most, where matches are rare."""

_NO_RECORD = RecordKey("", "")
_FEW = (Status.UNKNOWN.value, Status.PENDING.value, Status.IN_PROGRESS.value, Status.FAILED_RETRYABLE.value)


class Records:
    """People's reads. All raise `StoreUnavailable`; wrong input raises `Wrong`, whatever the record is. `digest` gives a
    key as logs show it.
    """

    def __init__(self, operations: Operations, digest: Callable[[RecordKey], str] | None = None) -> None:
        self._operations = operations
        self._digest = digest

    async def select(self, selection: Selection, *, limit: int = 50, cursor: str | None = None) -> Page:
        """One page of records. Fewer than `limit` do not mean the end, a cursor of None does. `Wrong`: state, limit,
        cursor.
        """
        check_selection(selection)
        check_limit(limit)
        found: list[Listed] = []
        for _ in range(PAGES_AT_ONCE):
            wanted = limit - len(found) if selection.key_digest is None else PAGE_MAX
            try:
                page = await self._operations.select(selection, cursor, wanted)
            except ValueError as error:
                raise Wrong("cursor", str(error)) from None
            found += self._of_digest(page.records, selection.key_digest)
            cursor = page.cursor
            if cursor is None or len(found) >= limit:
                break
        return Page(found, cursor)

    async def named(self, text: str) -> Sequence[RecordKey]:
        """The record with this long id, or those with this short one: none, one, or by a rare chance several.

        Records that a person may have to act on are looked through first: their states have few. `Wrong`: neither kind.
        """
        digests = parse_short_id(text)
        if digests is None:
            try:
                return [parse_record_id(text)]
            except ValueError as error:
                raise Wrong("id", str(error)) from None
        for state in (*_FEW, None):
            cursor, found = None, set[RecordKey]()
            while True:
                page = await self._operations.select(Selection(state, digests=digests), cursor, PAGE_MAX)
                found.update(listed.key for listed in page.records)
                cursor = page.cursor
                if cursor is None:
                    break
            if found:
                return sorted(found, key=lambda key: (key.scope_id, key.key))
        return []

    async def show(self, key: RecordKey) -> Shown | NotFound:
        """One record with its history, without its body."""
        shown = await self.look(key)
        return NotFound() if shown is None else shown

    async def show_body(self, key: RecordKey, by: By) -> Shown | NotFound:
        """As `show`, with the body, unpacked; that it was shown is audited. A body that cannot be unpacked is
        left out.
        """
        shown = await self.look(key, by.audit("show_body"))
        return NotFound() if shown is None else await unpacked(shown)

    async def look(self, key: RecordKey, audit: Audit | None = None) -> Shown | None:
        """One record with its history; with its body if that is audited."""
        shown = await self._operations.show(key, body=audit is not None, audit=audit)
        return None if shown is None else replace(shown, listed=self._as_logged(shown.listed))

    async def by_amount(self, selection: Selection, capture: str, *, limit: int = 100) -> tuple[Sequence[Listed], bool]:
        """Dead letters with the largest captured numbers of this name first, then those without; and whether these are all, since only the
        oldest `AMOUNTS` are looked at.
        """
        check_limit(limit)
        found: list[Listed] = []
        cursor: str | None = None
        while len(found) < AMOUNTS:
            page = await self.select(replace(selection, state="dead_letter"), limit=PAGE_MAX, cursor=cursor)
            found += page.records
            cursor = page.cursor
            if cursor is None:
                break

        def size(listed: Listed) -> Decimal:
            amount = amount_of(listed.captured.get(capture, ""))
            return Decimal("-Infinity") if amount is None else amount

        found.sort(key=size, reverse=True)
        return found[:limit], cursor is None and len(found) <= limit

    async def export(self, selection: Selection, by: By, *, bodies: bool = False) -> AsyncIterator[Json]:
        """All records of a selection, ready for JSON lines: as lists show them, or whole with history and body
        (`bodies`; each such record has an audit line of its own). One audit line says that it was done. Takes memory
        for one page, or one record. A record that is gone when its turn comes is left out. Nothing is read, and nothing
        raised, before the first is asked for.
        """
        check_selection(selection)
        detail: Detail = {"bodies": bodies, **selection_json(selection)}
        await self._operations.write_audit(_NO_RECORD, UUID(int=0), by.audit("export", detail))
        cursor: str | None = None
        while True:
            page = await self._operations.select(selection, cursor, PAGE_MAX)
            for listed in self._of_digest(page.records, selection.key_digest):
                if not bodies:
                    yield listed_json(listed)
                elif isinstance(shown := await self.show_body(listed.key, by), Shown):
                    yield shown_json(shown)
            cursor = page.cursor
            if cursor is None:
                return

    async def audit(self, *, after: int = 0, limit: int = 100) -> Sequence[AuditLine]:
        """Lines of the audit table with ids above `after`, in order."""
        check_limit(limit)
        return await self._operations.audited(after, limit)

    async def audit_last(self, *, after: int = 0, before: int = LINE_MAX, limit: int = 100) -> Sequence[AuditLine]:
        """Lines of the audit table with ids above `after` and below `before`, the newest first."""
        check_limit(limit)
        return await self._operations.audited_last(after, before, limit)

    def _of_digest(self, records: Sequence[Listed], wanted: str | None) -> Sequence[Listed]:
        """With their keys as logs show them; if one is `wanted`, those alone: one at most."""
        told = [self._as_logged(listed) for listed in records]
        return told if wanted is None else [listed for listed in told if listed.key_digest == wanted]

    def _as_logged(self, listed: Listed) -> Listed:
        return listed if self._digest is None else replace(listed, key_digest=self._digest(listed.key))
