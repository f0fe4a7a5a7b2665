"""Verdicts that need a second person, on a real Postgres."""

import asyncio
import datetime as dt
import hashlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import Fingerprint, Intent, Lease, RecordKey, Status, StoredResponse, Terms
from gateway.core.policy import Policy
from gateway.core.reconcile.capture import capture
from gateway.core.roles import Role
from gateway.core.second_approval import Above, SecondApproval
from gateway.operate.commands.tables import proposed_text
from gateway.operate.operations import (
    Caller,
    Changed,
    Conflict,
    Desk,
    Done,
    Forbidden,
    Grounds,
    NotFound,
    Operator,
    Proposed,
    TooEarly,
    Wrong,
    waiting_json,
)
from gateway.operate.operations.proposals import cursor_after, position_of
from gateway.ports import Retention
from gateway.ports.approvals import Proposal
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.reconciliation import Selection, Shown
from gateway.runtime.record_sealing import RecordSealer
from gateway.runtime.sealing import AesSealer
from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import age_records

LEASE, MAX_EXECUTION = 30.0, 60.0
WHY = Grounds("INC-7: seen at the provider")
BODY = b'{"id": "ch_1", "secret": "in nobody\'s dump"}'


def caller(name: str, role: Role) -> Caller:
    return Caller(name, role, identity=f"user:{name}")


OPERATOR, APPROVER, OTHER = caller("ana", Role.OPERATOR), caller("ben", Role.APPROVER), caller("eve", Role.ADMIN)


@dataclass
class House:
    """A store, and people at their desks."""

    dsn: str
    store: PostgresStore
    rule: SecondApproval = field(
        default_factory=lambda: SecondApproval(above=Above(capture="amount", value=10_000), not_executed_within_max_execution=True)
    )

    def desk(self, who: Caller) -> Desk:
        policies = {"create-charge": Policy("create-charge", ())}
        operator = Operator(
            self.store.operations, self.store.reconciliation, lambda: policies, approvals=self.store.approvals, second=lambda: self.rule
        )
        return Desk(operator, who)

    async def begin(self, key: str, amount: str, attempt: bytes = b"") -> Lease:
        """`amount` is as the request's JSON has it."""
        digest = hashlib.sha256(key.encode()).digest()
        intent = Intent(
            RecordKey("create-charge:none", key),
            Fingerprint(1, digest, digest),
            attempt or secrets.token_bytes(16),
            Terms("create-charge", LEASE, MAX_EXECUTION, False),
            f"request-{key}",
            "POST",
            b"/v1/charges",
            captured=capture(f'{{"amount": {amount}}}'.encode(), b"application/json", [("amount", "/amount")]),
        )
        lease = await self.store.reserve(intent)
        assert isinstance(lease, Lease)
        return lease

    async def unknown(self, key: str, amount: str = "20000", *, old: bool = True) -> Lease:
        lease = await self.begin(key, amount)
        await self.store.doubt(lease, "read_timeout")
        if old:
            await age_records(self.dsn, LEASE + MAX_EXECUTION + 10.0)
        return lease

    async def state(self, key: RecordKey) -> Status:
        shown = await self.desk(OTHER).show(key)
        assert isinstance(shown, Shown)
        return shown.listed.status

    async def proposed(self, lease: Lease, who: Caller = OPERATOR) -> UUID:
        changed = await self.desk(who).resolve_completed(lease.key, WHY, status=201, body=BODY)
        assert isinstance(changed, Proposed), changed
        return changed.proposal.id


def why_not(changed: Changed) -> str:
    assert isinstance(changed, Conflict), changed
    return changed.why


@pytest.fixture
async def house(database: str) -> AsyncIterator[House]:
    store = PostgresStore(database)
    yield House(database, store)
    await store.close()


