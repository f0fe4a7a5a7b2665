import asyncio
import json
from dataclasses import replace
from random import Random
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import RecordKey
from gateway.ports import TOMBSTONE_AFTER, Retention, Transition
from gateway.store.postgres import PostgresStore, ScopeClaim
from gateway.store.postgres.meanings import NAMED, GuardedRoute, routes_text
from gateway.store.postgres.registry import COUNTED, LOCK
from tests.store.contract.harness import KEPT, RETENTION, age_records, intent, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until_waiting

CLAIM = ScopeClaim("payments", "header authorization", "header idempotency-key, lenient", "check-1")
CHANGED = replace(CLAIM, principal="none", secret_check="check-2")
POLICY = (b"p" * 32, 1, "body=auto")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

COPIES = """
WITH copies AS (SELECT r AS record, n FROM gateway_records r, generate_series(1, $1::int) AS n)
INSERT INTO gateway_records
SELECT (jsonb_populate_record(record, jsonb_build_object(
    'idempotency_key', 'copy-' || n, 'record_id', gen_random_uuid(),
    'expires_at', CASE WHEN n = $1::int THEN '2999-01-01T00:00:00Z' ELSE (record).expires_at::text END
))).*
FROM copies
"""


async def test_a_new_scope_is_registered_and_compares_equal_after(make_store: MakeStore) -> None:
    """The same configuration registers again and again without a word."""
    registry = make_store().registry
    for _ in range(2):
        assert await registry.register([CLAIM, CLAIM], [POLICY, POLICY]) == []
    assert await registry.register([], []) == []


async def test_fingerprint_policies_are_found_by_digest(make_store: MakeStore) -> None:
    """A record's own policy can be read back as long as the database knows it."""
    registry = make_store().registry
    await registry.register([], [POLICY])
    assert await registry.fingerprint_policy(POLICY[0]) == (1, "body=auto")
    assert await registry.fingerprint_policy(b"?") is None


async def test_a_change_with_live_records_is_refused(make_store: MakeStore) -> None:
    """The message names the scope and what changed; nothing is written, not even what is new."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    await reserved(store, intent(RecordKey("payments:header.x", "k")))
    for _ in range(2):
        (message,) = await store.registry.register([CHANGED], [POLICY])
        assert message == (
            "scope 'payments': the principal changed from 'header authorization' to 'none', the digest secret changed; 1 record is live, "
            "the last of which expires never by itself (in progress or unknown): their retries would execute again. Undo the change, "
            "or restart once with --accept-scope-change if their retries may execute again"
        )
    assert await store.registry.fingerprint_policy(POLICY[0]) is None


async def test_a_change_can_be_accepted(make_store: MakeStore) -> None:
    """Whoever says so may move a scope: then the new meaning is the registered one."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    await reserved(store, intent(RecordKey("payments:header.x", "k")))
    assert await store.registry.register([CHANGED], [], accept_change=True) == []
    assert await store.registry.register([CHANGED], []) == []
    assert len(await store.registry.register([CLAIM], [])) == 1


async def test_a_change_without_live_records_is_written(make_store: MakeStore, database: str) -> None:
    """Expired records, and those of scopes whose names merely begin alike, are no obstacle."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    lease = await reserved(store, intent(RecordKey("payments:header.x", "k")))
    assert (await store.complete(lease, response(), KEPT)).transition is Transition.DONE
    for scope in ("payments-eu:none", "payment:none", "paymentsx:none", "payments"):
        await reserved(store, intent(RecordKey(scope, "k")))
    assert len(await store.registry.register([CHANGED], [])) == 1
    await age_records(database, RETENTION + 1)
    assert await store.registry.register([CHANGED], []) == []
    assert await store.registry.register([CHANGED], []) == []


async def test_a_record_in_doubt_is_live(make_store: MakeStore, database: str) -> None:
    """However old, an unknown record's retries must find it."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    lease = await reserved(store, intent(RecordKey("payments:header.x", "k"), reconcilable=False))
    await store.doubt(lease, "upstream_timeout")
    await age_records(database, 1e6)
    assert len(await store.registry.register([CHANGED], [])) == 1


