"""The functions by which an upstream completes records in its own transactions."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.core.attempt_token import AttemptToken, write_token
from gateway.core.field_names import FRAMING, HOP_BY_HOP, OURS, PER_EXCHANGE, PER_EXCHANGE_FAMILIES
from gateway.core.model import Lease, Record, Status
from gateway.core.recovery_point import RecoveryPoint
from gateway.devtools.embedded import PostgresServer
from gateway.ports import Retention, Transition
from gateway.ports.accepted import Parked
from gateway.ports.participation import Participant
from gateway.store import co_commit
from gateway.store.migrate import MigrationError
from gateway.store.postgres import PostgresStore
from tests.store.contract.accepted_contract import PROMISE
from tests.store.contract.harness import KEPT, LEASE, MAX_EXECUTION, RETENTION, age_records, found, intent, remembered, reserved, response
from tests.store.postgres.conftest import MakeStore
from tests.store.postgres.watch import until_waiting
from tests.support.services import Services

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

ROUTE = Participant("create-charge", LEASE, Retention(RETENTION, gone_for=7.0, keep_for=9.0), 1000, co_commit=True)
BODY = b'{"ride": "ri_1"}'


@pytest.fixture
async def store(make_store: MakeStore) -> PostgresStore:
    store = make_store()
    await store.participation.register([ROUTE])
    return store


@pytest.fixture
async def upstream(database: str, store: PostgresStore) -> AsyncIterator["Connection"]:
    """The upstream's own connection: of a role that may call the functions and nothing else, with a table of its own."""
    role = f"rides_{secrets.token_hex(4)}"
    admin = await asyncpg.connect(database)
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; CREATE TABLE rides (id text PRIMARY KEY); GRANT ALL ON rides TO {role}")
    await co_commit.install(database, role)
    at = urlsplit(database)
    connection = await asyncpg.connect(host=at.hostname, port=at.port, user=role, password="x", database=at.path[1:])
    yield connection
    await connection.close()
    await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    await admin.close()


def token(lease: Lease) -> str:
    return write_token(AttemptToken(lease.key, lease.owner))


async def complete(
    connection: "Connection", lease: Lease, status: int | None = 201, headers: object = (), body: bytes | None = BODY
) -> None:
    await connection.execute("SELECT gateway_complete($1, $2, $3, $4)", token(lease), status, json.dumps(headers), body)


async def answer_of(store: PostgresStore, lease: Lease) -> Record:
    """What a retry finds."""
    again = await store.reserve(intent(lease.key))
    assert isinstance(again, Record)
    return again


async def test_domain_write_and_answer_commit_together(store: PostgresStore, upstream: "Connection") -> None:
    """A retry gets the answer with its fields, as the route's retention says, from the commit on."""
    lease = await reserved(store, intent())
    async with upstream.transaction():
        await upstream.execute("SELECT gateway_fence($1)", token(lease))
        await upstream.execute("INSERT INTO rides VALUES ('ri_1')")
        await complete(upstream, lease, headers=[["Content-Type", "application/json"], ["X-Ride", "grün"], ["Set-Cookie", "a=b"]])
        assert (await found(store, lease.key)).status is Status.IN_PROGRESS
    again = await answer_of(store, lease)
    assert again.status is Status.COMPLETED
    assert again.response is not None
    assert (again.response.status, again.response.reason, again.response.body) == (201, b"Created", BODY)
    names = [name for name, _ in again.response.headers]
    assert names == [b"Content-Type", b"X-Ride", b"Date"]
    assert dict(again.response.headers)[b"X-Ride"] == "grün".encode("latin-1")
    assert again.expires_in == pytest.approx(RETENTION, abs=5)
    shown = await store.operations.show(lease.key)
    assert shown is not None
    assert shown.completed_by == "upstream"
    assert (await store.complete(lease, again.response, KEPT)).transition is Transition.ALREADY
    for other in (response(BODY), response(b"other")):
        assert (await store.complete(lease, other, KEPT)).transition is Transition.STALE
    assert (await store.doubt(lease, "x")).transition is Transition.STALE
    assert (await store.release(lease, "x", KEPT)).transition is Transition.STALE


async def test_a_roll_back_leaves_nothing(store: PostgresStore, upstream: "Connection") -> None:
    """Neither the domain write nor the answer, and the attempt goes on."""
    lease = await reserved(store, intent())
    transaction = upstream.transaction()
    await transaction.start()
    await upstream.execute("INSERT INTO rides VALUES ('ri_2')")
    await upstream.execute("SELECT gateway_advance($1, 'ride_created', '{}')", token(lease))
    await complete(upstream, lease)
    await transaction.rollback()
    assert await upstream.fetchval("SELECT count(*) FROM rides WHERE id = 'ri_2'") == 0
    progress = await store.participation.progress(AttemptToken(lease.key, lease.owner))
    assert progress is not None
    assert progress.point is None
    assert (await store.complete(lease, response(), KEPT)).transition is Transition.DONE