async def test_a_large_amount_waits_for_another_user(house: House) -> None:
    """Nothing happens until that one confirms; then it is the verdict of both. A small one needs nobody else."""
    large, small = await house.unknown("large"), await house.unknown("small", "10000")
    assert isinstance(await house.desk(OPERATOR).resolve_completed(small.key, WHY, status=201), Done)
    proposal = await house.proposed(large)
    assert await house.state(large.key) is Status.UNKNOWN
    (waiting,) = await house.desk(caller("vic", Role.VIEWER)).proposals()
    assert (waiting.proposal.id, waiting.proposal.proposer, waiting.stale, waiting.route_id) == (proposal, "ana", False, "create-charge")
    assert isinstance(await house.desk(APPROVER).approve(large.key, proposal, Grounds("I see it, too")), Done)
    shown = await house.desk(OTHER).show_body(large.key, WHY)
    assert isinstance(shown, Shown)
    assert shown.response is not None
    assert (shown.listed.status, shown.response.status, shown.response.body) == (Status.COMPLETED, 201, BODY)
    assert [(line.entry.what, line.entry.actor) for line in shown.history[-2:]] == [("proposed", "ana"), ("executed", "ben")]
    lines = {line.audit.action: line.audit for line in await house.desk(OTHER).audit() if line.key == large.key}
    assert (lines["propose"].actor, lines["propose"].reason) == ("ana", WHY.reason)
    assert (lines["resolve"].actor, lines["resolve"].detail["proposed_by"]) == ("ben", "ana")
    assert await house.desk(OTHER).proposals() == []


async def test_an_amount_that_was_not_captured_waits_for_another_user(house: House) -> None:
    """It is there, and may be large: a number with a fraction is none that is captured."""
    lease = await house.unknown("fraction", "1000000.50")
    await house.proposed(lease)
    assert await house.state(lease.key) is Status.UNKNOWN


async def test_who_proposes_does_not_confirm(house: House) -> None:
    """Whatever the role; and whose role is too low does neither."""
    lease = await house.unknown("k")
    own = await house.proposed(lease, APPROVER)
    assert "You have proposed it yourself" in why_not(await house.desk(APPROVER).approve(lease.key, own, WHY))
    with pytest.raises(Forbidden, match="needs the role approver; ana has the role operator"):
        await house.desk(OPERATOR).approve(lease.key, own, WHY)
    with pytest.raises(Forbidden):
        await house.desk(OPERATOR).reject(lease.key, own, WHY)
    assert await house.state(lease.key) is Status.UNKNOWN


async def test_who_has_another_identity_by_now_does_not_confirm_either(house: House) -> None:
    """The configuration may link two accounts of a person while a proposal of one of them waits."""
    before = Caller("oidc:ana", Role.APPROVER, identity="oidc:u-1")
    lease = await house.unknown("k")
    own = await house.proposed(lease, before)
    assert "You have proposed it yourself" in why_not(await house.desk(replace(before, identity="user:ana")).approve(lease.key, own, WHY))
    assert await house.state(lease.key) is Status.UNKNOWN


async def test_how_long_it_would_be_kept_is_a_part_of_a_proposal(house: House) -> None:
    """After a short life its key is free, and the operation runs again: who confirms it is told, and so is who reads about it later."""
    lease = await house.unknown("k")
    assert isinstance(await house.desk(OPERATOR).resolve_completed(lease.key, WHY, status=201, retention=90.0), Proposed)
    (waiting,) = await house.desk(APPROVER).proposals()
    told = waiting_json(waiting)
    assert (told["retention"], "90s" in proposed_text(told)) == (90.0, True)
    shown = await house.desk(APPROVER).show(lease.key)
    assert isinstance(shown, Shown)
    assert shown.history[-1].entry.detail["retention"] == "90s"
    (line,) = [line for line in await house.desk(APPROVER).audit() if line.key == lease.key]
    assert line.audit.detail["retention"] == "90s"


async def test_one_proposal_waits_for_each_record(house: House) -> None:
    """Another user's stays, one's own is replaced; what was replaced cannot be confirmed."""
    lease = await house.unknown("k")
    first = await house.proposed(lease)
    assert "Another user has proposed" in why_not(await house.desk(OTHER).release(lease.key, WHY))
    second = await house.desk(OPERATOR).release(lease.key, WHY)
    assert isinstance(second, Proposed)
    assert "no such proposal any more" in why_not(await house.desk(APPROVER).approve(lease.key, first, WHY))
    assert isinstance(await house.desk(APPROVER).approve(lease.key, second.proposal.id, WHY), Done)
    assert await house.state(lease.key) is Status.FAILED_RETRYABLE


