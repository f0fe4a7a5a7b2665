"""The contract: what a store is. Every store passes it unchanged; no test asks which store it has, and none is overridden.

What becomes of expired records is in `retention_contract`, what observed ones are in `observed_contract`, how what is unknown is found out
in `reconciliation_contract` and `webhook_contract`, how far attempts come in `participation_contract`.
"""

import asyncio
import itertools
import random

import pytest

from gateway.core.model import Intent, Lease, Record, Status
from gateway.core.packing import unpack
from gateway.ports import Retention, Transition
from tests.store.contract.accepted_contract import AcceptedContract
from tests.store.contract.harness import (
    KEPT,
    LEASE,
    MAX_EXECUTION,
    RETENTION,
    Harness,
    completed,
    doubted,
    fingerprint,
    found,
    fresh_key,
    intent,
    lease_under,
    packed_response,
    released,
    reserved,
    response,
)
from tests.store.contract.observed_contract import ObservedContract
from tests.store.contract.participation_contract import ParticipationContract
from tests.store.contract.reconciliation_contract import ReconciliationContract
from tests.store.contract.restore_contract import RestoreContract
from tests.store.contract.retention_contract import RetentionContract
from tests.store.contract.webhook_contract import WebhookContract


async def race_for_claim(harness: Harness, record: Record, rivals: list[Intent]) -> list[Lease]:
    """All rivals claim what they found at the same time; the winners' leases."""
    claims = await asyncio.gather(*[harness.store.claim(record, rival) for rival in rivals])
    return [claim for claim in claims if claim is not None]


