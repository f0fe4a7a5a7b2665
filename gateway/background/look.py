"""One look at one record: ask, judge, and one statement with what came of it.

What happens if ...

* the process dies after the probe and before it writes the verdict: the hold ends, and another process looks again. A
  probe that acts has taken an owner token first, so that no other late answer comes in between;
* the statement's reply is lost: the look repeats it, and the fence's version shows that it has landed;
* the store stays away: the look repeats the statement until the hold is nearly over, then drops it, since another
  process looks again;
* the version has moved meanwhile: the first commit wins. The look insists only on *executed*, for as long as the record
  could run again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from gateway.background.probe import Finding, Way, ask
from gateway.core.model import Record, RecordKey, Status
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.policy import Cancel, Manual, Resend, Verdict
from gateway.core.reconcile.steps import ROUNDS, Again, Bury, Conclude, Free, NextStep, may_complete, next_step, ran_twice
from gateway.ports import Clock, Observer, Randomness, Retention, StoreUnavailable, Transition
from gateway.ports.reconciliation import VERDICT_REASONS, Doubtful, Entry, Evidence, Fence, Reconciliation, Sealer
from gateway.runtime.packing import pack_response

BACKOFF = 0.1
BACKOFF_MAX = 2.0

SCHEDULED, RESOLVED, FAILED, DEAD_LETTERED = "scheduled", "resolved", "failed", "dead_lettered"
STALE_VERDICT = "verdict"

Looked = Callable[[str, str, str, float], None]
"""Told of each look: the route, the request whose attempt it was about, the verdict, and how long it took."""

Find = Callable[[RecordKey], Awaitable[Record | None]]


@dataclass(frozen=True, slots=True)
class LookTools:
    """What looks share. `find` reads the authority, see `gateway.ports.Store.find`."""

    reconciliation: Reconciliation
    find: Find
    clock: Clock
    randomness: Randomness
    observer: Observer
    sealer: Sealer | None
    looked: Looked | None = None


class Look:
    """One record that was taken, and the time until which it is ours: `until` on CLOCK_BOOTTIME."""

    def __init__(self, tools: LookTools, route: Route, policy: Policy, doubt: Doubtful, way: Way | None, until: float) -> None:
        self._tools = tools
        self._route = route
        self._policy = policy
        self._pace = policy.reconcile.pace
        self._doubt = doubt
        self._way = way
        self._until = until
        self._lost_reply = False

    async def run(self) -> bool | None:
        """Look, and write down what came of it. Returns whether the upstream answered; None if it was not asked."""
        self._tools.observer.reconciled(self._route.id, SCHEDULED)
        begun = self._tools.clock.boottime()
        finding = await self._find_out()
        if self._tools.looked is not None:
            self._tools.looked(self._route.id, self._doubt.request_id, finding.verdict.value, self._tools.clock.boottime() - begun)
        await self._carry_out(self._next(finding), finding)
        return finding.answered

    async def _find_out(self) -> Finding:
        evidence = self._doubt.evidence
        if evidence is None and isinstance(self._policy.reconcile.probe, Resend) and self._doubt.born_ago >= self._pace.max_age:
            why = "the upstream may have forgotten the key (max_age): nothing was sent"
            return Finding("resend", Verdict.NOT_YET_KNOWN, {"why": why}, hopeless=True)
        if evidence is None:
            return await ask(self._doubt, self._policy, self._way, self._tools.sealer)
        return Finding(evidence.entry.source, Verdict.EXECUTED, evidence.entry.detail, evidence.response)

    def _next(self, finding: Finding) -> NextStep:
        if finding.hopeless and self._policy.webhook is None and not self._policy.repeats:
            return Bury("hopeless")
        doubt, reconcile = self._doubt, self._policy.reconcile
        return next_step(
            finding.verdict,
            look=doubt.look,
            agreed=doubt.agreed,
            agreed_ago=doubt.agreed_ago,
            over=doubt.over,
            age=doubt.age,
            pace=reconcile.pace,
            jitter=self._tools.randomness.jitter(),
            asks=not (isinstance(reconcile.probe, Manual) or finding.hopeless),
        )

    async def _carry_out(self, step: NextStep, finding: Finding) -> None:
        reconciliation, fence = self._tools.reconciliation, self._doubt.fence
        entry = Entry(finding.source, finding.verdict.value, {**finding.detail, "look": self._doubt.look})
        match step:
            case Conclude():
                self._count(RESOLVED if await self._conclude(finding, entry) else None)
            case Free():
                reason, retention = VERDICT_REASONS[Verdict.NOT_EXECUTED], Retention.of(self._policy)
                done = await self._once(lambda: reconciliation.conclude_not_executed(fence, reason, retention, entry, looked=True))
                self._count(RESOLVED if done else None)
            case Again(seconds, agreed):
                ended = finding.ended if isinstance(self._policy.reconcile.probe, Cancel) else None
                done = await self._once(lambda: reconciliation.look_again(fence, seconds, agreed=agreed, entry=entry, ended=ended))
                self._count(FAILED if done and finding.verdict is Verdict.NOT_YET_KNOWN and self._way is not None else None)
            case Bury(why):
                last = replace(entry, what=DEAD_LETTERED, detail={**entry.detail, "verdict": finding.verdict.value, "after": why})
                done = await self._once(lambda: reconciliation.dead_letter(fence, last))
                self._count(DEAD_LETTERED if done else None)
            case _:
                assert_never(step)

    def _count(self, result: str | None) -> None:
        """A step that came too late, or that the store could not write, does not count. A look that agreed, or that
        sent no probe, has not failed.
        """
        if result is not None:
            self._tools.observer.reconciled(self._route.id, result)

    async def _once(self, statement: Callable[[], Awaitable[Transition]]) -> bool:
        """Whether the store did it. A stale statement is not repeated: another verdict was first."""
        transition = await self._write(statement)
        if transition in {Transition.DONE, Transition.ALREADY}:
            return True
        if transition is not None:
            self._tools.observer.stale_write(STALE_VERDICT)
        return False

    async def _conclude(self, finding: Finding, entry: Entry) -> bool:
        """*Executed* counts at any time: it is written again where the record has moved and could still run again."""
        assert finding.answer is not None, "an answer comes with the verdict"
        answer, retention = await pack_response(finding.answer), Retention.of(self._policy, finding.retention)
        fence, found = self._doubt.fence, None
        for _ in range(ROUNDS):
            if await self._once(partial(self._tools.reconciliation.conclude_executed, fence, answer, retention, entry)):
                if found is not None:
                    await self._tell_conflict(found, entry)
                return True
            found = await self._read()
            if found is None or found.record_id != fence.record_id:
                return False
            if self._lost_reply and found.status is Status.COMPLETED and found.version == fence.version + 1:
                await self._tell_conflict(found, entry)
                return True
            if found.status is Status.IN_PROGRESS and found.lease_live:  # kept with it, so that at least no attempt executes after that one
                evidence = Evidence(answer, entry)
                if not await self._once(partial(self._tools.reconciliation.attach, Fence.of(found), evidence, None)):
                    continue
            if not may_complete(found):
                await self._tell_conflict(found, entry)
                return False
            fence = Fence.of(found)
        if found is not None:
            await self._tell_conflict(found, entry)
        return False

    async def _read(self) -> Record | None:
        found: list[Record | None] = []

        async def read() -> Transition:
            found.append(await self._tools.find(self._doubt.fence.key))
            return Transition.DONE

        await self._write(read)
        return found[0] if found else None

    async def _tell_conflict(self, found: Record, entry: Entry) -> None:
        """A newer attempt owns the record, or has completed it, and an earlier one is seen to have executed. Where the
        upstream deduplicates by key the two are one.
        """
        doubt, tools = self._doubt, self._tools
        if not ran_twice(found, doubt.attempt) or self._policy.repeats:
            return
        tools.observer.conflicting_execution(self._route.id, doubt.request_id)
        line = replace(entry, what="conflict", detail={**entry.detail, "attempt": doubt.attempt, "request_id": doubt.request_id})

        async def note() -> Transition:
            await tools.reconciliation.note(doubt.fence.key, doubt.fence.record_id, line)
            return Transition.DONE

        await self._write(note)

    async def _write(self, statement: Callable[[], Awaitable[Transition]]) -> Transition | None:
        """Repeat until the store answers. None once the hold is nearly over, and another process may take the
        record.
        """
        clock, backoff = self._tools.clock, BACKOFF
        while True:
            try:
                return await statement()
            except StoreUnavailable as failure:
                self._lost_reply |= failure.may_have_landed
            pause = backoff * (0.5 + self._tools.randomness.jitter())
            if clock.boottime() + pause >= self._until:
                return None
            await clock.sleep(pause)
            backoff = min(BACKOFF_MAX, backoff * 2)