async def test_points_commit_with_the_write_that_they_stand_for(store: PostgresStore, database: str, upstream: "Connection") -> None:
    """As if told over HTTP, once the transaction has committed; the lease is renewed."""
    lease = await reserved(store, intent(lease=1.0))
    async with upstream.transaction():
        await upstream.execute("SELECT gateway_advance($1, 'ride_created', $2)", token(lease), '{"ride": "ri_1", "é": 1.50}')
    progress = await store.participation.progress(AttemptToken(lease.key, lease.owner))
    assert progress is not None
    assert progress.point is not None
    assert progress.point.label == "ride_created"
    assert json.loads(progress.point.data or "") == {"ride": "ri_1", "é": 1.5}
    assert progress.lease_left == pytest.approx(LEASE, abs=5)
    assert [(line.source, line.what) for line in await remembered(database, lease.key)] == [("upstream", "advanced")]


CALLS = ("gateway_fence($1)", "gateway_advance($1, 'x')", "gateway_complete($1, 200)")


@pytest.mark.parametrize("call", CALLS)
async def test_who_is_superseded(store: PostgresStore, database: str, upstream: "Connection", call: str) -> None:
    """An attempt that has ended, one whose record another owns, one that was freed, one that observes: IG001, and nothing changes."""
    done, freed = [await reserved(store, intent()) for _ in range(2)]
    observed = await reserved(store, intent(observed=True))
    await store.complete(done, response(), KEPT)
    await store.release(freed, "x", KEPT)
    taken = await reserved(store, intent(reexecute=True))
    await store.doubt(taken, "x")
    await age_records(database, LEASE + MAX_EXECUTION + 1)
    assert await store.claim(await found(store, taken.key), intent(taken.key, reexecute=True)) is not None
    for lease in (done, freed, observed, taken):
        before = await found(store, lease.key)
        with pytest.raises(asyncpg.PostgresError) as raised:
            await upstream.execute(f"SELECT {call}", token(lease))
        assert raised.value.sqlstate == "IG001"
        assert (await found(store, lease.key)).version == before.version


async def test_a_doubt_may_still_be_completed(store: PostgresStore, upstream: "Connection") -> None:
    """The upstream was slower than the gateway waits, and is alive: its commit ends the doubt, a dead letter's too."""
    for reconcilable in (True, False):
        lease = await reserved(store, intent(reconcilable=reconcilable))
        await store.doubt(lease, "upstream_timeout")
        await upstream.execute("SELECT gateway_advance($1, 'nearly')", token(lease))
        assert (await found(store, lease.key)).status is Status.UNKNOWN
        await complete(upstream, lease)
        assert (await answer_of(store, lease)).status is Status.COMPLETED


async def test_nobody_takes_over_between_fence_and_commit(store: PostgresStore, database: str, upstream: "Connection") -> None:
    """Sweeper and renewal skip the record meanwhile, though its lease has lapsed."""
    lease = await reserved(store, intent())
    await age_records(database, LEASE + 1)
    async with upstream.transaction():
        await upstream.execute("SELECT gateway_fence($1)", token(lease))
        assert await store.sweep(10) == []
        assert await store.renew([lease]) == frozenset()
        await complete(upstream, lease)
    assert (await answer_of(store, lease)).status is Status.COMPLETED


@pytest.mark.parametrize("text", ["", "x", "AQ", "a b", "é", "A" * 40, "AQABAgMEBQYHCAkKCwwNDg8A_3JpZGVz"])
async def test_what_is_no_token(upstream: "Connection", text: str) -> None:
    """Refused as such, or as superseded, where it has the form of one."""
    for call in CALLS:
        with pytest.raises(asyncpg.PostgresError) as raised:
            await upstream.execute(f"SELECT {call}", text)
        assert raised.value.sqlstate in {"22023", "IG001"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "state"),
    [
        (101, [], BODY, "22023"),
        (600, [], BODY, "22023"),
        (None, [], BODY, "22023"),
        (204, [], BODY, "22023"),
        (200, None, BODY, "22023"),
        (200, {"a": "b"}, BODY, "22023"),
        (200, ["a"], BODY, "22023"),
        (200, [["a"]], BODY, "22023"),
        (200, [["a", 1]], BODY, "22023"),
        (200, [["a b", "c"]], BODY, "22023"),
        (200, [["", "c"]], BODY, "22023"),
        (200, [["a", "b\r\nSet-Cookie: x=y"]], BODY, "22023"),
        (200, [["a", "\U0001f511"]], BODY, "22023"),
        (200, [], b"x" * 1001, "54000"),
    ],
)
async def test_what_is_no_answer(
    store: PostgresStore, upstream: "Connection", status: int | None, headers: object, body: bytes, state: str
) -> None:
    """Refused, and nothing is kept."""
    lease = await reserved(store, intent())
    with pytest.raises(asyncpg.PostgresError) as raised:
        await complete(upstream, lease, status, headers, body)
    assert raised.value.sqlstate == state
    assert (await found(store, lease.key)).status is Status.IN_PROGRESS


