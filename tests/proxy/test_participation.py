"""Upstreams that take part, on the wire: what they are told, what they tell, what they commit."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from gateway.core.attempt_token import AttemptToken, read_token, write_token
from gateway.core.model import RecordKey
from gateway.devtools.embedded.ports import free_port
from gateway.store import co_commit
from tests.proxy.house import House, Plan, fresh, post, refusal, replayed, saying
from tests.support.client import Answer, ask
from tests.support.upstream import CountingUpstream, Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - id: told
    path: /told
    upstream: payments
    methods: [POST]
    idempotency: {participate: {progress: true}, status_fields: true}
  - id: resumed
    path: /resumed
    upstream: quick
    methods: [POST]
    idempotency: {participate: {progress: true}, on_unknown: resume, lease: 500ms}
  - {id: committed, path: /committed, upstream: payments, methods: [POST], idempotency: {participate: {co_commit: true}}}
  - {id: watched, path: /watched, upstream: payments, methods: [POST], idempotency: {mode: observe, participate: {progress: true}}}
  - {id: plain, path: /plain, upstream: payments, methods: [POST], idempotency: {}}
  - {id: open, path: /open, upstream: payments}
  - {id: elsewhere, path: /elsewhere, upstream: other}
"""
FIELDS = ("idempotency-token", "idempotency-attempt", "idempotency-recovery-point", "idempotency-recovery-data")
POINT = {"recovery_point": "charge_created", "data": {"charge": "ch_é"}}


@pytest.fixture(scope="module")
def progress_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def plan(progress_port: int, house_upstream: CountingUpstream) -> Plan:
    url = f'url: "http://127.0.0.1:{house_upstream.port}"'
    elsewhere = url.replace("127.0.0.1", "localhost")  # two servers, as far as a name tells
    upstreams = f"  other: {{{elsewhere}}}\n  quick: {{{url}, timeouts: {{first_byte: 1s, total: 1s}}, max_execution: 1s}}"
    return Plan(ROUTES, upstreams=upstreams, more=f"progress: {{listen: 127.0.0.1:{progress_port}}}")


@pytest.fixture
def tell(progress_port: int) -> Callable[..., Awaitable[Answer]]:
    """One request to the progress listener."""

    async def send(
        token: bytes | None,
        body: bytes | None = None,
        *lines: bytes,
        method: bytes | None = None,
        path: bytes = b"/v1/progress",
    ) -> Answer:
        verb = method or (b"GET" if body is None else b"PUT")
        head = [b"%b %b HTTP/1.1" % (verb, path), b"Host: gateway", *lines]
        head += [] if token is None else [b"Authorization: Bearer " + token]
        head += [] if body is None else [b"Content-Length: %d" % len(body)]
        return await ask(progress_port, b"\r\n".join(head) + b"\r\n\r\n" + (body or b""))

    return send


def told(house: House) -> dict[str, bytes | None]:
    """What the upstream was told of its newest attempt."""
    return {name: house.last.value(name) for name in FIELDS}


def during(house: House, work: Callable[[bytes], Awaitable[object]], status: int | None = 201) -> None:
    """The upstream does `work` with its token, and answers; None: it hangs up."""

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        await work(exchange.seen.value("idempotency-token") or b"")
        if status is None:
            exchange.hang_up()
        else:
            await exchange.answer(status)

    house.upstream.behave = behave


async def test_what_an_attempt_is_told(house: House) -> None:
    """A token for exactly this attempt, and its number; on routes that take no part nothing."""
    key = fresh()
    house.upstream.behave = saying(429)
    for number in (b"1", b"2"):
        await house.ask(b"/told", key)
        assert told(house)["idempotency-attempt"] == number
        assert [told(house)[name] for name in FIELDS[2:]] == [None, None]
    first, second = [read_token((seen.value("idempotency-token") or b"").decode()) for seen in house.seen]
    assert first is not None
    assert second is not None
    assert first.key == second.key
    assert first.owner != second.owner
    for path in (b"/plain", b"/watched", b"/open"):
        await house.ask(path, fresh())
        assert set(told(house).values()) == {None}


async def test_a_clients_own_fields_do_not_cross(house: House) -> None:
    """On every route to the upstream, in every spelling; at others they are fields like any."""
    forged = tuple(
        name + b": forged"
        for field in FIELDS
        for name in (field.encode(), field.upper().encode(), field.replace("-", "_").encode(), field.replace("-", ".").encode())
    )
    for path in (b"/told", b"/resumed", b"/committed", b"/watched", b"/plain", b"/open"):
        await house.ask(path, fresh(), more=(*forged, b"Connection: Idempotency-Token"))
        assert b"forged" not in house.last.raw
        assert (told(house)["idempotency-token"] is not None) == (path in {b"/told", b"/resumed", b"/committed"})
    await house.ask(b"/elsewhere", more=(b"Idempotency-Token: mine",))
    assert told(house)["idempotency-token"] == b"mine"


