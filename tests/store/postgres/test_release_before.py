"""Beside the release before packed bodies: its statements on the present schema, its records in present hands, and ours in its."""

import asyncpg
import pytest

from gateway.core.model import Lease, Record
from gateway.ports import Transition
from gateway.store.migrate import migrate, migrations
from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import KEPT, RETENTION, age_records, found, intent, packed_response, reserved, response
from tests.store.postgres.before import Before

MIGRATION = 1
"""The last one of that release."""

READABLE = 1
"""The response schema version that the release before reads; it refuses a record of any other."""


async def test_its_records_are_read_and_its_statements_go_on(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A gateway that runs through the migration keeps working as prepared, and what it writes before and after is read as it was."""
    first, second, third = [await before.reserved(intent()) for _ in range(3)]
    answers = {first.key: response(b"first"), second.key: response(b"second"), third.key: response(b"x" * 9000)}
    assert await before.complete(first, answers[first.key]) == "done"
    assert await migrate(old_database) == [step.name for step in migrations()[1:]]
    assert await before.complete(second, answers[second.key]) == "done"
    assert await before.complete(third, answers[third.key]) == "done"
    assert await before.complete(second, answers[second.key]) == "already"
    for key, answer in answers.items():
        assert (await found(old_store, key)).response == answer
        again = await old_store.reserve(intent(key))
        assert isinstance(again, Record)
        assert again.response == answer
    released = await before.reserved(intent())
    assert await before.release(released) == "done"
    assert await old_store.claim(await found(old_store, released.key), intent(released.key)) is not None


async def test_it_replays_our_plain_answers_and_refuses_our_packed_ones(
    before: Before, old_store: PostgresStore, old_database: str
) -> None:
    """It reads what it can read, and never takes packed bytes for an answer: their schema version is one that it does not know."""
    await migrate(old_database)
    plain, packed = await reserved(old_store, intent()), await reserved(old_store, intent())
    await old_store.complete(plain, response(b"plain"), KEPT)
    await old_store.complete(packed, packed_response(), KEPT)
    row = await before.find(plain.key)
    assert (row["response_schema_version"], row["response_body"]) == (READABLE, b"plain")
    assert (await before.find(packed.key))["response_schema_version"] != READABLE
    met = await before.reserve(intent(packed.key))
    assert not isinstance(met, Lease)
    assert met["response_schema_version"] != READABLE


async def test_its_answer_in_a_row_that_held_a_packed_one_is_plain(before: Before, old_store: PostgresStore, old_database: str) -> None:
    """A new life that it gives to our row leaves the column behind; its answer is read by its schema version, and ours after it as ours."""
    await migrate(old_database)
    ours = await reserved(old_store, intent())
    await old_store.complete(ours, packed_response(), KEPT)
    await age_records(old_database, RETENTION + 1)
    theirs = await before.claim("new_life", await found(old_store, ours.key), intent(ours.key))
    assert await before.complete(theirs, response(b"theirs")) == "done"
    assert (await found(old_store, ours.key)).response == response(b"theirs")
    await age_records(old_database, RETENTION + 1)
    again = await old_store.claim(await found(old_store, ours.key), intent(ours.key))
    assert again is not None
    assert (await old_store.complete(again, packed_response(), KEPT)).transition is Transition.DONE
    assert (await found(old_store, ours.key)).response == packed_response()


async def test_a_packed_answer_without_a_body_cannot_be_stored(before: Before, old_database: str) -> None:
    """What is said to be packed must be there, and packed somehow."""
    await migrate(old_database)
    lease = await before.reserved(intent())
    await before.complete(lease, response())
    for change in ("response_body_encoding = 1, response_body = NULL", "response_body_encoding = 0", "response_body_encoding = -1"):
        with pytest.raises(asyncpg.CheckViolationError):
            await before.connection.execute(f"UPDATE gateway_records SET response_schema_version = 2, {change}")