async def test_a_record_that_has_come_further_makes_a_proposal_stale(house: House) -> None:
    """The late answer of its attempt wins; a mere look does not count."""
    looked, late = await house.unknown("looked"), await house.unknown("late")
    proposals = [await house.proposed(looked), await house.proposed(late)]
    connection = await asyncpg.connect(house.dsn)
    await connection.execute("UPDATE gateway_records SET version = version + 1, reconcile_attempts = 1 WHERE idempotency_key = 'looked'")
    await connection.close()
    answer = StoredResponse(200, b"OK", (), b"late", 4, hashlib.sha256(b"late").digest())
    await house.store.complete(late, answer, Retention(3600.0))
    assert [one.stale for one in await house.desk(OTHER).proposals()] == [False, True]
    assert isinstance(await house.desk(APPROVER).approve(looked.key, proposals[0], WHY), Done)
    assert "come further" in why_not(await house.desk(APPROVER).approve(late.key, proposals[1], WHY))


async def test_what_came_further_as_it_was_confirmed_is_not_concluded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict is about the attempt that both have seen, not about the next one."""
    lease = await house.unknown("k")
    proposal = await house.proposed(lease)
    show, looks = house.store.operations.show, iter(range(10))

    async def shown(*arguments: Any, **options: Any) -> Shown | None:
        if next(looks) == 1:
            connection = await asyncpg.connect(house.dsn)
            await connection.execute("UPDATE gateway_records SET version = version + 1, attempt = 2")
            await connection.close()
        return await show(*arguments, **options)

    monkeypatch.setattr(house.store.operations, "show", shown)
    assert "changed while this was under way" in why_not(await house.desk(APPROVER).approve(lease.key, proposal, WHY))
    assert await house.state(lease.key) is Status.UNKNOWN


async def test_of_two_who_confirm_one_does(house: House) -> None:
    """The other is told that it is gone, or that the record has come further."""
    lease = await house.unknown("k")
    proposal = await house.proposed(lease)
    changed = await asyncio.gather(*(house.desk(who).approve(lease.key, proposal, WHY) for who in (APPROVER, OTHER)))
    assert sorted(type(one).__name__ for one in changed) == ["Conflict", "Done"]
    lines = [line for line in await house.desk(OTHER).audit() if line.audit.action == "resolve"]
    assert len(lines) == 1


async def test_a_proposal_is_rejected_or_taken_back(house: House) -> None:
    """With a reason, and audited; afterwards another may be made."""
    lease = await house.unknown("k")
    assert isinstance(await house.desk(OPERATOR).reject(lease.key, await house.proposed(lease), WHY), Done)  # taken back
    assert isinstance(await house.desk(APPROVER).reject(lease.key, await house.proposed(lease), WHY), Done)
    assert "no such proposal" in why_not(await house.desk(APPROVER).reject(lease.key, uuid4(), WHY))
    assert [line.audit.actor for line in await house.desk(OTHER).audit() if line.audit.action == "reject"] == ["ana", "ben"]
    assert isinstance(await house.desk(APPROVER).reject(RecordKey("create-charge:none", "x"), uuid4(), WHY), NotFound)
    assert await house.state(lease.key) is Status.UNKNOWN


async def test_too_early_is_never_early(house: House) -> None:
    """A *not executed* within `max_execution` waits as a proposal; confirmed too early it goes on waiting, and nothing runs again."""
    lease = await house.unknown("k", "5", old=False)
    changed = await house.desk(OPERATOR).resolve_not_executed(lease.key, WHY)
    assert isinstance(changed, Proposed)
    assert isinstance(await house.desk(APPROVER).approve(lease.key, changed.proposal.id, WHY), TooEarly)
    assert await house.state(lease.key) is Status.UNKNOWN
    await age_records(house.dsn, LEASE + MAX_EXECUTION + 10.0)
    assert isinstance(await house.desk(APPROVER).approve(lease.key, changed.proposal.id, WHY), Done)
    assert await house.state(lease.key) is Status.FAILED_RETRYABLE


async def test_without_the_rule_verdicts_are_as_ever(house: House) -> None:
    """Too early is too early."""
    house.rule = SecondApproval()
    early, large = await house.unknown("early", old=False), await house.begin("large", "99999999")
    assert isinstance(await house.desk(OPERATOR).release(early.key, WHY), TooEarly)
    assert isinstance(await house.desk(OPERATOR).release(large.key, WHY), Conflict)  # it runs


async def test_a_proposed_answer_is_encrypted_as_the_records_own(database: str) -> None:
    """A dump of the table has neither the proposal's body nor its fields; the approver's verdict completes with both."""
    sealer = RecordSealer(AesSealer((b"k" * 32,)), seals=True)
    store = PostgresStore(database, sealer=sealer)
    house = House(database, store)
    lease = await house.unknown("k")
    proposal = await house.proposed(lease)
    connection = await asyncpg.connect(database)
    (row,) = await connection.fetch("SELECT gateway_proposals::text AS all FROM gateway_proposals")
    assert BODY.hex() not in row["all"]
    await connection.close()
    assert isinstance(await house.desk(APPROVER).approve(lease.key, proposal, WHY), Done)
    shown = await house.desk(OTHER).show_body(lease.key, WHY)
    assert isinstance(shown, Shown)
    assert shown.response is not None
    assert shown.response.body == BODY
    await store.close()


async def test_what_is_deleted_or_erased_leaves_no_proposal(house: House) -> None:
    """It holds the key, and an answer."""
    lease = await house.unknown("k")
    await house.proposed(lease)
    answer = StoredResponse(200, b"OK", (), b"late", 4, hashlib.sha256(b"late").digest())
    await house.store.complete(lease, answer, Retention(3600.0))
    assert isinstance(await house.desk(OTHER).delete(lease.key, WHY), Done)
    connection = await asyncpg.connect(house.dsn)
    assert await connection.fetchval("SELECT count(*) FROM gateway_proposals") == 0
    other = await house.unknown("other")
    await house.proposed(other)
    await house.store.reencryption.erase("create-charge:none", "", "ana", "GDPR-12")
    assert await connection.fetchval("SELECT count(*) FROM gateway_proposals") == 0
    await connection.close()


# ---- what else a queue needs


async def test_dead_letters_by_amount(house: House) -> None:
    """The largest first, those without a number last; and whether these are all."""
    for key, amount in (("a", "5"), ("b", '"1e3"'), ("c", '"lots"'), ("d", "70")):
        await house.unknown(key, amount, old=False)
    found, whole = await house.desk(APPROVER).by_amount(Selection(), "amount")
    assert ([listed.key.key for listed in found], whole) == (["b", "d", "a", "c"], True)
    found, whole = await house.desk(APPROVER).by_amount(Selection(), "amount", limit=1)
    assert ([listed.key.key for listed in found], whole) == (["b"], False)


async def test_an_amount_of_zero_is_a_number(house: House) -> None:
    """And stands before those that have none."""
    for key, amount in (("a", "lots"), ("b", "0"), ("c", "-3")):
        await house.unknown(key, amount, old=False)
    found, _ = await house.desk(APPROVER).by_amount(Selection(), "amount")
    assert [listed.key.key for listed in found] == ["b", "c", "a"]


@given(st.datetimes(timezones=st.just(dt.UTC)), st.uuids())
def test_a_cursor_of_proposals_leads_behind_the_last_one(at: dt.datetime, proposal_id: UUID) -> None:
    """To the microsecond; a page that is not full is the last one."""
    proposal = Proposal(proposal_id, RecordKey("s", "k"), UUID(int=1), 1, Status.UNKNOWN, "executed", "ana", "user:ana", "r")
    found = [Waiting(proposal, at, at, None, stale=False)]
    assert position_of(cursor_after(found, 1)) == (at, proposal_id)
    assert cursor_after(found, 2) is None
    assert position_of(None) is None


async def test_a_preview_is_what_a_retry_gets(house: House) -> None:
    """With the marks of a replay, without fields that are never stored. It changes nothing."""
    lease = await house.unknown("k")
    headers = ((b"Content-Type", b"application/json"), (b"Set-Cookie", b"a=b"))
    message = await house.desk(OPERATOR).preview(lease.key, status=201, headers=headers, body=b"{}")
    assert isinstance(message, bytes)
    head, body = message.split(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 201 Created",
        b"Content-Type: application/json",
        b"Idempotent-Replayed: true",
        b"Original-Request: request-k",
        b"Content-Length: 2",
    ]
    assert body == b"{}"
    with pytest.raises(Wrong):
        await house.desk(OPERATOR).preview(lease.key, status=204, body=b"{}")
    assert await house.state(lease.key) is Status.UNKNOWN