async def test_a_point_is_told_and_seen(house: House, tell: Callable[..., Awaitable[Answer]]) -> None:
    """By its attempt, and by operators; the attempt that follows is told of it."""
    key, seen = fresh(), list[Answer]()

    async def work(token: bytes) -> None:
        seen.append(await tell(token))
        seen.append(await tell(token, json.dumps(POINT).encode()))
        seen.append(await tell(token))

    during(house, work, 429)
    assert (await house.ask(b"/told", key)).status == 429
    assert [answer.status for answer in seen] == [200, 204, 200]
    before, after = json.loads(seen[0].body), json.loads(seen[2].body)
    assert (before["recovery_point"], before["data"], before["attempt"]) == (None, None, 1)
    assert 0 < before["lease_left"] <= 2
    assert (after["recovery_point"], after["data"]) == ("charge_created", {"charge": "ch_é"})
    token = house.last.value("idempotency-token")
    late = [await tell(token), await tell(token, b'{"recovery_point": "late"}')]
    assert [refusal(answer) for answer in late] == [(409, "attempt-superseded")] * 2
    assert json.loads(late[0].body)["retry"] == "never"
    house.upstream.behave = saying()
    await house.ask(b"/told", key)
    assert told(house)["idempotency-recovery-point"] == b"charge_created"
    assert told(house)["idempotency-recovery-data"] == b'{"charge":"ch_\\u00e9"}'
    status, page = await house.gateway.get(f"/admin/v1/records?key={key.decode()}")
    assert status == 200
    (listed,) = json.loads(page)["records"]
    _, page = await house.gateway.get(f"/admin/v1/records/{listed['id']}")
    shown = json.loads(page)
    assert (shown["recovery_point"], shown["recovery_data"], shown["completed_by"]) == ("charge_created", '{"charge":"ch_é"}', "gateway")
    assert [(line["source"], line["what"], line["detail"]) for line in shown["history"]] == [
        ("upstream", "advanced", {"point": "charge_created", "attempt": 1})
    ]


async def test_a_killed_upstream_resumes(house: House, tell: Callable[..., Awaitable[Answer]]) -> None:
    """Once it has surely finished: from the last point that it told."""
    key = fresh()

    async def work(token: bytes) -> None:
        assert (await tell(token, json.dumps(POINT).encode())).status == 204

    during(house, work, None)
    assert refusal(await house.ask(b"/resumed", key)) == (502, "outcome-unknown")
    before = house.last.value("idempotency-token")
    house.upstream.behave = saying()
    async with asyncio.timeout(20):
        while (answer := await house.ask(b"/resumed", key)).status == 409:
            assert len(house.seen) == 1
            await asyncio.sleep(0.2)
    assert (answer.status, told(house)["idempotency-attempt"]) == (201, b"2")
    assert told(house)["idempotency-recovery-point"] == b"charge_created"
    assert refusal(await tell(before, b'{"recovery_point": "late"}')) == (409, "attempt-superseded")
    assert replayed(await house.ask(b"/resumed", key))


@pytest.mark.parametrize(
    ("method", "path", "lines", "body", "status", "word"),
    [
        (b"PUT", b"/v1/progress", (), b"{}", 400, "bad-request"),
        (b"PUT", b"/v1/progress", (), b"", 400, "bad-request"),
        (b"PUT", b"/v1/progress", (), b'{"recovery_point": "No!"}', 400, "bad-request"),
        (b"PUT", b"/v1/progress", (), b'{"recovery_point": "a", "data": []}', 400, "bad-request"),
        (b"PUT", b"/v1/progress", (), b'{"recovery_point": "a", "data": {"x": "' + b"a" * 5000 + b'"}}', 413, "body-too-large"),
        (b"PUT", b"/v1/progress", (), b'{"recovery_point": "a"}' + b" " * 20000, 413, "body-too-large"),
        (b"POST", b"/v1/progress", (), b"{}", 405, "method-refused"),
        (b"DELETE", b"/v1/progress?x=1", (), None, 405, "method-refused"),
        (b"GET", b"/", (), None, 404, "no-route"),
        (b"GET", b"/v1/progress/", (), None, 404, "no-route"),
        (b"PUT", b"/admin/v1/config", (), b"{}", 404, "no-route"),
        (b"PUT", b"/v1/progress", (b"Expect: wonders",), b"{}", 417, "expectation-failed"),
    ],
)
async def test_refusals(
    house: House,
    tell: Callable[..., Awaitable[Answer]],
    method: bytes,
    path: bytes,
    lines: tuple[bytes, ...],
    body: bytes | None,
    status: int,
    word: str,
) -> None:
    """Each says what is wrong, and nothing is kept."""
    found: list[Answer] = []

    async def work(token: bytes) -> None:
        found.append(await tell(token, body, *lines, method=method, path=path))
        found.append(await tell(token))

    during(house, work)
    await house.ask(b"/told", fresh())
    refused, after = found
    assert refusal(refused) == (status, word)
    assert (refused.field("allow") is not None) == (status == 405)
    assert json.loads(after.body)["recovery_point"] is None


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (b"Authorization: Bearer",),
        (b"Authorization: Bearer x",),
        (b"Authorization: Basic QQ==",),
        (b"Authorization: Bearer AAAA", b"Authorization: Bearer AAAA"),
        (b"Authorization: " + b"x" * 9000,),
    ],
)
async def test_no_token(house: House, tell: Callable[..., Awaitable[Answer]], lines: tuple[bytes, ...]) -> None:
    """401, and the challenge says what is wanted."""
    answer = await tell(None, b'{"recovery_point": "a"}', *lines)
    assert refusal(answer) == (401, "principal-missing")
    assert answer.field("www-authenticate") == b'Bearer realm="progress"'
    assert b"Idempotency-Token" in answer.body


