"""Any store against a tiny model of it: random commands, and after each one the same answer and the same record."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, Status, StoredResponse, Terms, Tombstone
from gateway.ports import OBSERVED_DOUBT_KEPT, TOMBSTONE_AFTER, Retention, Transition
from gateway.ports.reconciliation import Entry, Fence
from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import (
    Harness,
    MemoryHarness,
    PostgresHarness,
    empty_records,
    fingerprint,
    intent,
    packed_response,
    response,
)

T = TypeVar("T")

LEASE, MAX_EXECUTION, RETENTION, HOLD = 30.0, 60.0, 600.0, 20.0
GONE_FOR, KEEP_FOR = 9000.0, 5000.0
RETENTIONS = [Retention(RETENTION, gone, keep) for gone in (None, GONE_FOR) for keep in (None, KEEP_FOR)]
KEYS = st.integers(0, 1)
HOLDERS = st.integers(0, 5)
MEANINGS = {name: fingerprint(name) for name in ("a", "b")}
ANSWERS = {"x": response(b"x"), "y": packed_response()}
ENDED: dict[str, bool | None] = {"again": None, "agreed": None, "ended": True, "running": False}
"""Words after which there is another look, and what each says of what the look itself did."""


@dataclass(frozen=True)
class Row:
    """The model's record. `until` is the end of the lease, or the expiry; instants are whole numbers that tests never hit exactly.
    `watched`: it only observed. `due`: when somebody looks; `sure`: from when on *not executed* counts; `looked`: when the last look
    began, and `looked_over` whether that was late enough.
    """

    status: Status
    owner: bytes
    meaning: Fingerprint
    attempt: int
    life: int
    version: int
    until: float
    probe: bool
    watched: bool
    born: float
    kept: Retention = RETENTIONS[0]
    reason: str | None = None
    answer: StoredResponse | None = None
    due: float = 0.0
    sure: float = 0.0
    dead: bool = False
    looked: float | None = None
    looked_over: bool = False
    looks: int = 0
    agreed: int = 0

    def over(self, now: float) -> bool:
        return self.status is not Status.UNKNOWN and self.until <= now

    @property
    def ended(self) -> bool:
        return self.status in (Status.COMPLETED, Status.FAILED_RETRYABLE)

    def expired(self, now: float) -> bool:
        return (self.ended or (self.status is Status.UNKNOWN and self.watched)) and self.until <= now

    def yields(self, *, watching: bool) -> bool:
        return self.watched and not watching and self.status is not Status.COMPLETED

    @property
    def buried_until(self) -> float | None:
        return self.until + self.kept.gone_for if self.status is Status.COMPLETED and self.kept.gone_for is not None else None

    def reaped(self, now: float) -> bool:
        return self.expired(now) and (self.buried_until is None or self.born + TOMBSTONE_AFTER <= now)

    def moved(self, status: Status, until: float = 0.0, **more: object) -> "Row":
        return replace(self, status=status, version=self.version + 1, until=until, **more)  # type: ignore[arg-type]  # fields by name

    def doubted(self, now: float, reason: str) -> "Row":
        until, dead = now + OBSERVED_DOUBT_KEPT if self.watched else 0.0, not self.probe and not self.watched
        counts = {"sure": self.due, "looked": None, "looked_over": False, "looks": 0, "agreed": 0}
        return self.moved(Status.UNKNOWN, until, reason=reason, dead=dead, **counts)

    def leased(self, now: float, **more: object) -> "Row":
        return self.moved(Status.IN_PROGRESS, now + LEASE, due=now + LEASE + MAX_EXECUTION, dead=False, **more)

    @property
    def open(self) -> bool:
        """In doubt, and somebody's business."""
        return self.status is Status.UNKNOWN and not self.watched


