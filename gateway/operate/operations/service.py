"""The operator's service: changes that are one fenced transition each, with their audit line in the same step. What is
only read is in `records`.
"""

import datetime as dt
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID, uuid4

from gateway.background.probe import Finding
from gateway.core.model import Headers, RecordKey, Status
from gateway.core.policy import Policy
from gateway.core.reconcile.policy import Verdict
from gateway.core.retention import DEFAULT_RETENTION
from gateway.core.second_approval import SecondApproval, needs_second
from gateway.operate.operations.asking import Asker
from gateway.operate.operations.bodies import answer, check_answer, preview
from gateway.operate.operations.inputs import PAGE_MAX, By, check_limit, check_retention
from gateway.operate.operations.outcomes import Changed, Conflict, Done, NotFound, Proposed, TooEarly
from gateway.operate.operations.proposals import GONE, Said, not_to_approve
from gateway.operate.operations.records import Records
from gateway.operate.operations.rules import Change, obstacle
from gateway.ports import Retention, StoreUnavailable, Transition
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.approvals import Shared
from gateway.ports.reconciliation import (
    VERDICT_REASONS,
    Audit,
    Detail,
    Entry,
    Fence,
    Listed,
    Operations,
    Reconciliation,
    Selection,
    Shown,
)

PROPOSAL_LASTS = 7 * 24 * 3600.0
"""Seconds for which a proposal waits."""

_SOURCE = "operator"

Told = Callable[[str, str, str, float], None]
"""Told of each verdict: the route, the request whose attempt it was about, the word of the verdict, and the seconds that it took."""

_Write = Callable[[Listed, Fence, Audit], Awaitable[Transition]]


class Forget(Protocol):
    """`TieredStore.forget`."""

    async def __call__(self, key: RecordKey, *, completed: bool) -> float: ...


class Replays(Protocol):
    """`ReplayCache`, as operators see it: each gateway has one."""

    seconds: float

    def forget(self, key: RecordKey) -> None: ...


