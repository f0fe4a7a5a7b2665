"""What becomes of keys whose time is over, and of requests in early data."""

import asyncio

import pytest

from tests.proxy.house import TENANT_B, House, fresh, refusal, replayed, saying

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: execute, path: /execute, upstream: payments, methods: [POST], idempotency: {retention: 1s}}
  - id: gone
    path: /gone
    upstream: payments
    methods: [POST]
    idempotency: {retention: 1s, on_expired: gone, tombstone: 1h, status_fields: true}
  - {id: kept, path: /kept, upstream: payments, methods: [POST], idempotency: {retention: 1s, expired: keep, keep_for: 1h}}
  - {id: optional, path: /optional, upstream: payments, methods: [POST], idempotency: {key: {required: false}}}
  - {id: required, path: /required, upstream: payments, methods: [POST], idempotency: {}}
  - {id: body, path: /body, upstream: payments, methods: [POST], idempotency: {key: {json_pointer: /id, required: false}}}
  - {id: open, path: /open, upstream: payments, methods: [POST]}
"""

EARLY = b"Early-Data: 1"


async def test_an_expired_key_runs_anew(house: House) -> None:
    """By default: another operation under it is taken, too."""
    key = fresh()
    first = await house.ask(b"/execute", key)
    assert replayed(await house.ask(b"/execute", key))
    await house.expired(key)
    again = await house.ask(b"/execute", key, b"{}")
    assert (again.status, replayed(again)) == (201, False)
    assert again.body != first.body
    assert replayed(await house.ask(b"/execute", key, b"{}"))
    assert len(house.seen) == 2


async def test_an_expired_key_that_is_gone(house: House) -> None:
    """The late retry is refused, by the row, whatever it asks for; another caller's key of the same text is not."""
    key = fresh()
    assert (await house.ask(b"/gone", key)).status == 201
    assert replayed(await house.ask(b"/gone", key))
    await house.expired(key)
    for body in (b"{}", b'{"amount":100,"currency":"EUR"}'):
        answer = await house.ask(b"/gone", key, body)
        assert refusal(answer) == (410, "key-expired")
        assert answer.field("idempotency-status") == b"expired"
    assert len(house.seen) == 1
    assert (await house.ask(b"/gone", key, account=TENANT_B)).status == 201
    assert (await house.ask(b"/gone", fresh())).status == 201


async def test_a_released_key_is_not_gone(house: House) -> None:
    """What never executed cannot be a second charge: it runs, however late."""
    key = fresh()
    house.upstream.behave = saying(429)
    await house.ask(b"/gone", key)
    await house.expired(key)
    house.upstream.behave = saying(201)
    assert (await house.ask(b"/gone", key)).status == 201
    assert len(house.seen) == 2


async def test_what_the_reaper_leaves(house: House) -> None:
    """A tombstone that holds a digest and answers 410 until its own period is over; and a kept row, in the archive, that replays never."""
    gone, kept, released = fresh(), fresh(), fresh()
    first = await house.ask(b"/gone", gone)
    audited = await house.ask(b"/kept", kept)
    house.upstream.behave = saying(429)
    await house.ask(b"/gone", released)
    house.upstream.behave = saying(201)
    sql = "UPDATE gateway_records SET created_at = created_at - interval '2 hours' WHERE idempotency_key = ANY($1)"
    await house.query(sql, [key.decode() for key in (gone, kept, released)])
    async with asyncio.timeout(30):
        while any([await house.records(key) for key in (gone, kept, released)]):
            await asyncio.sleep(0.1)
    house.seen.clear()

    answer = await house.ask(b"/gone", gone, b"{}")
    assert refusal(answer) == (410, "key-expired")
    assert answer.field("idempotency-status") == b"expired"
    assert not house.seen
    assert (await house.ask(b"/gone", gone, account=TENANT_B)).status == 201
    (tombstone,) = await house.query("SELECT * FROM gateway_tombstones")
    assert set(tombstone.keys()) == {"digest", "scope", "route_id", "expires_at"}
    assert gone not in tombstone["digest"]

    (archived,) = await house.query("SELECT * FROM gateway_records_archive WHERE idempotency_key = $1", kept.decode())
    assert archived["response_body"] == audited.body
    assert archived["archived_reason"] == "expired"
    again = await house.ask(b"/kept", kept)
    assert (again.status, replayed(again)) == (201, False)
    assert again.body != audited.body

    assert (await house.ask(b"/gone", released)).status == 201
    await house.query("UPDATE gateway_tombstones SET expires_at = now() - interval '1 second'")
    anew = await house.ask(b"/gone", gone)
    assert (anew.status, replayed(anew)) == (201, False)
    assert anew.body != first.body


@pytest.mark.parametrize(
    ("path", "body"), [(b"/optional", b"{}"), (b"/required", b"{}"), (b"/body", b"{}"), (b"/body", b'{"id":null}'), (b"/body", b"")]
)
async def test_early_data_without_a_key(house: House, path: bytes, body: bytes) -> None:
    """Anybody could send it again: 425, on every guarded route, and the upstream sees nothing."""
    assert refusal(await house.ask(path, None, body, more=(EARLY,))) == (425, "too-early")
    assert not house.seen


async def test_early_data_with_a_key(house: House) -> None:
    """A replayed flight gets the first answer."""
    for path, key, body in ((b"/optional", fresh(), b"{}"), (b"/required", fresh(), b"{}"), (b"/body", None, b'{"id":"%b"}' % fresh())):
        first, again = [await house.ask(path, key, body, more=(EARLY,)) for _ in range(2)]
        assert first.status == 201
        assert again.body == first.body
        assert replayed(again)
    assert house.last.value("early-data") == b"1"


@pytest.mark.parametrize("lines", [(b"Early-Data: 1, 1",), (b"Early-Data: 0", b"Early-Data: 1"), (b"Early-Data: yes",)])
async def test_early_data_said_badly(house: House, lines: tuple[bytes, ...]) -> None:
    """RFC 8470 section 5.1: several instances, or invalid ones, mean what a single 1 means."""
    assert refusal(await house.ask(b"/optional", None, more=lines)) == (425, "too-early")


async def test_early_data_where_nothing_is_guarded(house: House) -> None:
    """The upstream judges it, so it gets to see the field (RFC 8470 section 5.1)."""
    assert (await house.ask(b"/open", None, more=(EARLY,))).status == 201
    assert house.last.value("early-data") == b"1"
