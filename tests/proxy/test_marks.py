"""What answers tell of their key, and what browsers may read of it."""

import asyncio
import json
from email.utils import parsedate_to_datetime

import pytest

from tests.proxy.house import House, fresh, holding, refusal, replayed, saying
from tests.support.client import Answer
from tests.support.upstream import Exchange, execute_and_answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - id: told
    path: /told
    upstream: payments
    methods: [POST]
    idempotency: {status_fields: true, retention: 1h, key: {required: false}}
  - {id: needed, path: /needed, upstream: payments, methods: [POST], idempotency: {status_fields: true}}
  - {id: streamed, path: /streamed, upstream: payments, methods: [POST], idempotency: {status_fields: true, stream: true}}
  - {id: untold, path: /untold, upstream: payments, methods: [POST], idempotency: {}}
  - id: exposed
    path: /exposed
    upstream: payments
    methods: [POST]
    idempotency: {status_fields: true, expose_headers: true, duplicates: 1m, mark_duplicates: true, key: {header: X-Token}}
  - {id: exposed-bare, path: /exposed-bare, upstream: payments, methods: [POST], idempotency: {expose_headers: true, key: {query: id}}}
"""

STATUS, EXPIRES, RETRY = "idempotency-status", "idempotency-expires", "idempotency-retry"
EXPOSE = "access-control-expose-headers"


async def hanging_up(exchange: Exchange) -> None:
    exchange.hang_up()


def count(answer: Answer, name: str) -> int:
    return sum(field.lower() == name.encode() for field, _ in answer.fields)


async def test_new_and_replayed(house: House) -> None:
    """Both say until when the record is kept, and it is the same date: that of completion and the route's retention."""
    key = fresh()
    first, again = [await house.ask(b"/told", key) for _ in range(2)]
    assert [answer.field(STATUS) for answer in (first, again)] == [b"new", b"replayed"]
    assert [count(answer, name) for answer in (first, again) for name in (STATUS, EXPIRES)] == [1] * 4
    assert first.field(EXPIRES) == again.field(EXPIRES)
    (row,) = await house.records(key)
    told = parsedate_to_datetime((first.field(EXPIRES) or b"").decode())
    assert told == row["expires_at"].replace(microsecond=0)
    assert abs((row["expires_at"] - row["completed_at"]).total_seconds() - 3600) < 0.5
    assert b"idempotency-status" not in row["response_headers"].lower()


async def test_an_upstreams_own_marks(house: House) -> None:
    """Where the route tells, only the gateway does, at first and in replays; elsewhere they are ordinary fields."""
    house.upstream.behave = saying(201, b"Idempotency-Status: mine", b"Idempotency-Expires: never", b"idempotency-status: mine too")
    key = fresh()
    for status in (b"new", b"replayed"):
        answer = await house.ask(b"/told", key)
        assert [value for name, value in answer.fields if name.lower() == STATUS.encode()] == [status]
        assert answer.field(EXPIRES) != b"never"
    for answer in [await house.ask(b"/untold", key) for _ in range(2)]:
        assert answer.field(STATUS) == b"mine"
        assert answer.field(EXPIRES) == b"never"


async def test_mismatch_and_in_progress(house: House) -> None:
    """Refusals that a record is behind say which."""
    key, released = fresh(), asyncio.Event()
    house.upstream.behave = holding(released)
    first = asyncio.create_task(house.ask(b"/told", key))
    await house.upstream.executed.wait()
    running, other = await house.ask(b"/told", key), await house.ask(b"/told", key, b"{}")
    released.set()
    assert (await first).field(STATUS) == b"new"
    assert (refusal(running), running.field(STATUS)) == ((409, "request-in-progress"), b"in-progress")
    assert (refusal(other), other.field(STATUS)) == ((422, "key-reused"), b"mismatch")
    assert [answer.field(EXPIRES) for answer in (running, other)] == [None, None]


async def test_what_a_program_may_do(house: House) -> None:
    """Refusals say it in their document, and in a field where the route tells; answers of the upstream and replays say nothing."""
    key, released = fresh(), asyncio.Event()
    house.upstream.behave = holding(released)
    first = asyncio.create_task(house.ask(b"/told", key))
    await house.upstream.executed.wait()
    running, other = await house.ask(b"/told", key), await house.ask(b"/told", key, b"{}")
    released.set()
    assert [answer.field(RETRY) for answer in (await first, await house.ask(b"/told", key))] == [None, None]
    missing, stranger, untold = await house.ask(b"/needed", None), await house.ask(b"/told", b"a,b"), await house.ask(b"/untold", None)
    told = [json.loads(answer.body)["retry"] for answer in (running, other, missing, stranger, untold)]
    assert told == ["same-key", "new-key", "fix-request", "fix-request", "fix-request"]
    said = [answer.field(RETRY) for answer in (running, other, missing, stranger, untold)]
    assert said == [b"same-key", b"new-key", b"fix-request", b"fix-request", None]


async def test_what_a_program_may_do_about_a_doubt(house: House) -> None:
    """Where nobody looks, the client has to; what the upstream says of it itself is not passed on."""
    key = fresh()
    house.upstream.behave = hanging_up
    answers = [await house.ask(b"/told", key) for _ in range(2)]
    assert [json.loads(answer.body)["retry"] for answer in answers] == ["ask-upstream"] * 2
    assert [answer.field(RETRY) for answer in answers] == [b"ask-upstream"] * 2
    house.upstream.behave = saying(503, b"Idempotency-Retry: same-key")
    assert (await house.ask(b"/told", fresh())).field(RETRY) is None