async def test_concurrent_starts_agree(make_store: MakeStore) -> None:
    """Many processes that start at once register the same scopes without an error."""
    stores = [make_store() for _ in range(4)]
    claims = [replace(CLAIM, scope=f"scope-{n}") for n in range(20)]
    answers = await asyncio.gather(*[store.registry.register(claims, [POLICY]) for store in stores])
    assert answers == [[]] * 4


PAY: GuardedRoute = ("POST", "/v1/pay", "api")
REFUND: GuardedRoute = ("POST", "/v1/refund", "api")


def claim(scope: str, *routes: GuardedRoute) -> ScopeClaim:
    return replace(CLAIM, scope=scope, routes=routes_text(routes))


async def live(store: PostgresStore, scope: str, key: str = "k") -> None:
    """A completed record in this scope."""
    lease = await reserved(store, intent(RecordKey(f"{scope}:none", key)))
    await store.complete(lease, response(), KEPT)


async def test_a_message_counts_and_says_when_the_last_expires(make_store: MakeStore, connection: Connection) -> None:
    """Key settings in words, how many records live, and an instant to wait for."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    for key in ("a", "b"):
        await live(store, "payments", key)
    last = await connection.fetchval("SELECT max(expires_at) FROM gateway_records")
    (message,) = await store.registry.register([replace(CLAIM, key_settings="header x-key, raw")], [])
    assert message == (
        "scope 'payments': the key settings changed from 'header idempotency-key, lenient' to 'header x-key, raw'; 2 records are live, "
        f"the last of which expires at {last:%Y-%m-%d %H:%M:%S} UTC: their retries would execute again. Undo the change, wait until then, "
        "or restart once with --accept-scope-change if their retries may execute again"
    )


@pytest.mark.parametrize("endless", [False, True])
async def test_many_records_are_not_counted_to_their_end(make_store: MakeStore, connection: Connection, *, endless: bool) -> None:
    """Above the bound the count says "at least"; the last expiry, and a record without one, are still those of all."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    await live(store, "payments", "a")
    await connection.execute(COPIES, COUNTED + 5)
    if endless:
        await reserved(store, intent(RecordKey("payments:none", "zzz")))
    (message,) = await store.registry.register([CHANGED], [])
    assert f"at least {COUNTED} records are live" in message
    assert ("never by itself" if endless else "expires at 2999-01-01 00:00:00 UTC") in message
    assert "check-1" not in message
    assert "check-2" not in message


async def test_a_renamed_scope_is_refused_while_its_records_live(make_store: MakeStore, database: str) -> None:
    """A route that a scope lists may not go to another one; once nothing lives, it may."""
    registry = (store := make_store()).registry
    await registry.register([claim("pay", PAY)], [])
    await live(store, "pay")
    (message,) = await registry.register([claim("payments", PAY)], [POLICY])
    assert message.startswith("scope 'pay': route POST /v1/pay (upstream api) moved to scope 'payments'; 1 record is live")
    assert await registry.fingerprint_policy(POLICY[0]) is None
    await age_records(database, RETENTION + 1)
    assert await registry.register([claim("payments", PAY)], []) == []


def at(host: str) -> GuardedRoute:
    """`PAY` on one host."""
    return (PAY[0], host + PAY[1], PAY[2])


TAKEN = [
    pytest.param([claim("a", PAY)], [claim("b", at("b.test")), claim("a", PAY)], "/v1/pay", id="a host gets a scope of its own"),
    pytest.param([claim("a", PAY)], [claim("a", at("a.test")), claim("b", at("b.test"))], "/v1/pay", id="all hosts do"),
    pytest.param([claim("a", at("*.test"))], [claim("b", at("b.test")), claim("a", at("*.test"))], "*.test/v1/pay", id="one of many"),
    pytest.param([claim("a", at("a.test"))], [claim("b", PAY)], "a.test/v1/pay", id="a host loses its own"),
    pytest.param([claim("a", at("a.test"))], [claim("b", at("*.test"))], "a.test/v1/pay", id="to a wider one"),
]