class StoreContract(
    RetentionContract, ObservedContract, ReconciliationContract, RestoreContract, WebhookContract, ParticipationContract, AcceptedContract
):
    """Subclass it with a fixture `harness` that yields a `Harness` over an empty store. Every test is a coroutine: a subclass may have one
    event loop for all.
    """

    async def test_no_contract_test_is_overridden(self) -> None:
        """A store passes the contract as it is written here, and each part of it is whole."""
        names = [name for cls in type(self).__mro__ for name in vars(cls) if name.startswith("test_")]
        assert len(names) == len(set(names))

    # reserve

    async def test_reserve_of_a_new_key_gives_a_lease(self, harness: Harness) -> None:
        """Who comes first owns the first attempt, and the record tells what it was made from."""
        wanted = intent(request_id="request-7")
        lease = await reserved(harness.store, wanted)
        assert (lease.key, lease.owner, lease.attempt, lease.duration) == (wanted.key, wanted.owner, 1, wanted.terms.lease)
        record = await found(harness.store, wanted.key)
        assert record.status is Status.IN_PROGRESS
        assert record.lease_live
        assert (record.record_id, record.owner, record.request_id) == (lease.record_id, wanted.owner, "request-7")
        assert record.fingerprint == wanted.fingerprint
        assert not record.expired
        assert record.expires_in is None
        assert record.expires_at_us is None
        assert record.response is None
        assert record.last_error_code is None

    async def test_fifty_racers_have_one_winner(self, harness: Harness) -> None:
        """Exactly one of any number of concurrent reserves gets the lease; the others see the winner's record."""
        key = fresh_key()
        answers = await asyncio.gather(*[harness.store.reserve(intent(key)) for _ in range(50)])
        (winner,) = [answer for answer in answers if isinstance(answer, Lease)]
        losers = [answer for answer in answers if isinstance(answer, Record)]
        assert len(losers) == 49
        assert {record.owner for record in losers} == {winner.owner}
        assert {record.status for record in losers} == {Status.IN_PROGRESS}
        assert all(record.lease_live for record in losers)

    async def test_many_keys_at_once_do_not_mix(self, harness: Harness) -> None:
        """Concurrent calls for different keys get each their own answer."""
        wanted = [intent() for _ in range(200)]
        leases = await asyncio.gather(*[reserved(harness.store, each) for each in wanted])
        assert [lease.owner for lease in leases] == [each.owner for each in wanted]
        await asyncio.gather(*[harness.store.complete(lease, response(lease.owner), KEPT) for lease in leases])
        again = await asyncio.gather(*[harness.store.reserve(intent(each.key)) for each in wanted])
        for each, record in zip(wanted, again, strict=True):
            assert isinstance(record, Record)
            assert record.response == response(each.owner)

    async def test_a_losing_reserve_changes_nothing(self, harness: Harness) -> None:
        """A duplicate neither extends the lease nor touches owner, fingerprint or version."""
        lease = await reserved(harness.store, intent())
        before = await found(harness.store, lease.key)
        await harness.advance(LEASE - 5)
        await harness.store.reserve(intent(lease.key, fingerprint("charge 99"), lease=1000.0, max_execution=1000.0))
        after = await found(harness.store, lease.key)
        assert (after.owner, after.version, after.fingerprint) == (before.owner, before.version, before.fingerprint)
        await harness.advance(10)
        assert not (await found(harness.store, lease.key)).lease_live

    async def test_reserve_shows_the_fingerprint_that_is_there(self, harness: Harness) -> None:
        """A request that means something else sees what the key stands for, with version and policy."""
        first = fingerprint("charge 10", policy="old", version=3)
        lease = await reserved(harness.store, intent(meaning=first))
        record = await harness.store.reserve(intent(lease.key, fingerprint("charge 20", policy="new", version=4)))
        assert isinstance(record, Record)
        assert record.fingerprint == first

    async def test_reserve_reports_what_find_reports(self, harness: Harness) -> None:
        """Both look at the same facts, in every state."""
        leases = [await completed(harness), await released(harness), await doubted(harness), await reserved(harness.store, intent())]
        for lease in leases:
            record = await found(harness.store, lease.key)
            again = await harness.store.reserve(intent(lease.key))
            assert isinstance(again, Record)
            assert (again.status, again.fingerprint, again.owner) == (record.status, record.fingerprint, record.owner)
            assert (again.response, again.expires_at_us) == (record.response, record.expires_at_us)
            assert (again.lease_live, again.expired, again.dead_lettered) == (record.lease_live, record.expired, record.dead_lettered)

    async def test_reserve_reports_the_fence_of_what_may_be_claimed_or_lapsed(self, harness: Harness) -> None:
        """A released, doubtful, lapsed or expired record is reported with its id, version and reason."""
        leases = [await completed(harness, retention=1.0), await released(harness), await doubted(harness)]
        leases.append(await reserved(harness.store, intent()))
        await harness.advance(LEASE + 1)
        for lease in leases:
            record = await found(harness.store, lease.key)
            again = await harness.store.reserve(intent(lease.key))
            assert isinstance(again, Record)
            assert (again.record_id, again.version, again.attempt) == (record.record_id, record.version, record.attempt)
            assert (again.status, again.last_error_code) == (record.status, record.last_error_code)
            assert (again.lease_live, again.expired) == (record.lease_live, record.expired)

    async def test_keys_live_inside_scopes(self, harness: Harness) -> None:
        """The same key of two callers is two records, and keys differ by case and by every octet."""
        keys = [fresh_key("payments:header.a"), fresh_key("payments:header.b")]
        keys += [type(keys[0])(keys[1].scope_id, keys[0].key), type(keys[0])(keys[0].scope_id, keys[0].key.upper())]
        for key in keys:
            assert isinstance(await harness.store.reserve(intent(key)), Lease)

    async def test_a_repeated_reserve_by_the_same_owner_is_told_of_its_record(self, harness: Harness) -> None:
        """A statement whose earlier sending landed after all reads its own record; that is no lease, which rests on a write alone."""
        wanted = intent()
        first = await reserved(harness.store, wanted)
        again = await harness.store.reserve(wanted)
        assert isinstance(again, Record)
        assert (again.owner, again.status, again.lease_live) == (first.owner, Status.IN_PROGRESS, True)
        assert await harness.store.renew([first]) == {first.owner}

    async def test_a_repeated_reserve_by_the_same_owner_after_its_lease_gets_the_record(self, harness: Harness) -> None:
        """A lease that has lapsed is not given out again, not even to its owner."""
        wanted = intent()
        await reserved(harness.store, wanted)
        await harness.advance(LEASE + 1)
        assert isinstance(await harness.store.reserve(wanted), Record)

    # bytes

    async def test_every_byte_of_a_body_survives(self, harness: Harness) -> None:
        """All 256 octets come back as they were."""
        lease = await completed(harness, response(bytes(range(256)) * 3))
        record = await found(harness.store, lease.key)
        assert record.response is not None
        assert record.response.body == bytes(range(256)) * 3

    async def test_a_large_body_survives(self, harness: Harness) -> None:
        """Megabytes are replayed by find and by reserve alike."""
        body = bytes(range(256)) * 8192
        lease = await completed(harness, response(body))
        record = await harness.store.reserve(intent(lease.key))
        assert isinstance(record, Record)
        assert record.response == response(body)
        assert (await found(harness.store, lease.key)).response == response(body)

    async def test_headers_survive_with_order_case_and_octets(self, harness: Harness) -> None:
        """Duplicate, empty and non-UTF-8 field lines come back in wire order; so does the reason phrase."""
        headers = (
            (b"Content-Type", b"application/json"),
            (b"X-A", b"1"),
            (b"x-a", b""),
            (b"X-Latin", b"\xe9\xff caf\xe9"),
            (b"X-A", b"1"),
            (b"ETag", b'"a, b"'),
        )
        answer = response(b"{}", status=299, reason=b"Cr\xe9\xe9", headers=headers)
        lease = await completed(harness, answer)
        assert (await found(harness.store, lease.key)).response == answer

    async def test_an_empty_body_is_not_an_absent_one(self, harness: Harness) -> None:
        """A body of no bytes is a body; one that was not kept is None, with the length and digest of the full one."""
        empty = await completed(harness, response(b""))
        absent = await completed(harness, response(b"x" * 100).without_body())
        stored_empty = (await found(harness.store, empty.key)).response
        stored_absent = (await found(harness.store, absent.key)).response
        assert stored_empty == response(b"")
        assert stored_empty is not None
        assert stored_empty.body == b""
        assert stored_absent == response(b"x" * 100).without_body()

    async def test_a_packed_body_survives_with_its_encoding(self, harness: Harness) -> None:
        """A store neither packs nor unpacks: find and reserve give the packed bytes, how they are packed, and the plain body's length."""
        plain = b'{"id": "ch_1"}' * 1000
        lease = await completed(harness, packed_response(plain))
        for record in (await found(harness.store, lease.key), await harness.store.reserve(intent(lease.key))):
            assert isinstance(record, Record)
            assert record.response == packed_response(plain)
            assert record.response.body is not None
            assert unpack(record.response.encoding, record.response.body, record.response.body_length) == plain

    async def test_a_large_packed_body_survives(self, harness: Harness) -> None:
        """So does one that is large even when packed."""
        answer = packed_response(random.Random(7).randbytes(300_000).hex().encode())
        assert answer.body is not None
        assert len(answer.body) > 300_000
        lease = await completed(harness, answer)
        again = await harness.store.reserve(intent(lease.key))
        assert isinstance(again, Record)
        assert again.response == answer
        assert (await found(harness.store, lease.key)).response == answer

    async def test_plain_and_packed_answers_do_not_mix(self, harness: Harness) -> None:
        """Each record of many that are asked for at once has its own encoding; what is absent has none."""
        answers = [response(), packed_response(), packed_response().without_body(), response(b"")] * 10
        leases = [await completed(harness, answer) for answer in answers]
        records = await asyncio.gather(*[harness.store.reserve(intent(lease.key)) for lease in leases])
        assert [record.response for record in records if isinstance(record, Record)] == answers

    async def test_a_new_life_forgets_how_the_last_answer_was_packed(self, harness: Harness) -> None:
        """After a packed answer has expired, the key's next answer is plain, and the other way round."""
        lease = await completed(harness, packed_response())
        for answer in (response(), packed_response(), response(b"").without_body()):
            await harness.advance(RETENTION + 1)
            taken = await harness.store.claim(await found(harness.store, lease.key), intent(lease.key))
            assert taken is not None
            assert (await harness.store.complete(taken, answer, KEPT)).transition is Transition.DONE
            assert (await found(harness.store, lease.key)).response == answer

    # complete

    async def test_complete_tells_when_the_record_expires(self, harness: Harness) -> None:
        """A completion is answered with the expiry that readers see."""
        lease = await reserved(harness.store, intent())
        settled = await harness.store.complete(lease, response(), KEPT)
        record = await found(harness.store, lease.key)
        assert settled.transition is Transition.DONE
        assert settled.expires_at_us == record.expires_at_us is not None
        assert record.expires_in == pytest.approx(RETENTION, abs=60)
        assert record.status is Status.COMPLETED
        assert not record.lease_live
        assert record.reconcile_in is None

    async def test_a_repeated_complete_is_already_done(self, harness: Harness) -> None:
        """A settle may be repeated after a lost reply: same answer, same expiry, nothing written."""
        lease = await completed(harness)
        before = await found(harness.store, lease.key)
        again = await harness.store.complete(lease, response(), Retention(RETENTION * 2))
        assert again.transition is Transition.ALREADY
        assert again.expires_at_us == before.expires_at_us
        assert (await found(harness.store, lease.key)).version == before.version

    async def test_a_repeated_complete_may_be_packed_otherwise(self, harness: Harness) -> None:
        """The same answer is the same however it is packed; what was stored first stays."""
        for first, second in [
            (packed_response(), response(b'{"id": "ch_1"}' * 1000)),
            (response(b'{"id": "ch_1"}' * 1000), packed_response()),
        ]:
            lease = await completed(harness, first)
            assert (await harness.store.complete(lease, second, KEPT)).transition is Transition.ALREADY
            assert (await found(harness.store, lease.key)).response == first

    async def test_completed_is_immutable(self, harness: Harness) -> None:
        """Nothing that its own owner or anybody else sends changes a completed record."""
        lease = await completed(harness)
        before = await found(harness.store, lease.key)
        assert (await harness.store.complete(lease, response(b"other"), KEPT)).transition is Transition.STALE
        assert (await harness.store.release(lease, "late", KEPT)).transition is Transition.STALE
        assert (await harness.store.doubt(lease, "late")).transition is Transition.STALE
        assert await harness.store.renew([lease]) == frozenset()
        assert not await harness.store.lapse(before)
        assert await harness.store.claim(before, intent(lease.key)) is None
        after = await found(harness.store, lease.key)
        assert (after.version, after.response, after.status) == (before.version, before.response, Status.COMPLETED)

    async def test_a_stranger_cannot_settle(self, harness: Harness) -> None:
        """Complete, release, doubt and renew need the attempt's own token."""
        lease = await reserved(harness.store, intent())
        before = await found(harness.store, lease.key)
        stranger = lease_under(lease)
        assert (await harness.store.complete(stranger, response(), KEPT)).transition is Transition.STALE
        assert (await harness.store.release(stranger, "late", KEPT)).transition is Transition.STALE
        assert (await harness.store.doubt(stranger, "late")).transition is Transition.STALE
        assert await harness.store.renew([stranger]) == frozenset()
        assert (await found(harness.store, lease.key)).version == before.version

    async def test_a_former_owner_cannot_settle_a_newer_attempt(self, harness: Harness) -> None:
        """After another has claimed the record, the last owner's writes are stale."""
        first = await released(harness)
        second = await harness.store.claim(await found(harness.store, first.key), intent(first.key))
        assert second is not None
        assert (await harness.store.complete(first, response(b"late"), KEPT)).transition is Transition.STALE
        assert (await harness.store.release(first, "late", KEPT)).transition is Transition.STALE
        assert (await harness.store.doubt(first, "late")).transition is Transition.STALE
        assert (await harness.store.complete(second, response(b"mine"), KEPT)).transition is Transition.DONE
        assert (await found(harness.store, first.key)).response == response(b"mine")

    async def test_the_owner_is_known_by_its_token_alone(self, harness: Harness) -> None:
        """A holder that never saw its reserve's reply, and so no record id, can still settle and renew."""
        lease = await reserved(harness.store, intent())
        blind = lease_under(lease, lease.owner)
        assert await harness.store.renew([blind]) == frozenset({lease.owner})
        assert (await harness.store.doubt(blind, "lost")).transition is Transition.DONE
        assert (await harness.store.release(blind, "lost", KEPT)).transition is Transition.DONE
        assert (await harness.store.complete(blind, response(), KEPT)).transition is Transition.DONE

    async def test_a_late_answer_completes_an_unknown_record(self, harness: Harness) -> None:
        """The attempt's own answer ends the doubt, also after the lease lapsed and the record was a dead letter."""
        lease = await reserved(harness.store, intent(reconcilable=False))
        await harness.advance(LEASE + 1)
        assert len(await harness.maintenance.sweep(10)) == 1
        assert (await found(harness.store, lease.key)).dead_lettered
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.DONE
        record = await found(harness.store, lease.key)
        assert (record.status, record.dead_lettered, record.response) == (Status.COMPLETED, False, response())
        assert (await harness.maintenance.counts()).dead_letters == 0

    async def test_a_late_answer_completes_a_released_record_that_nobody_claimed(self, harness: Harness) -> None:
        """Its last owner may still turn `failed_retryable` into `completed`."""
        lease = await released(harness)
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.DONE
        assert (await found(harness.store, lease.key)).status is Status.COMPLETED

    async def test_settling_nothing_is_missing(self, harness: Harness) -> None:
        """Without any record the answer says so: an earlier statement may still be on its way."""
        here = await reserved(harness.store, intent())
        lease = Lease(fresh_key(), here.record_id, here.owner, 1, here.started, here.duration)
        assert (await harness.store.complete(lease, response(), KEPT)).transition is Transition.MISSING
        assert (await harness.store.release(lease, "x", KEPT)).transition is Transition.MISSING
        assert (await harness.store.doubt(lease, "x")).transition is Transition.MISSING
        assert await harness.store.renew([lease]) == frozenset()
        assert await harness.store.find(lease.key) is None

    async def test_concurrent_settles_of_one_record_have_one_effect(self, harness: Harness) -> None:
        """However many settles race, one moves the record and the others learn of it."""
        lease = await reserved(harness.store, intent())
        rivals = [lease_under(lease) for _ in range(10)]
        answers = await asyncio.gather(
            *[harness.store.complete(lease, response(), KEPT) for _ in range(10)],
            *[harness.store.complete(rival, response(b"rival"), KEPT) for rival in rivals],
        )
        transitions = [answer.transition for answer in answers]
        assert transitions.count(Transition.DONE) == 1
        assert transitions[:10].count(Transition.ALREADY) == 9
        assert transitions[10:] == [Transition.STALE] * 10
        assert (await found(harness.store, lease.key)).response == response()

    # release and doubt

    async def test_release_makes_the_record_claimable(self, harness: Harness) -> None:
        """A released attempt leaves its reason and an expiry; repeating the release is harmless."""
        lease = await released(harness)
        record = await found(harness.store, lease.key)
        assert (record.status, record.last_error_code) == (Status.FAILED_RETRYABLE, "connection_refused")
        assert record.expires_in == pytest.approx(RETENTION, abs=60)
        assert record.reconcile_in is None
        assert (await harness.store.release(lease, "again", KEPT)).transition is Transition.ALREADY
        assert (await found(harness.store, lease.key)).version == record.version

    async def test_release_from_unknown(self, harness: Harness) -> None:
        """The owner's late word that nothing was sent ends the doubt."""
        lease = await doubted(harness)
        assert (await harness.store.release(lease, "lease_lapsed", KEPT)).transition is Transition.DONE
        record = await found(harness.store, lease.key)
        assert (record.status, record.last_error_code) == (Status.FAILED_RETRYABLE, "lease_lapsed")

    async def test_doubt_makes_the_record_unknown(self, harness: Harness) -> None:
        """A doubtful attempt keeps its reason and the instant from which a look may count; repeating the doubt is harmless."""
        lease = await doubted(harness)
        record = await found(harness.store, lease.key)
        assert (record.status, record.last_error_code) == (Status.UNKNOWN, "upstream_timeout")
        assert not record.dead_lettered
        assert not record.lease_live
        assert record.expires_in is None
        assert record.reconcile_in == pytest.approx(LEASE + MAX_EXECUTION, abs=60)
        assert (await harness.store.doubt(lease, "again")).transition is Transition.ALREADY
        after = await found(harness.store, lease.key)
        assert (after.version, after.last_error_code) == (record.version, "upstream_timeout")

    async def test_a_released_record_cannot_be_doubted(self, harness: Harness) -> None:
        """Doubt comes only from `in_progress`."""
        lease = await released(harness)
        assert (await harness.store.doubt(lease, "late")).transition is Transition.STALE

    async def test_an_unknown_record_without_a_probe_is_a_dead_letter_at_once(self, harness: Harness) -> None:
        """Nobody will ever look, so a person must."""
        lease = await doubted(harness, intent(reconcilable=False))
        assert (await found(harness.store, lease.key)).dead_lettered
        assert not (await found(harness.store, (await doubted(harness)).key)).dead_lettered

    # claim

    async def test_claim_of_a_released_record_is_the_next_attempt(self, harness: Harness) -> None:
        """The record life goes on: same id, attempt + 1, a new owner, its fingerprint, a lease of its own."""
        first = await released(harness)
        record = await found(harness.store, first.key)
        rival = intent(first.key, request_id="request-2", lease=99.0)
        second = await harness.store.claim(record, rival)
        assert second is not None
        assert (second.record_id, second.attempt, second.owner, second.duration) == (first.record_id, 2, rival.owner, 99.0)
        after = await found(harness.store, first.key)
        assert (after.status, after.attempt, after.request_id) == (Status.IN_PROGRESS, 2, "request-2")
        assert after.fingerprint == record.fingerprint
        assert after.lease_live
        assert after.expires_in is None
        await harness.advance(LEASE + 1)
        assert (await found(harness.store, first.key)).lease_live

    async def test_fifty_claims_of_a_released_record_have_one_winner(self, harness: Harness) -> None:
        """Exactly one of those who found it gets the next attempt."""
        lease = await released(harness)
        record = await found(harness.store, lease.key)
        (winner,) = await race_for_claim(harness, record, [intent(lease.key) for _ in range(50)])
        assert (await found(harness.store, lease.key)).owner == winner.owner

    async def test_fifty_claims_of_an_expired_record_have_one_winner(self, harness: Harness) -> None:
        """Exactly one of those who found it expired starts the new life."""
        lease = await completed(harness)
        await harness.advance(RETENTION + 1)
        record = await found(harness.store, lease.key)
        (winner,) = await race_for_claim(harness, record, [intent(lease.key) for _ in range(50)])
        after = await found(harness.store, lease.key)
        assert (after.owner, after.attempt, after.status) == (winner.owner, 1, Status.IN_PROGRESS)

    async def test_claim_of_an_expired_record_is_a_new_life(self, harness: Harness) -> None:
        """Another record id, attempt 1, another meaning if need be, and nothing of the old answer."""
        lease = await completed(harness)
        await harness.advance(RETENTION + 1)
        record = await found(harness.store, lease.key)
        other = fingerprint("charge 77", policy="newer", version=2)
        second = await harness.store.claim(record, intent(lease.key, other))
        assert second is not None
        assert second.record_id != lease.record_id
        assert second.attempt == 1
        after = await found(harness.store, lease.key)
        assert (after.record_id, after.fingerprint, after.response) == (second.record_id, other, None)
        assert after.version > record.version
        assert not after.expired

    async def test_claim_is_fenced_by_version(self, harness: Harness) -> None:
        """What was found must be what is there: a claim after another claim and release of the same record is refused."""
        lease = await released(harness)
        old = await found(harness.store, lease.key)
        second = await harness.store.claim(old, intent(lease.key))
        assert second is not None
        await harness.store.release(second, "again", KEPT)
        assert await harness.store.claim(old, intent(lease.key)) is None
        assert await harness.store.claim(await found(harness.store, lease.key), intent(lease.key)) is not None

    async def test_claim_is_fenced_by_expiry(self, harness: Harness) -> None:
        """A released record that has expired since it was found is another case: look again."""
        lease = await released(harness)
        record = await found(harness.store, lease.key)
        await harness.advance(RETENTION + 1)
        assert await harness.store.claim(record, intent(lease.key)) is None
        assert await harness.store.claim(await found(harness.store, lease.key), intent(lease.key)) is not None

    async def test_claim_needs_the_same_meaning(self, harness: Harness) -> None:
        """Another fingerprint under the same policy never takes a released record over, whatever the caller decided."""
        lease = await released(harness)
        record = await found(harness.store, lease.key)
        assert await harness.store.claim(record, intent(lease.key, fingerprint("charge 99"))) is None

    async def test_claim_under_another_policy_keeps_the_records_fingerprint(self, harness: Harness) -> None:
        """A record is compared under its own policy, so a claimer's fingerprint under a newer one proves nothing and is not kept."""
        lease = await released(harness)
        record = await found(harness.store, lease.key)
        assert await harness.store.claim(record, intent(lease.key, fingerprint("charge 10", policy="newer"))) is not None
        assert (await found(harness.store, lease.key)).fingerprint == record.fingerprint

    async def test_nothing_claims_a_record_in_progress_or_in_doubt(self, harness: Harness) -> None:
        """An attempt that may have executed is never taken over, lapsed or not."""
        running = await reserved(harness.store, intent())
        doubtful = await doubted(harness)
        await harness.advance(RETENTION * 100)
        for lease in (running, doubtful):
            record = await found(harness.store, lease.key)
            assert await harness.store.claim(record, intent(lease.key)) is None
            assert (await found(harness.store, lease.key)).version == record.version

    # leases

    async def test_lapse_needs_a_lapsed_lease(self, harness: Harness) -> None:
        """A live lease is left alone; a lapsed one makes the record unknown, once."""
        lease = await reserved(harness.store, intent())
        record = await found(harness.store, lease.key)
        assert not await harness.store.lapse(record)
        await harness.advance(LEASE + 1)
        assert await harness.store.lapse(record)
        assert not await harness.store.lapse(record)
        after = await found(harness.store, lease.key)
        assert (after.status, after.last_error_code) == (Status.UNKNOWN, "lease_expired")
        assert after.reconcile_in == pytest.approx(MAX_EXECUTION - 1, abs=60)

    async def test_lapse_after_a_renewal_is_refused(self, harness: Harness) -> None:
        """An owner that renewed after the record was found keeps it."""
        lease = await reserved(harness.store, intent())
        await harness.advance(LEASE + 1)
        record = await found(harness.store, lease.key)
        assert not record.lease_live
        assert await harness.store.renew([lease]) == frozenset({lease.owner})
        assert not await harness.store.lapse(record)
        assert (await found(harness.store, lease.key)).lease_live

    async def test_renew_moves_the_lease_and_the_instant_of_reconciliation(self, harness: Harness) -> None:
        """Both count from the renewal."""
        lease = await reserved(harness.store, intent())
        await harness.advance(LEASE - 5)
        assert await harness.store.renew([lease]) == frozenset({lease.owner})
        await harness.advance(LEASE - 5)
        assert (await found(harness.store, lease.key)).lease_live
        await harness.store.doubt(lease, "upstream_timeout")
        assert (await found(harness.store, lease.key)).reconcile_in == pytest.approx(MAX_EXECUTION + 5, abs=4)

    async def test_renew_takes_only_its_own_running_attempts(self, harness: Harness) -> None:
        """One call for all leases; those settled, in doubt or taken by others are not among the renewed."""
        running = [await reserved(harness.store, intent()) for _ in range(3)]
        ended = [await completed(harness), await released(harness), await doubted(harness)]
        forged = [lease_under(running[0])]
        renewed = await harness.store.renew([*ended, *running, *forged])
        assert renewed == frozenset(lease.owner for lease in running)
        assert await harness.store.renew([]) == frozenset()

    # expiry

    async def test_a_completed_record_expires_on_time(self, harness: Harness) -> None:
        """Before its retention is over it is there; after, it is reported as expired and still shown."""
        lease = await completed(harness, retention=600.0)
        await harness.advance(570)
        assert not (await found(harness.store, lease.key)).expired
        await harness.advance(60)
        record = await harness.store.reserve(intent(lease.key))
        assert isinstance(record, Record)
        assert record.expired
        assert record.expires_in == 0
        assert record.status is Status.COMPLETED

    async def test_retention_counts_from_completion(self, harness: Harness) -> None:
        """However long the upstream took, the answer is kept for the whole retention."""
        lease = await reserved(harness.store, intent())
        await harness.advance(10_000)
        await harness.store.complete(lease, response(), Retention(600.0))
        await harness.advance(570)
        assert not (await found(harness.store, lease.key)).expired

    async def test_the_stores_clock_is_told(self, harness: Harness) -> None:
        """After an answer the store has an upper estimate of its own clock, and expiries are on that clock."""
        lease = await reserved(harness.store, intent())
        settled = await harness.store.complete(lease, response(), Retention(600.0))
        now = harness.store.now_us()
        assert now is not None
        assert settled.expires_at_us is not None
        assert settled.expires_at_us - now == pytest.approx(600e6, abs=60e6)
        assert settled.expires_at_us - now <= 600e6

    # background work

    async def test_sweep_takes_lapsed_leases_only(self, harness: Harness) -> None:
        """A lapsed attempt becomes unknown and is told with its request; live, settled and doubtful ones are left alone."""
        lapsed = await reserved(harness.store, intent(request_id="request-9"))
        others = [await completed(harness), await released(harness), await doubted(harness)]
        await harness.advance(LEASE + 1)
        others.append(await reserved(harness.store, intent()))
        before = [(await found(harness.store, lease.key)).version for lease in others]
        (swept,) = await harness.maintenance.sweep(10)
        assert (swept.key, swept.route_id, swept.request_id, swept.attempt) == (lapsed.key, "create-charge", "request-9", 1)
        record = await found(harness.store, lapsed.key)
        assert (record.status, record.last_error_code) == (Status.UNKNOWN, "lease_expired")
        assert [(await found(harness.store, lease.key)).version for lease in others] == before
        assert list(await harness.maintenance.sweep(10)) == []

    async def test_sweep_is_limited(self, harness: Harness) -> None:
        """A batch holds no more than was asked for, and the rest comes next."""
        for _ in range(5):
            await reserved(harness.store, intent())
        await harness.advance(LEASE + 1)
        assert [len(await harness.maintenance.sweep(2)) for _ in range(4)] == [2, 2, 1, 0]

    async def test_a_sweep_makes_dead_letters_of_what_nobody_can_reconcile(self, harness: Harness) -> None:
        """As for any doubt, a route without a probe leaves it to a person at once."""
        lease = await reserved(harness.store, intent(reconcilable=False))
        other = await reserved(harness.store, intent())
        await harness.advance(LEASE + 1)
        await harness.maintenance.sweep(10)
        assert (await found(harness.store, lease.key)).dead_lettered
        assert not (await found(harness.store, other.key)).dead_lettered

    async def test_reap_takes_expired_records_only(self, harness: Harness) -> None:
        """Expired completed and released records go; nothing else does, and the key is free again."""
        gone = [await completed(harness, retention=60.0), await released(harness, retention=60.0)]
        kept = [await completed(harness), await released(harness)]
        await harness.advance(61)
        assert await harness.maintenance.reap(10) == 2
        assert [await harness.store.find(lease.key) for lease in gone] == [None, None]
        assert all([await harness.store.find(lease.key) for lease in kept])
        assert isinstance(await harness.store.reserve(intent(gone[0].key)), Lease)

    async def test_reap_never_takes_what_is_running_or_in_doubt(self, harness: Harness) -> None:
        """A record in progress, unknown or a dead letter outlives any time."""
        leases = [await reserved(harness.store, intent()), await doubted(harness), await doubted(harness, intent(reconcilable=False))]
        await harness.advance(RETENTION * 10_000)
        assert await harness.maintenance.reap(10) == 0
        assert all([await harness.store.find(lease.key) for lease in leases])

    async def test_reap_is_limited(self, harness: Harness) -> None:
        """A batch holds no more than was asked for, and the rest comes next."""
        for _ in range(5):
            await completed(harness, retention=1.0)
        await harness.advance(2)
        assert [await harness.maintenance.reap(2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_counts_tell_the_states(self, harness: Harness) -> None:
        """Figures for the gauges: records by state, dead letters among the unknown, and the oldest doubt's age."""
        assert (await harness.maintenance.counts()).unknown_oldest_age == 0
        await doubted(harness)
        await harness.advance(500)
        await doubted(harness, intent(reconcilable=False))
        for _ in range(2):
            await completed(harness)
        for _ in range(3):
            await released(harness)
        await reserved(harness.store, intent())
        counts = await harness.maintenance.counts()
        assert (counts.in_progress, counts.completed, counts.failed_retryable, counts.unknown, counts.dead_letters) == (1, 2, 3, 2, 1)
        assert counts.unknown_oldest_age == pytest.approx(500, abs=60)

    async def test_every_transition_raises_the_version(self, harness: Harness) -> None:
        """A verdict fenced by version can never hit a newer attempt."""
        lease = await reserved(harness.store, intent())
        versions = [(await found(harness.store, lease.key)).version]

        async def noted() -> Record:
            record = await found(harness.store, lease.key)
            versions.append(record.version)
            return record

        await harness.store.renew([lease])
        await noted()
        await harness.store.doubt(lease, "x")
        await noted()
        await harness.store.release(lease, "x", KEPT)
        second = await harness.store.claim(await noted(), intent(lease.key))
        assert second is not None
        await noted()
        await harness.advance(LEASE + 1)
        await harness.maintenance.sweep(10)
        await noted()
        await harness.store.complete(second, response(), KEPT)
        await noted()
        await harness.advance(RETENTION + 1)
        assert await harness.store.claim(await noted(), intent(lease.key)) is not None
        await harness.advance(LEASE + 1)
        assert await harness.store.lapse(await noted())
        await noted()
        changes = len([1 for before, after in itertools.pairwise(versions) if after > before])
        assert versions == sorted(versions)
        assert changes == 8

    # cancellation

    async def test_a_cancelled_reserve_leaves_a_whole_record_or_none(self, harness: Harness) -> None:
        """A caller that goes away changes nothing for others, and its statement lands whole or not at all."""
        wanted = [intent() for _ in range(20)]
        tasks = [asyncio.ensure_future(harness.store.reserve(each)) for each in wanted]
        for yields, task in enumerate(tasks[::2]):
            for _ in range(yields % 3):
                await asyncio.sleep(0)
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for each, answer in zip(wanted[1::2], answers[1::2], strict=True):
            assert isinstance(answer, Lease)
            assert answer.owner == each.owner
        for each in wanted[::2]:
            record = await harness.store.find(each.key)
            assert record is None or (record.owner, record.status) == (each.owner, Status.IN_PROGRESS)