@pytest.mark.parametrize(
    ("point", "data", "state"),
    [
        ("", None, "22023"),
        ("A", None, "22023"),
        ("a" * 51, None, "22023"),
        ("a\n", None, "22023"),
        (None, None, "22023"),
        ("a", "[]", "22023"),
        ("a", "1", "22023"),
        ("a", json.dumps({"x": "a" * 4096}), "54000"),
        ("a", json.dumps({"x": "é" * 682}, ensure_ascii=False), "54000"),
        ("a", json.dumps({"x": "\U0001f511" * 341}, ensure_ascii=False), "54000"),
        ("a", json.dumps({"x": "\x7f" * 682}, ensure_ascii=False), "54000"),
    ],
)
async def test_what_is_no_point(store: PostgresStore, upstream: "Connection", point: str | None, data: str | None, state: str) -> None:
    lease = await reserved(store, intent())
    with pytest.raises(asyncpg.PostgresError) as raised:
        await upstream.execute("SELECT gateway_advance($1, $2, $3)", token(lease), point, data)
    assert raised.value.sqlstate == state


@pytest.mark.parametrize("text", ["a" * 4080, "é" * 680, "\U0001f511" * 340, "\x7f" * 680])
async def test_what_is_just_short_enough(store: PostgresStore, upstream: "Connection", text: str) -> None:
    """Data are as long as their field."""
    lease = await reserved(store, intent())
    await upstream.execute("SELECT gateway_advance($1, 'a', $2)", token(lease), json.dumps({"x": text}, ensure_ascii=False))


async def test_empty_answers(store: PostgresStore, upstream: "Connection") -> None:
    """No body is an empty one."""
    for status, body in ((204, b""), (200, None)):
        lease = await reserved(store, intent())
        await complete(upstream, lease, status, body=body)
        again = await answer_of(store, lease)
        assert again.response is not None
        assert (again.response.status, again.response.body, again.response.body_length) == (status, b"", 0)