@pytest.mark.parametrize(("before", "after", "moved"), TAKEN)
async def test_a_host_that_goes_to_another_scope_is_refused(
    make_store: MakeStore, before: list[ScopeClaim], after: list[ScopeClaim], moved: str
) -> None:
    """A route for certain hosts takes the retries of the one that had them, however that was listed; once accepted it is told no more."""
    registry = (store := make_store()).registry
    await registry.register(before, [])
    assert await registry.register(before, []) == []
    await live(store, "a")
    (message,) = await registry.register(after, [])
    assert message.startswith(f"scope 'a': route POST {moved} (upstream api) moved to scope 'b'")
    assert await registry.register(after, [], accept_change=True) == []
    await live(store, "b", "k2")
    assert await registry.register(after, []) == []


KEPT_APART = [
    pytest.param([claim("a", at("a.test"))], [claim("a", at("a.test")), claim("b", PAY)], id="a wider one behind it"),
    pytest.param([claim("a", at("a.test"))], [claim("a", at("a.test")), claim("b", at("b.test"))], id="another host"),
    pytest.param([claim("a", PAY)], [claim("a", at("a.test"), PAY)], id="the same scope"),
    pytest.param([claim("a", at("*.test"))], [claim("a", at("*.test")), claim("b", at("test"))], id="not below"),
]


@pytest.mark.parametrize(("before", "after"), KEPT_APART)
async def test_a_host_that_takes_nothing_away(make_store: MakeStore, before: list[ScopeClaim], after: list[ScopeClaim]) -> None:
    """What no retry of a live record can meet is no move."""
    registry = (store := make_store()).registry
    await registry.register(before, [])
    await live(store, "a")
    assert await registry.register(after, []) == []


async def test_a_further_header_for_the_key_is_no_change(make_store: MakeStore) -> None:
    """Live keys are still found under the name that they came in; without a name that was there, or under another grammar, they are not."""
    registry = (store := make_store()).registry
    one, two, other = (replace(CLAIM, key_settings=f"header {names}, lenient") for names in ("b", "a or b", "a"))
    await registry.register([one], [])
    await live(store, CLAIM.scope)
    assert await registry.register([two], []) == []
    for claim in (
        one,
        other,
        replace(two, key_settings="header a or b or c, raw"),
        replace(two, key_settings="query parameter a or b or c, lenient"),
    ):
        (message,) = await registry.register([claim], [])
        assert "the key settings changed from 'header a or b, lenient'" in message


async def test_an_accepted_move_is_told_once(make_store: MakeStore) -> None:
    """The next start needs no flag, whereas the old map is now what would move live records."""
    registry = (store := make_store()).registry
    await registry.register([claim("pay", PAY)], [])
    await live(store, "pay")
    assert await registry.register([claim("payments", PAY)], [], accept_change=True) == []
    assert await registry.register([claim("payments", PAY)], []) == []
    await live(store, "payments")
    assert await registry.register([claim("payments", PAY)], []) == []
    assert len(await registry.register([claim("pay", PAY)], [])) == 1


async def test_a_route_that_changes_scope_among_others_is_refused(make_store: MakeStore) -> None:
    """Also where both scopes keep their names: one message for each pair of scopes."""
    registry = (store := make_store()).registry
    await registry.register([claim("a", PAY), claim("b", REFUND)], [])
    await live(store, "a")
    assert len(await registry.register([claim("a", REFUND), claim("b", PAY)], [])) == 1
    await live(store, "b")
    first, second = await registry.register([claim("a", REFUND), claim("b", PAY)], [])
    assert first.startswith("scope 'a': route POST /v1/pay (upstream api) moved to scope 'b'")
    assert second.startswith("scope 'b': route POST /v1/refund (upstream api) moved to scope 'a'")
    many = [("POST", f"/v1/{n}", "api") for n in range(NAMED + 2)]
    await registry.register([claim("many", *many)], [])
    await live(store, "many")
    (message,) = await registry.register([claim("other", *many)], [])
    assert "scope 'many': routes POST /v1/0 (upstream api), POST /v1/1" in message
    assert " and 2 more moved to scope 'other'" in message