class Operator:
    """People's changes, and their reads (`records`). All raise `StoreUnavailable`; wrong input raises `Wrong`, whatever the record is.

    A change whose `StoreUnavailable` says `may_have_landed` is to be looked up: sent again, it answers `Conflict` if it
    had landed. `policies` gives the guarded routes of the map in use, by id. `forget` is None where there is no Redis.
    `replays` is None where no gateway keeps answers in its memory. `digest` is that of `Records`. `approvals` is where verdicts
    wait that need a second person, as `second` says at each of them. `seals`: whether what requests and answers say
    is kept encrypted. `asker` is None where no upstream can be asked. `told` hears of
    each verdict that was carried out, and never raises.
    """

    def __init__(
        self,
        operations: Operations,
        reconciliation: Reconciliation,
        policies: Callable[[], Mapping[str, Policy]],
        forget: Forget | None = None,
        replays: Replays | None = None,
        digest: Callable[[RecordKey], str] | None = None,
        *,
        approvals: Shared | None = None,
        second: Callable[[], SecondApproval | None] = lambda: None,
        seals: Callable[[], bool] = lambda: False,
        asker: Asker | None = None,
        told: Told | None = None,
    ) -> None:
        self._operations = operations
        self.records = Records(operations, digest)
        self._reconciliation = reconciliation
        self._policies = policies
        self._forget = forget
        self._replays = replays
        self._approvals = approvals
        self._second = second
        self._asker = asker
        self._told = told
        self.seals = seals

    @property
    def approvals(self) -> Shared | None:
        """Where verdicts wait that need a second person, and what sessions have ended."""
        return self._approvals

    async def resolve_completed(
        self,
        key: RecordKey,
        by: By,
        *,
        status: int,
        headers: Headers = (),
        body: bytes = b"",
        retention: float | None = None,
        version: int | None = None,
    ) -> Changed:
        """A person's verdict *executed*: this is the answer of the operation from now on.

        From `unknown`, lapsed `in_progress` and `failed_retryable`. Fields that are never stored (framing, hop-by-hop,
        `Set-Cookie`, …) are left out. `retention` (seconds) None: as the route says. `version`: the one that the person
        saw, if it must be that one.
        """
        check_answer(status, headers, body)
        check_retention(retention)
        return await self._say(Said(Change.EXECUTED, key, by, retention, await answer(status, headers, body)), version)

    async def resolve_not_executed(self, key: RecordKey, by: By, *, retention: float | None = None, version: int | None = None) -> Changed:
        """A person's verdict *not executed*: the next retry runs. From `unknown`, once the upstream has surely
        finished.
        """
        check_retention(retention)
        return await self._say(Said(Change.NOT_EXECUTED, key, by, retention), version)

    async def release(self, key: RecordKey, by: By, *, retention: float | None = None, version: int | None = None) -> Changed:
        """Let the next retry run, by a person's word alone. From `unknown` and lapsed `in_progress`, after the instant
        `doubtful_until`.
        """
        check_retention(retention)
        return await self._say(Said(Change.RELEASE, key, by, retention), version)

    async def approve(self, key: RecordKey, proposal_id: UUID, by: By, *, version: int | None = None) -> Changed:
        """Carry out what another user has proposed: the verdict is that one's and `by`'s together. `Conflict` for one's own proposal, and
        for one that is stale, over, or taken by somebody else meanwhile.
        """
        found = await self.proposal(key)
        shown = await self.records.look(key)
        if shown is None:
            return NotFound()
        refusal = not_to_approve(found, proposal_id, by, shown.listed)
        if refusal is not None or found is None:
            return refusal or NotFound()
        proposal = found.proposal
        return await self._say(Said(Change(proposal.change), key, by, proposal.retention, proposal.response, proposal), version)

    async def reject(self, key: RecordKey, proposal_id: UUID, by: By) -> Changed:
        """Drop a proposal: another user's, or one's own. The record stays as it is."""
        found, shown = await self.proposal(key), await self.records.look(key)
        if shown is None:
            return NotFound()
        if found is None or found.proposal.id != proposal_id or self._approvals is None:
            return Conflict(shown.listed, GONE)
        detail: Detail = {"proposal": str(proposal_id), "proposed_by": found.proposal.proposer, "verdict": found.proposal.change}
        entry = Entry(_SOURCE, "rejected", detail, by.actor, by.reason)
        done = await self._approvals.reject(found.proposal, entry, by.audit("reject", detail))
        return Done(shown.listed) if done else Conflict(shown.listed, GONE)

    async def proposal(self, key: RecordKey) -> Waiting | None:
        """What waits for a second person, with its answer unpacked nowhere: as the record would keep it."""
        return None if self._approvals is None else await self._approvals.proposal(key)

    async def proposals(self, *, after: tuple[dt.datetime, UUID] | None = None, limit: int = 100) -> Sequence[Waiting]:
        """All that wait, the oldest first, without their answers."""
        check_limit(limit)
        return [] if self._approvals is None else await self._approvals.proposals(after, limit)

    async def _say(self, said: Said, version: int | None) -> Changed:
        """Carry a verdict out, or keep it as a proposal if it needs a second person and has none."""

        async def write(now: Listed, fence: Fence, audit: Audit) -> Transition:
            if said.approves is not None and not said.approves.fits(now):  # it came further after `approve` had looked
                return Transition.STALE
            kept = self._retention(now, said.retention)
            entry = Entry(_SOURCE, said.change.value, said.detail, said.by.actor, said.by.reason)
            if said.approves is not None and self._approvals is not None and not await self._approvals.take(said.approves):
                return Transition.STALE
            if said.response is not None:
                return await self._reconciliation.conclude_executed(fence, said.response, kept, entry, audit=audit)
            if said.change is Change.RELEASE:
                return await self._operations.release(fence, kept, audit)
            return await self._reconciliation.conclude_not_executed(fence, VERDICT_REASONS[Verdict.NOT_EXECUTED], kept, entry, audit=audit)

        action = "release" if said.change is Change.RELEASE else "resolve"
        return await self._change(said.change, said.key, said.by.audit(action, said.detail), write, version, said)

    def _wants_second(self, said: Said | None, shown: Shown, found: Conflict | TooEarly | None) -> bool:
        if said is None or said.approves is not None or isinstance(found, Conflict) or self._approvals is None:
            return False
        return needs_second(self._second(), shown.captured, too_early=found is not None)

    async def _propose(self, said: Said, now: Listed) -> Changed:
        """Keep the verdict for another user to confirm. Another one's proposal stays."""
        assert self._approvals is not None
        proposal = said.proposed(uuid4(), now)
        entry = Entry(_SOURCE, "proposed", {"verdict": said.change.value, **said.detail}, said.by.actor, said.by.reason)
        audit = said.by.audit("propose", {**_was(now), "proposal": str(proposal.id), "verdict": said.change.value, **said.detail})
        fence = Fence(now.key, now.record_id, now.version)
        transition = await self._approvals.propose(proposal, fence, PROPOSAL_LASTS, entry, audit)
        if transition is Transition.DONE:
            return Proposed(proposal, now)
        if transition is Transition.ALREADY:
            return Conflict(now, "Another user has proposed a verdict already: confirm or reject that one.")
        return await self._refused(said.change, said.key)

    async def delete(self, key: RecordKey, by: By, *, version: int | None = None) -> Changed:
        """Forget a `completed` or `failed_retryable` record: the next request with its key runs."""

        async def write(_: Listed, fence: Fence, audit: Audit) -> Transition:
            return await self._operations.delete(fence, audit)

        return await self._change(Change.DELETE, key, by.audit("delete"), write, version)

    async def requeue(self, key: RecordKey, by: By, *, version: int | None = None) -> Changed:
        """Let the reconciler try a dead letter again from the beginning. `Conflict` if its route has nothing that could
        find out.
        """

        async def write(_: Listed, fence: Fence, audit: Audit) -> Transition:
            return await self._operations.requeue(fence, audit)

        return await self._change(Change.REQUEUE, key, by.audit("requeue"), write, version)

    def asks(self, route_id: str) -> bool:
        """Whether its upstream can be asked about a record."""
        return self._asker is not None and self._asker.asks(route_id)

    async def ask(self, shown: Shown, by: By) -> Finding | None:
        """What the upstream says about a record now, by the rules of its route. None: its route has no lookup. That a person has asked is
        written down before; nothing else comes of it.
        """
        if self._asker is None or not self._asker.asks(shown.listed.route_id):
            return None
        await self._operations.write_audit(shown.listed.key, shown.listed.record_id, by.audit("ask", _was(shown.listed)))
        return await self._asker.ask(shown)

    async def preview(self, key: RecordKey, *, status: int, headers: Headers = (), body: bytes = b"") -> bytes | NotFound:
        """What the retry would get if the record were completed with this answer (`bodies.preview`). Changes nothing."""
        check_answer(status, headers, body)
        shown = await self.records.look(key)
        if shown is None:
            return NotFound()
        return preview(shown.listed, self._policies().get(shown.listed.route_id), status, headers, body).packed

    async def look_now(self, key: RecordKey, by: By, *, version: int | None = None) -> Changed:
        """Have the next look of an unknown record made at once. `Conflict` for a dead letter (requeue it), and if nothing could look."""

        async def write(_: Listed, fence: Fence, audit: Audit) -> Transition:
            return await self._operations.look_now(fence, audit)

        return await self._change(Change.LOOK_NOW, key, by.audit("look_now"), write, version)

    async def requeue_all(self, selection: Selection, by: By, *, limit: int = PAGE_MAX) -> tuple[int, int]:
        """Requeue dead letters of a selection, the oldest first, `limit` at most, each with its audit line. How many were, and how many
        could not be.
        """
        check_limit(limit)
        done = refused = 0
        cursor: str | None = None
        while done + refused < limit:
            wanted = min(PAGE_MAX, limit - done - refused)
            page = await self.records.select(replace(selection, state="dead_letter"), limit=wanted, cursor=cursor)
            for listed in page.records:
                changed = await self.requeue(listed.key, by, version=listed.version)
                done, refused = done + isinstance(changed, Done), refused + (not isinstance(changed, Done))
            cursor = page.cursor
            if cursor is None:
                break
        return done, refused

    async def _change(
        self,
        change: Change,
        key: RecordKey,
        audit: Audit,
        write: _Write,
        version: int | None,
        said: Said | None = None,
    ) -> Changed:
        """Look, refuse what cannot be, send it fenced by what was seen; refused by the store, look again and say what
        is there now.
        """
        begun = time.monotonic()
        shown = await self.records.look(key)
        if shown is None:
            return NotFound()
        now = shown.listed
        if version is not None and now.version != version:
            return Conflict(now, f"It has changed: its version is {now.version}, not {version}. Look at it again.")
        found = obstacle(change, shown) or self._unresolvable(change, now)
        if said is not None and self._wants_second(said, shown, found):
            return await self._propose(said, now)
        if found is not None:
            return found
        fence = Fence(now.key, now.record_id, now.version)
        transition = await write(now, fence, replace(audit, detail={**_was(now), **audit.detail}))
        if transition is Transition.DONE or transition is Transition.ALREADY:
            if said is not None and self._told is not None:
                self._told(now.route_id, now.request_id, change.value, time.monotonic() - begun)
            return await self._done(change, now)
        return await self._refused(change, key)

    def _unresolvable(self, change: Change, now: Listed) -> Conflict | None:
        """A requeued record without a probe would be hidden from the people who watch dead letters."""
        policy = self._policies().get(now.route_id)
        if change not in {Change.REQUEUE, Change.LOOK_NOW} or (policy is not None and policy.reconcilable):
            return None
        if policy is None:
            return Conflict(now, f"Route {now.route_id!r} is not in the route map, so nothing would look for it. Resolve it.")
        return Conflict(now, f"Route {now.route_id!r} has neither a probe nor a webhook, so nothing would look for it. Resolve it.")

    async def _done(self, change: Change, before: Listed) -> Done:
        """It is committed: what cannot be told any more is left out."""
        completed = before.status is Status.COMPLETED
        redis_wait = memory_wait = None
        if self._replays is not None and change is Change.DELETE and completed:
            self._replays.forget(before.key)
            memory_wait = self._replays.seconds
        if self._forget is not None and change in {Change.DELETE, Change.RELEASE}:
            redis_wait = await self._forget(before.key, completed=completed)
            if redis_wait and memory_wait:
                redis_wait += memory_wait  # a gateway may read it from there at the last moment
        try:
            shown = None if change is Change.DELETE else await self.records.look(before.key)
        except StoreUnavailable:
            shown = None
        return Done(None if shown is None else shown.listed, redis_wait, memory_wait)

    async def _refused(self, change: Change, key: RecordKey) -> Changed:
        shown = await self.records.look(key)
        if shown is None:
            return NotFound()
        return obstacle(change, shown) or Conflict(shown.listed, "It changed while this was under way. Look at it again.")

    def _retention(self, now: Listed, seconds: float | None) -> Retention:
        policy = self._policies().get(now.route_id)
        if policy is None:
            return Retention(DEFAULT_RETENTION if seconds is None else seconds)  # its route is in the map no more
        return Retention.of(policy, seconds)


def _was(now: Listed) -> Detail:
    """What the record was, for those who read the audit table when it is gone."""
    return {"route": now.route_id, "request_id": now.request_id, "was": now.status.value, "attempt": now.attempt}