async def test_a_strangers_token(house: House, tell: Callable[..., Awaitable[Answer]]) -> None:
    """A token with another owner, of a record that is there or not, says nothing of what there is."""
    found: list[Answer] = []

    async def work(token: bytes) -> None:
        mine = read_token(token.decode())
        assert mine is not None
        forged = (AttemptToken(mine.key, bytes(16)), AttemptToken(RecordKey("nobody", "x"), mine.owner))
        found.extend([await tell(write_token(one).encode(), b'{"recovery_point": "a"}') for one in forged])

    during(house, work)
    await house.ask(b"/told", fresh())
    assert [refusal(answer) for answer in found] == [(409, "attempt-superseded")] * 2


@pytest.fixture
async def functions(house: House) -> str:
    """DSN of the gateway's database, with the functions in it."""
    connection = await asyncpg.connect(house.setup.postgres)
    role = await connection.fetchval("SELECT current_user")
    await connection.close()
    await co_commit.install(house.setup.postgres, role)
    return house.setup.postgres


@pytest.mark.parametrize("status", [201, 500, 429, 503, None])
async def test_what_is_committed_is_the_answer(house: House, functions: str, status: int | None) -> None:
    """For the first client, too, whatever comes over HTTP: another answer, a refusal, or nothing at all."""
    key = fresh()

    async def work(token: bytes) -> None:
        connection = await asyncpg.connect(functions)
        async with connection.transaction():
            await connection.execute(
                "SELECT gateway_complete($1, 201, $2, $3)", token.decode(), '[["Content-Type", "text/plain"], ["X-Ride", "r1"]]', b"ride"
            )
        await connection.close()

    during(house, work, status)
    differed = await house.gateway.metric("idempotency_differing_answers_total", route="committed")
    for again in (False, True):
        answer = await house.ask(b"/committed", key)
        assert (answer.status, answer.body, answer.field("x-ride")) == (201, b"ride", b"r1")
        assert answer.field("content-type") == b"text/plain"
        assert replayed(answer) == again
    assert len(house.seen) == 1
    counted = await house.gateway.metric("idempotency_differing_answers_total", route="committed")
    assert counted - differed == (0 if status is None else 1)


async def test_a_transaction_that_is_not_done_yet(house: House, functions: str) -> None:
    """The upstream hangs up while its transaction is open: in doubt until that commits, and then answered."""
    key, rest = fresh(), list[asyncio.Task[None]]()

    async def work(token: bytes) -> None:
        connection = await asyncpg.connect(functions)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT gateway_fence($1)", token.decode())

        async def commit() -> None:
            await asyncio.sleep(1.0)
            await connection.execute("SELECT gateway_complete($1, 201, '[]', $2)", token.decode(), b"ride")
            await transaction.commit()
            await connection.close()

        rest.append(asyncio.create_task(commit()))

    during(house, work, None)
    first = await house.ask(b"/committed", key)
    assert first.status == 502 or first.body == b"ride"
    await rest[0]
    again = await house.ask(b"/committed", key)
    assert (again.status, again.body, replayed(again)) == (201, b"ride", True)
    assert len(house.seen) == 1


async def test_it_survives_a_reload(house: House, tell: Callable[..., Awaitable[Answer]]) -> None:
    """A route that begins to take part with a reload does; the listener itself needs a restart."""
    await house.reload(ROUTES.replace("id: plain, path: /plain, upstream: payments, methods: [POST], idempotency: {}", PLAIN_NOW))
    key = fresh()

    async def work(token: bytes) -> None:
        assert (await tell(token, b'{"recovery_point": "a"}')).status == 204

    during(house, work)
    answer = await ask(house.gateway.port, post(b"/plain", key))
    assert answer.status == 201
    rows = await house.query("SELECT route_id, co_commit FROM gateway_participants ORDER BY route_id")
    assert [tuple(row) for row in rows] == [("committed", True), ("plain", False), ("resumed", False), ("told", False)]
    await house.reload(ROUTES)


PLAIN_NOW = "id: plain, path: /plain, upstream: payments, methods: [POST], idempotency: {participate: {progress: true}}"