async def test_a_route_that_left_while_nothing_lived_does_not_come_back(make_store: MakeStore) -> None:
    """Records that the old scope gets later, through its other routes, are no obstacle to the move that was written."""
    registry = (store := make_store()).registry
    await registry.register([claim("a", PAY, REFUND)], [])
    moved = [claim("a", PAY), claim("b", REFUND)]
    assert await registry.register(moved, []) == []
    await live(store, "a")
    assert await registry.register(moved, []) == []


async def test_two_maps_may_share_a_scope(make_store: MakeStore) -> None:
    """What the other map claimed stays listed: its own later rename is still seen, and a map without the route is no move."""
    registry = (store := make_store()).registry
    await registry.register([claim("shared", PAY)], [])
    await live(store, "shared")
    assert await registry.register([claim("shared", REFUND)], []) == []
    assert len(await registry.register([claim("renamed", PAY)], [])) == 1
    assert len(await registry.register([claim("renamed", REFUND)], [])) == 1


async def test_a_scope_of_another_map_is_nobodys_business(make_store: MakeStore) -> None:
    """Neither missing scopes nor the same path of another upstream are drift."""
    registry = (store := make_store()).registry
    await registry.register([claim("pay", PAY)], [])
    await live(store, "pay")
    assert await registry.register([claim("mine", REFUND, ("POST", "/v1/pay", "other"))], []) == []
    assert await registry.register([], []) == []
    assert len(await registry.register([claim("new", PAY)], [])) == 1


async def test_drifts_tells_what_register_would_refuse(make_store: MakeStore, connection: Connection) -> None:
    """The same messages, and nothing written, whatever they are."""
    registry = (store := make_store()).registry
    await registry.register([claim("pay", PAY)], [])
    await live(store, "pay")
    before = await connection.fetch("SELECT * FROM gateway_scopes")
    for claims in ([claim("renamed", PAY)], [replace(claim("pay", PAY), principal="none")], [claim("new")]):
        told = await registry.drifts(claims)
        assert await connection.fetch("SELECT * FROM gateway_scopes") == before
        assert bool(told) == (claims[0].scope != "new")
        if told:
            assert await registry.register(claims, []) == told


@given(st.lists(st.tuples(st.text(), st.text(), st.text())), st.randoms(use_true_random=False))
def test_the_text_of_routes_is_canonical(routes: list[GuardedRoute], random: Random) -> None:
    """Order and repetition do not count, and nothing else is lost."""
    shuffled = [*routes, *routes]
    random.shuffle(shuffled)
    assert routes_text(shuffled) == routes_text(routes)
    assert {tuple(route) for route in json.loads(routes_text(routes))} == set(routes)


async def test_a_scope_that_somebody_serves_keeps_its_meaning(make_store: MakeStore) -> None:
    """Without a single record: the other process could make one at any moment. It is over when that one lets go."""
    registry = make_store().registry
    first, second = uuid4(), uuid4()
    assert await registry.register([CLAIM], [], holder=first) == []
    for refusal in (await registry.register([CHANGED], [], holder=second), await registry.drifts([CHANGED])):
        (message,) = refusal
        assert message.startswith(
            "scope 'payments': the principal changed from 'header authorization' to 'none', the digest secret changed; 1 other process "
            "serves it as it was: a key would execute once in each meaning. Undo the change, or stop them first (one that was killed "
            "counts until "
        )
    assert await registry.register([CLAIM], [], holder=second) == []
    assert "2 other processes serve it as it was" in (await registry.register([CHANGED], [], holder=uuid4()))[0]
    await registry.let_go(first)
    assert await registry.register([CHANGED], [], holder=second) == [], "one's own hold is in nobody's way"


async def test_a_hold_ends_by_itself(make_store: MakeStore, connection: Connection) -> None:
    """A process that was killed does not keep its scopes for ever; one that lives extends its hold."""
    registry = make_store().registry
    holder = uuid4()
    await registry.register([CLAIM], [], holder=holder)
    await connection.execute("UPDATE gateway_scope_holders SET held_until = now()")
    await registry.hold([CLAIM], holder)
    assert len(await registry.register([CHANGED], [], holder=uuid4())) == 1
    await connection.execute("UPDATE gateway_scope_holders SET held_until = now()")
    assert await registry.register([CHANGED], [], holder=uuid4()) == []