class Machine(RuleBasedStateMachine):
    """Commands for two keys by holders of any lease ever given. `harness` and `wait` are set by the test."""

    harness: Harness
    wait: Callable[[Awaitable[object]], object]

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lives = 0
        self.keys = [RecordKey(f"model-{secrets.token_hex(8)}:none", str(n)) for n in range(2)]
        self.rows: dict[RecordKey, Row] = {}
        self.graves: dict[RecordKey, float] = {}
        self.archive: list[tuple[RecordKey, float]] = []
        self.leases: list[Lease] = []
        self.seen: list[Record] = []
        self.fences: list[tuple[Fence, bytes]] = []
        self.route = f"route-{secrets.token_hex(8)}"

    def ask(self, answer: Awaitable[T]) -> T:
        return type(self).wait(answer)  # type: ignore[return-value]  # the answer's own type

    def holder(self, number: int) -> Lease | None:
        return self.leases[-1 - number % len(self.leases)] if self.leases else None

    def wanted(self, key: RecordKey, meaning: str, probe: bool, watch: bool, *, ask: bool = False, again: bool = False) -> Intent:
        terms = Terms(self.route, LEASE, MAX_EXECUTION, probe, GONE_FOR if ask else None, watch, again)
        return replace(intent(key, MEANINGS[meaning]), terms=terms)

    def new_life(self, wanted: Intent, row: Row | None) -> Row:
        if row is not None and row.expired(self.now):
            self.keep(wanted.key, row)
        self.lives += 1
        version, until = 1 if row is None else row.version + 1, self.now + LEASE
        meaning, probe = wanted.fingerprint, wanted.terms.reconcilable
        row = Row(Status.IN_PROGRESS, wanted.owner, meaning, 1, self.lives, version, until, probe, wanted.terms.observed, self.now)
        return replace(row, due=until + MAX_EXECUTION)

    @rule(which=KEYS, meaning=st.sampled_from("ab"), probe=st.booleans(), watch=st.booleans(), ask=st.booleans())
    def reserve(self, which: int, meaning: str, probe: bool, watch: bool, ask: bool) -> None:
        key = self.keys[which]
        wanted = self.wanted(key, meaning, probe, watch, ask=ask)
        answer = self.ask(self.harness.store.reserve(wanted))
        row, grave = self.rows.get(key), self.graves.get(key, 0.0)
        if row is None and ask and grave > self.now:
            assert isinstance(answer, Tombstone)
            assert abs(answer.expires_in - (grave - self.now)) < 5
        elif row is None or row.yields(watching=watch):
            assert isinstance(answer, Lease)
            assert (answer.owner, answer.attempt) == (wanted.owner, 1)
            self.rows[key] = self.new_life(wanted, row)
            self.leases.append(answer)
        else:
            assert isinstance(answer, Record)
            self.check(answer, row)
            self.seen.append(answer)

    @rule(number=HOLDERS, meaning=st.sampled_from("ab"), probe=st.booleans(), watch=st.booleans(), again=st.booleans())
    def claim(self, number: int, meaning: str, probe: bool, watch: bool, again: bool) -> None:
        if not self.seen:
            return
        record = self.seen[-1 - number % len(self.seen)]
        row, wanted = self.rows.get(record.key), self.wanted(record.key, meaning, probe, watch, again=again)
        answer = self.ask(self.harness.store.claim(record, wanted))
        exact = row is not None and (row.version, row.expired(self.now)) == (record.version, record.expired) and self.same_life(record, row)
        if exact and row is not None and record.expired and (row.ended or row.yields(watching=watch)):
            taken = self.new_life(wanted, row)
        elif exact and row is not None and self.claimable(row, again=again) and row.meaning == MEANINGS[meaning]:
            taken = row.leased(self.now, owner=wanted.owner, attempt=row.attempt + 1, probe=probe, watched=watch)
            assert answer is not None
            assert answer.reexecution == (row.status is Status.UNKNOWN)
            assert answer.earlier is record.earlier
        else:
            assert answer is None
            return
        assert answer is not None
        assert (answer.owner, answer.attempt) == (wanted.owner, taken.attempt)
        self.rows[record.key] = taken
        self.leases.append(answer)

    def claimable(self, row: Row, *, again: bool) -> bool:
        return row.status is Status.FAILED_RETRYABLE or (again and row.open and not row.dead and row.sure <= self.now)

    def same_life(self, record: Record, row: Row) -> bool:
        return record.owner == row.owner  # versions rise, so that within one owner's reign they name one life

    @rule(number=HOLDERS, answer=st.sampled_from("xy"), kept=st.sampled_from(RETENTIONS))
    def complete(self, number: int, answer: str, kept: Retention) -> None:
        if (lease := self.holder(number)) is None:
            return
        row = self.rows.get(lease.key)
        got = self.ask(self.harness.store.complete(lease, ANSWERS[answer], kept)).transition
        if row is None or row.owner != lease.owner:
            assert got is (Transition.MISSING if row is None else Transition.STALE)
        elif row.status is Status.COMPLETED:
            assert got is (Transition.ALREADY if row.answer == ANSWERS[answer] else Transition.STALE)
        else:
            assert got is Transition.DONE
            self.rows[lease.key] = row.moved(Status.COMPLETED, self.now + RETENTION, answer=ANSWERS[answer], kept=kept, dead=False)

    @rule(number=HOLDERS, kept=st.sampled_from(RETENTIONS))
    def release(self, number: int, kept: Retention) -> None:
        if (lease := self.holder(number)) is None:
            return
        row = self.rows.get(lease.key)
        got = self.ask(self.harness.store.release(lease, "not_sent", kept)).transition
        if row is None or row.owner != lease.owner:
            assert got is (Transition.MISSING if row is None else Transition.STALE)
        elif row.status in (Status.IN_PROGRESS, Status.UNKNOWN):
            assert got is Transition.DONE
            self.rows[lease.key] = row.moved(Status.FAILED_RETRYABLE, self.now + RETENTION, reason="not_sent", kept=kept, dead=False)
        else:
            assert got is (Transition.ALREADY if row.status is Status.FAILED_RETRYABLE else Transition.STALE)

    @rule(number=HOLDERS)
    def doubt(self, number: int) -> None:
        if (lease := self.holder(number)) is None:
            return
        row = self.rows.get(lease.key)
        got = self.ask(self.harness.store.doubt(lease, "timeout")).transition
        if row is None or row.owner != lease.owner:
            assert got is (Transition.MISSING if row is None else Transition.STALE)
        elif row.status is Status.IN_PROGRESS:
            assert got is Transition.DONE
            self.rows[lease.key] = row.doubted(self.now, "timeout")
        else:
            assert got is (Transition.ALREADY if row.status is Status.UNKNOWN else Transition.STALE)

    @rule()
    def renew(self) -> None:
        renewed = self.ask(self.harness.store.renew(self.leases[-4:]))
        expected = set()
        for lease in self.leases[-4:]:
            row = self.rows.get(lease.key)
            if row is not None and row.owner == lease.owner and row.status is Status.IN_PROGRESS:
                self.rows[lease.key] = row.leased(self.now)
                expected.add(lease.owner)
        assert renewed == expected

    @rule(number=HOLDERS)
    def lapse(self, number: int) -> None:
        if not self.seen:
            return
        record = self.seen[-1 - number % len(self.seen)]
        row = self.rows.get(record.key)
        did = self.ask(self.harness.store.lapse(record))
        right = row is not None and row.version == record.version and self.same_life(record, row)
        assert did == (right and row is not None and row.status is Status.IN_PROGRESS and row.over(self.now))
        if did and row is not None:
            self.rows[record.key] = row.doubted(self.now, "lease_expired")

    @rule()
    def sweep(self) -> None:
        swept = {each.key for each in self.ask(self.harness.maintenance.sweep(100)) if each.key in self.keys}
        due = {key for key, row in self.rows.items() if row.status is Status.IN_PROGRESS and row.over(self.now)}
        assert swept == due
        for key in due:
            self.rows[key] = self.rows[key].doubted(self.now, "lease_expired")

    @rule(acts=st.booleans())
    def look(self, acts: bool) -> None:
        owners = [secrets.token_bytes(16) for _ in self.keys] if acts else []
        looks = self.ask(self.harness.reconciliation.take_due(self.route, 2, HOLD, owners))
        due = {key for key, row in self.rows.items() if row.open and not row.dead and row.due <= self.now}
        assert {look.fence.key for look in looks} == due
        for look in looks:
            row = self.rows[look.fence.key]
            assert (look.look, look.agreed, look.over) == (row.looks + 1, row.agreed, row.sure <= self.now)
            sure = max(row.sure, self.now + HOLD + MAX_EXECUTION) if acts else row.sure
            taken = row.moved(Status.UNKNOWN, due=self.now + HOLD, sure=sure, looks=row.looks + 1, looked=self.now, owner=look.owner)
            taken = replace(taken, looked_over=look.over)
            assert (look.owner in owners) if acts else (look.owner == row.owner)
            assert look.fence.version == taken.version
            self.rows[look.fence.key] = taken
            self.fences.append((look.fence, look.owner))

    @rule(number=HOLDERS, word=st.sampled_from(["executed", "not_executed", *ENDED, "bury"]), looked=st.booleans())
    def conclude(self, number: int, word: str, looked: bool) -> None:
        """By the fence of a look, or of a record as it was seen."""
        fences = self.fences if looked else [(Fence(seen.key, seen.record_id, seen.version), seen.owner) for seen in self.seen]
        if not fences:
            return
        fence, owner = fences[-1 - number % len(fences)]
        row, port = self.rows.get(fence.key), self.harness.reconciliation
        kept, entry = RETENTIONS[0], Entry("lookup", word)
        match word:
            case "executed":
                got = self.ask(port.conclude_executed(fence, ANSWERS["x"], kept, entry))
            case "not_executed":
                got = self.ask(port.conclude_not_executed(fence, "verdict", kept, entry, looked=looked))
            case "bury":
                got = self.ask(port.dead_letter(fence, entry))
            case _:
                got = self.ask(port.look_again(fence, 7.0, agreed=word == "agreed", entry=entry, ended=ENDED[word]))
        same = row is not None and (row.version, row.owner) == (fence.version, owner)
        if row is None or not same or row.watched or not self.allows(row, word, looked=looked):
            assert got is (Transition.MISSING if row is None else Transition.STALE)
            return
        assert got is Transition.DONE
        until = self.now + RETENTION
        match word:
            case "executed":
                self.rows[fence.key] = row.moved(Status.COMPLETED, until, answer=ANSWERS["x"], kept=kept, dead=False)
            case "not_executed":
                self.rows[fence.key] = row.moved(Status.FAILED_RETRYABLE, until, reason="verdict", kept=kept, dead=False)
            case "bury":
                self.rows[fence.key] = row.moved(Status.UNKNOWN, dead=True)
            case _:
                agreed = row.agreed + 1 if word == "agreed" else 0
                ended = word == "ended" and row.looked is not None and row.looked_over
                sure = min(row.sure, row.looked) if ended and row.looked is not None else row.sure
                due = max(self.now + 7.0, row.sure) if word == "running" else self.now + 7.0
                self.rows[fence.key] = row.moved(Status.UNKNOWN, due=due, agreed=agreed, sure=sure)

    def allows(self, row: Row, word: str, *, looked: bool) -> bool:
        """Whether a verdict may change the record as it is."""
        match word:
            case "executed":
                return row.open or (row.status is Status.IN_PROGRESS and row.over(self.now)) or self.free(row)
            case "not_executed":
                over = row.looked is not None and row.looked_over if looked else row.sure <= self.now
                return row.open and over
            case "bury":
                return row.open and not row.dead
            case _:
                return row.open

    def free(self, row: Row) -> bool:
        return row.status is Status.FAILED_RETRYABLE and not row.over(self.now)

    @rule()
    def reap(self) -> None:
        self.ask(self.harness.maintenance.reap(100))
        for key, row in list(self.rows.items()):
            if row.reaped(self.now):
                del self.rows[key]
                if row.buried_until is not None:
                    self.graves[key] = max(self.graves.get(key, 0.0), row.buried_until)
                self.keep(key, row)

    def keep(self, key: RecordKey, row: Row) -> None:
        """An expired life goes to the archive where its route keeps such, whether it is reaped or another one takes its place."""
        if row.ended and row.kept.keep_for is not None:
            self.archive.append((key, row.until + row.kept.keep_for))

    @rule()
    def purge(self) -> None:
        self.ask(self.harness.maintenance.purge(100))
        self.graves = {key: until for key, until in self.graves.items() if until > self.now}
        self.archive = [kept for kept in self.archive if kept[1] > self.now]
        for key in self.keys:
            assert len(self.ask(self.harness.archived(key))) == len([kept for kept, _ in self.archive if kept == key])

    @rule(seconds=st.sampled_from([11.0, 31.0, 607.0, 3607.0, 90001.0]))
    def pass_time(self, seconds: float) -> None:
        self.ask(self.harness.advance(seconds))
        self.now += seconds

    @rule(which=KEYS, kept=st.sampled_from(RETENTIONS), ask=st.booleans())
    def live_and_end(self, which: int, kept: Retention, ask: bool) -> None:
        """What chance alone would seldom do in this order."""
        self.reserve(which, "a", probe=False, watch=False, ask=ask)
        self.complete(0, "x", kept)
        self.pass_time(3607.0)
        self.reap()
        self.reserve(which, "a", probe=False, watch=False, ask=True)

    @invariant()
    def records_are_as_the_model_says(self) -> None:
        for key in self.keys:
            record = self.ask(self.harness.store.find(key))
            if key in self.rows:
                assert record is not None
                self.check(record, self.rows[key])
                self.seen.append(record)
                del self.seen[:-8]
            else:
                assert record is None

    def check(self, record: Record, row: Row) -> None:
        assert (record.status, record.owner, record.fingerprint) == (row.status, row.owner, row.meaning)
        assert (record.attempt, record.response, record.last_error_code) == (row.attempt, row.answer, row.reason)
        assert record.version == row.version
        assert record.expired == row.expired(self.now)
        assert record.lease_live == (row.status is Status.IN_PROGRESS and not row.over(self.now))
        assert record.dead_lettered == row.dead
        if not row.ended:
            assert record.reconcile_in is not None
            assert abs(record.reconcile_in - max(row.due - self.now, 0.0)) < 5


def explore(harness: Harness, runner: asyncio.Runner, *, examples: int, steps: int) -> None:
    async def answered(answer: Awaitable[object]) -> object:
        return await answer

    machine = type("Explored", (Machine,), {"harness": harness, "wait": staticmethod(lambda answer: runner.run(answered(answer)))})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=checks))


def test_the_memory_store_is_its_model() -> None:
    """The reference store answers every sequence of commands as the model does."""
    with asyncio.Runner() as runner:
        explore(MemoryHarness(), runner, examples=200, steps=40)


def test_postgres_is_the_model(contract_database: str) -> None:
    """So does Postgres, command for command."""
    with asyncio.Runner() as runner:
        runner.run(empty_records(contract_database))
        store = PostgresStore(contract_database, pool_size=2, timeout=30)
        try:
            explore(PostgresHarness(contract_database, store), runner, examples=12, steps=30)
        finally:
            runner.run(store.close())