async def test_fields_that_are_never_kept(store: PostgresStore, upstream: "Connection") -> None:
    """The same as those of answers that come over HTTP."""
    families = [family.decode() + "x" for family in PER_EXCHANGE_FAMILIES]
    names = [name.decode().title() for name in HOP_BY_HOP | FRAMING | PER_EXCHANGE | OURS] + families
    lease = await reserved(store, intent())
    await complete(upstream, lease, headers=[[name, "1"] for name in names] + [["date", "Thu, 01 Jan 1970 00:00:00 GMT"], ["A", " b\t"]])
    again = await answer_of(store, lease)
    assert again.response is not None
    assert again.response.headers == ((b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"), (b"A", b"b"))


async def test_a_route_that_does_not_take_part(store: PostgresStore, upstream: "Connection") -> None:
    """IG002, also where only progress is told."""
    await store.participation.register([Participant("told", LEASE, KEPT, 1000, co_commit=False)])
    for route in ("told", "unknown"):
        lease = await reserved(store, intent(route_id=route))
        for call in CALLS:
            with pytest.raises(asyncpg.PostgresError) as raised:
                await upstream.execute(f"SELECT {call}", token(lease))
            assert raised.value.sqlstate == "IG002"


async def test_the_role_can_do_nothing_else(upstream: "Connection") -> None:
    """No table of the gateway's, and none of the functions behind the three."""
    for sql in (
        "SELECT * FROM gateway_records",
        "UPDATE gateway_participants SET co_commit = true",
        "SELECT gateway_attempt('x')",
        "SELECT gateway_fields('[]')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await upstream.execute(sql)


async def test_a_table_in_the_way_is_not_used(store: PostgresStore, upstream: "Connection") -> None:
    """What the caller's session calls gateway_records, or digests, means nothing to the functions."""
    lease = await reserved(store, intent())
    await upstream.execute("CREATE TEMPORARY TABLE gateway_records (owner bytea); SET search_path = pg_temp, public")
    await complete(upstream, lease)
    assert (await answer_of(store, lease)).status is Status.COMPLETED


async def test_installed_again_and_for_nobody(database: str, upstream: "Connection", store: PostgresStore) -> None:
    """Installing is repeatable; a role must be there."""
    role = await upstream.fetchval("SELECT current_user")
    await co_commit.install(database, role)
    lease = await reserved(store, intent())
    await complete(upstream, lease)
    with pytest.raises(MigrationError, match="no role"):
        await co_commit.install(database, "no'such\"role")


async def test_points_told_both_ways(store: PostgresStore, upstream: "Connection") -> None:
    """The newest counts, whichever way it came."""
    lease = await reserved(store, intent())
    one: Any = AttemptToken(lease.key, lease.owner)
    await store.participation.advance(one, RecoveryPoint("first"))
    await upstream.execute("SELECT gateway_advance($1, 'second')", token(lease))
    progress = await store.participation.progress(one)
    assert progress is not None
    assert progress.point == RecoveryPoint("second")


async def test_a_transaction_that_takes_its_time_holds_up_nobody_else(
    store: PostgresStore, upstream: "Connection", connection: "Connection"
) -> None:
    """A retry of its key, and a settle, wait until it commits; records of other routes do not, however many there are."""
    lease = await reserved(store, intent(co_commits=True))
    transaction = upstream.transaction()
    await transaction.start()
    await complete(upstream, lease)
    retries = [asyncio.create_task(store.reserve(intent(lease.key, co_commits=True))) for _ in range(3)]
    doubt = asyncio.create_task(store.doubt(lease, "upstream_timeout"))
    await until_waiting(connection, 2)
    others = await asyncio.gather(*(reserved(store, intent(route_id="other")) for _ in range(20)))
    settled = await asyncio.gather(*(store.complete(other, response(), KEPT) for other in others))
    assert {one.transition for one in settled} == {Transition.DONE}
    assert not any(task.done() for task in (*retries, doubt))
    await transaction.commit()
    assert all(isinstance(one, Record) for one in await asyncio.gather(*retries))
    assert (await doubt).transition is Transition.STALE
    assert (await answer_of(store, lease)).status is Status.COMPLETED


async def test_the_printed_script(services: Services, postgres_server: PostgresServer) -> None:
    """For databases whose owner applies DDL by hand: the same functions, with the same fixed search path."""
    dsn = services.empty_database(postgres_server)
    role = urlsplit(dsn).username or ""
    printed = CliRunner().invoke(main, ["migrate", "--print", "--co-commit-role", role])
    assert printed.exit_code == 0
    connection = await asyncpg.connect(dsn)
    await connection.execute(printed.stdout)
    rows = await connection.fetch("SELECT proname, prosecdef, proconfig FROM pg_proc WHERE proname ~ '^gateway_(fence|advance|complete)$'")
    assert {row["proname"] for row in rows} == {"gateway_fence", "gateway_advance", "gateway_complete"}
    assert {(row["prosecdef"], tuple(row["proconfig"])) for row in rows} == {(True, ("search_path=public, pg_temp",))}
    await connection.close()
    services.drop_database(postgres_server, dsn)


async def test_accepted_work_that_an_upstream_holds_holds_up_nobody_else(
    store: PostgresStore, upstream: "Connection", connection: "Connection"
) -> None:
    """Whether it was accepted or taken: its settle, and the word that it is accepted, wait apart from those of other routes."""
    wanted = [intent(co_commits=True, sealed=b"request") for _ in range(8)]
    held = [await reserved(store, each) for each in wanted]
    for lease in held[:4]:
        assert await store.park(lease, "no_slot", 0.0, PROMISE) is Parked.DONE
    taken = await store.acceptance.take(wanted[0].terms, 4, [secrets.token_bytes(16) for _ in range(4)])
    settled_later, accepted_later = [one.lease for one in taken], held[4:]
    transaction = upstream.transaction()
    await transaction.start()
    for lease in (*settled_later, *accepted_later):
        await upstream.execute("SELECT gateway_fence($1)", token(lease))
    waiting, told = [], []
    for settled, accepted in zip(settled_later, accepted_later, strict=True):
        waiting.append(asyncio.create_task(store.complete(settled, response(), KEPT)))
        told.append(asyncio.create_task(store.acceptance.accept(accepted, PROMISE)))
        await asyncio.sleep(0.05)  # so that they do not travel together
    await until_waiting(connection, 2)
    others = await asyncio.gather(*(reserved(store, intent(route_id="other", sealed=b"request")) for _ in range(4)))
    for other in others:
        assert await store.acceptance.accept(other, PROMISE) is Transition.DONE
        assert (await store.complete(other, response(), KEPT)).transition is Transition.DONE
    assert not any(task.done() for task in (*waiting, *told))
    await transaction.commit()
    assert {one.transition for one in await asyncio.gather(*waiting)} == {Transition.DONE}
    assert set(await asyncio.gather(*told)) == {Transition.DONE}