async def test_a_route_that_somebody_serves_does_not_move(make_store: MakeStore) -> None:
    """Into another scope it may go when nobody serves it in the old one. Whoever serves another route of that scope is not disturbed."""
    registry = make_store().registry
    paying, refunding = uuid4(), uuid4()
    await registry.register([claim("old", PAY)], [], holder=paying)
    await registry.register([claim("old", REFUND)], [], holder=refunding)
    assert "1 other process serves it" in (await registry.register([claim("new", PAY)], [], holder=uuid4()))[0]
    await registry.let_go(paying)
    assert await registry.register([claim("new", PAY)], [], holder=uuid4()) == []


async def test_of_two_meanings_that_come_at_once_one_wins(make_store: MakeStore) -> None:
    """The first writer wins, also over an empty database, and only one is first."""
    registries = [make_store().registry for _ in range(6)]
    claims = [replace(CLAIM, secret_check=f"check-{n}") for n in range(len(registries))]
    answers = await asyncio.gather(
        *[registry.register([one], [], holder=uuid4()) for registry, one in zip(registries, claims, strict=True)]
    )
    assert sorted(len(answer) for answer in answers) == [0, 1, 1, 1, 1, 1]


async def test_what_remembers_a_record_counts_as_live(make_store: MakeStore, database: str) -> None:
    """A late retry meets its expired record, and then its tombstone, only in the scope that it was in. So both forbid a change."""
    store = make_store()
    await store.registry.register([CLAIM], [])
    lease = await reserved(store, intent(RecordKey("payments:none", "k")))
    await store.complete(lease, response(), Retention(RETENTION, gone_for=2 * RETENTION))
    await age_records(database, RETENTION + 1)
    (message,) = await store.registry.register([CHANGED], [])
    assert "1 record is live, the last of which expires at " in message
    await age_records(database, TOMBSTONE_AFTER)
    assert await store.reap(10) == 1
    (message,) = await store.registry.register([CHANGED], [])
    assert "1 tombstone is live, the last of which expires at " in message
    assert await store.registry.register([replace(CHANGED, scope="other")], []) == []
    assert await store.registry.register([replace(CLAIM, scope="other")], []) == [], "of another scope"
    await age_records(database, 2 * RETENTION)
    assert await store.registry.register([CHANGED], []) == []


async def test_a_tombstone_of_an_unknown_scope_counts_for_every_one(make_store: MakeStore, connection: Connection) -> None:
    """The release before wrote none."""
    registry = make_store().registry
    await registry.register([CLAIM], [])
    await connection.execute("INSERT INTO gateway_tombstones VALUES (sha256('a'), 'r', now() + interval '1 hour')")
    assert "1 tombstone is live" in (await registry.register([CHANGED], []))[0]


async def test_a_look_tells_what_is_otherwise(make_store: MakeStore) -> None:
    """The digest is another one as soon as anything is, and the differences name what concerns one's own scopes."""
    registry = (make_store()).registry
    mine, holder = [claim("pay", PAY), claim("refund", REFUND)], uuid4()
    await registry.register(mine, [], holder=holder)
    digest = await registry.hold(mine, holder)
    assert await registry.hold(mine, holder) == digest
    assert await registry.differences(mine) == {}
    await registry.register([replace(claim("pay", PAY), secret_check="other"), claim("new", REFUND)], [], accept_change=True)
    assert await registry.hold(mine, holder) != digest
    assert await registry.differences([*mine, claim("lost")]) == {
        "pay": "the digest secret changed",
        "refund": "route POST /v1/refund (upstream api) moved to scope 'new'",
        "lost": "it is not registered any more",
    }


async def test_a_look_waits_for_a_registration_that_is_under_way(make_store: MakeStore, connection: Connection) -> None:
    """Else it would hold what is being changed: each of the two sees the other."""
    registry, holder = make_store().registry, uuid4()
    await registry.register([CLAIM], [], holder=holder)
    digest = await registry.hold([CLAIM], holder)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        looking = asyncio.create_task(registry.hold([CLAIM], holder))
        await until_waiting(connection)
        await connection.execute("UPDATE gateway_scopes SET secret_check = 'other'")
    assert await looking != digest