async def test_unknown(house: House) -> None:
    """A doubt is unknown at first, too, be the answer the upstream's or ours, and has no end that could be told."""
    key = fresh()
    house.upstream.behave = saying(503)
    first, again = [await house.ask(b"/told", key) for _ in range(2)]
    assert (first.status, first.field(STATUS), first.field(EXPIRES)) == (503, b"unknown", None)
    assert (refusal(again), again.field(STATUS), again.field(EXPIRES)) == ((409, "outcome-unknown"), b"unknown", None)


async def test_the_first_answer_in_doubt(house: House) -> None:
    """The upstream hung up: the 502 is `outcome-unknown`, and says so in the field."""
    key = fresh()
    house.upstream.behave = hanging_up
    for status in (502, 409):
        answer = await house.ask(b"/told", key)
        assert (refusal(answer), answer.field(STATUS)) == ((status, "outcome-unknown"), b"unknown")


async def test_a_release(house: House) -> None:
    """A refusal of the upstream's is new each time, and nothing is kept."""
    key = fresh()
    house.upstream.behave = saying(429)
    for _ in range(2):
        answer = await house.ask(b"/told", key)
        assert (answer.status, answer.field(STATUS), answer.field(EXPIRES)) == (429, b"new", None)


async def test_without_a_key(house: House) -> None:
    """Where none is required the answer says that nothing protects it; where one is, nothing was decided about a key."""
    answer = await house.ask(b"/told", None)
    assert (answer.status, answer.field(STATUS), answer.field(EXPIRES)) == (201, b"unprotected", None)
    for answer in (await house.ask(b"/needed", None), await house.ask(b"/needed", b"a,b"), await house.ask(b"/needed", b"k", account=None)):
        assert 400 <= answer.status < 500
        assert answer.field(STATUS) is None


async def test_a_stream(house: House) -> None:
    """Its head leaves before the commit, so it says that it is new, and not yet until when it is kept; its replay does."""
    key = fresh()
    first, again = [await house.ask(b"/streamed", key) for _ in range(2)]
    assert first.body == again.body
    assert first.field(STATUS) == b"new"
    assert (again.field(STATUS), again.field(EXPIRES) is not None) == (b"replayed", True)


async def test_a_route_that_does_not_tell(house: House) -> None:
    """By default there are none of these fields."""
    key = fresh()
    for answer in [await house.ask(b"/untold", key) for _ in range(2)]:
        assert [answer.field(name) for name in (STATUS, EXPIRES, EXPOSE)] == [None] * 3


ALL = {
    b"x-token",
    b"idempotent-replayed",
    b"original-request",
    b"idempotency-status",
    b"idempotency-expires",
    b"idempotency-retry",
    b"idempotency-duplicate",
    b"retry-after",
    b"x-request-id",
}
BARE = {b"idempotent-replayed", b"original-request", b"retry-after", b"x-request-id"}


def exposed(answer: Answer) -> list[bytes]:
    return [token.strip().lower() for name, value in answer.fields if name.lower() == EXPOSE.encode() for token in value.split(b",")]


@pytest.mark.parametrize("origin", [b"*", b"https://shop.test"])
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ((), set()),
        ((b"Access-Control-Expose-Headers: X-Rate, RETRY-AFTER",), {b"x-rate"}),
        ((b"access-control-expose-headers: X-Rate", b"Access-Control-Expose-Headers: X-Other"), {b"x-rate", b"x-other"}),
        ((b"Access-Control-Expose-Headers:",), set()),
        ((b"Access-Control-Expose-Headers: *", b"Access-Control-Allow-Credentials: true"), {b"*"}),
    ],
)
async def test_what_browsers_may_read(house: House, origin: bytes, said: tuple[bytes, ...], kept: set[bytes]) -> None:
    """Ours and the upstream's, each once, at first and in replays."""
    line = b"X-Token: " + fresh()
    house.upstream.behave = saying(201, b"Access-Control-Allow-Origin: " + origin, *said)
    for status in (b"new", b"replayed"):
        answer = await house.ask(b"/exposed", more=(line,))
        assert answer.field(STATUS) == status
        names = [name for name in exposed(answer) if name]
        assert set(names) == ALL | kept
        assert len(names) == len(set(names))
        assert answer.field("access-control-allow-origin") == origin


async def test_everything_is_exposed_already(house: House) -> None:
    """A star stays alone."""
    house.upstream.behave = saying(201, b"Access-Control-Expose-Headers: *")
    line = b"X-Token: " + fresh()
    for _ in range(2):
        assert exposed(await house.ask(b"/exposed", more=(line,))) == [b"*"]


async def test_what_browsers_may_read_of_refusals(house: House) -> None:
    """The same list; the parameter of a query is no field."""
    line = b"X-Token: " + fresh()
    await house.ask(b"/exposed", more=(line,))
    for answer in (
        await house.ask(b"/exposed", body=b"{}", more=(line,)),
        await house.ask(b"/exposed"),
        await house.ask(b"/exposed", account=None, more=(line,)),
    ):
        assert answer.problem is not None
        assert set(exposed(answer)) == ALL
    house.upstream.behave = execute_and_answer
    for answer in [await house.ask(b"/exposed-bare?id=" + line[9:]) for _ in range(2)]:
        assert set(exposed(answer)) == BARE
    assert replayed(answer)
