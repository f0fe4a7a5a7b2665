"""The one word that makes an observed route enforce, or a route demand keys: what becomes of the records that are there."""

import asyncio

import pytest

from tests.proxy.house import House, fresh, holding, refusal, replayed, saying
from tests.support.upstream import execute_and_answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - id: switched
    path: /switched
    upstream: payments
    methods: [POST]
    idempotency: {mode: observe, retention: 2h}
  - id: demanded
    path: /demanded
    upstream: payments
    methods: [POST]
    idempotency: {key: {required: false}, retention: 2h}
"""
ENFORCED = ROUTES.replace("{mode: observe, retention: 2h}", "{mode: enforce, retention: 2h}")
DEMANDED = ROUTES.replace("{key: {required: false}, retention: 2h}", "{key: {required: true}, retention: 2h}")


async def test_the_word_that_makes_it_enforce(house: House) -> None:
    """After the reload completed keys replay; whatever was refused, in doubt or under way guards nothing and runs anew, once."""
    completed, doubted, released, running, twice = (fresh() for _ in range(5))
    first = await house.settled(b"/switched", completed)
    latest = [await house.settled(b"/switched", twice), await house.ask(b"/switched", twice)]
    house.upstream.behave = saying(503)
    await house.settled(b"/switched", doubted)
    house.upstream.behave = saying(429)
    await house.settled(b"/switched", released)
    held = asyncio.Event()
    house.upstream.behave = holding(held)
    house.upstream.executed.clear()
    under_way = asyncio.create_task(house.ask(b"/switched", running))
    await house.upstream.executed.wait()
    house.upstream.behave = execute_and_answer
    house.seen.clear()

    await house.reload(ENFORCED)
    try:
        again = await house.ask(b"/switched", completed)
        assert (replayed(again), again.body) == (True, first.body)
        assert refusal(await house.ask(b"/switched", completed, b"{}")) == (422, "key-reused")
        assert (await house.ask(b"/switched", twice)).body == latest[0].body
        assert not house.seen
        for number, key in enumerate((doubted, released, running), 1):
            anew = await house.ask(b"/switched", key)
            assert (anew.status, replayed(anew)) == (201, False)
            retried = await house.ask(b"/switched", key)
            assert (replayed(retried), retried.body) == (True, anew.body)
            assert len(house.seen) == number
        held.set()
        late = await under_way
        again = await house.ask(b"/switched", running)
        assert late.status == 201
        assert (replayed(again), again.body == late.body) == (True, False)
        assert refusal(await house.ask(b"/switched", None)) == (400, "key-missing")
    finally:
        held.set()
        await house.reload(ROUTES)


async def test_another_operation_takes_over_what_guards_nothing(house: House) -> None:
    """An observed doubt does not hold its key against another body either."""
    key = fresh()
    house.upstream.behave = saying(503)
    await house.settled(b"/switched", key)
    house.upstream.behave = execute_and_answer
    await house.reload(ENFORCED)
    try:
        assert (await house.ask(b"/switched", key, b"{}")).status == 201
        assert refusal(await house.ask(b"/switched", key)) == (422, "key-reused")
    finally:
        await house.reload(ROUTES)


async def test_the_word_that_demands_a_key(house: House) -> None:
    """`required: false` to `true`: who has keys notices nothing, records live on, and who has none is refused from then on."""
    key = fresh()
    first = await house.ask(b"/demanded", key)
    assert (await house.ask(b"/demanded", None)).status == 201
    await house.reload(DEMANDED)
    try:
        again = await house.ask(b"/demanded", key)
        assert (replayed(again), again.body) == (True, first.body)
        assert refusal(await house.ask(b"/demanded", None)) == (400, "key-missing")
    finally:
        await house.reload(ROUTES)
