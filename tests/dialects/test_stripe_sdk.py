"""Stripe's own SDK, unmodified, against a stand-in for its API behind the gateway with `stripe-v1`."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import stripe

from tests.dialects.sdks import Shop, shop
from tests.support.services import Services

T = TypeVar("T")
INTENT: dict[str, Any] = {"amount": 100, "currency": "eur"}


@pytest.fixture
async def api(services: Services, tmp_path: Path) -> AsyncIterator[Shop]:
    async with shop(services, tmp_path, "stripe-v1", "/v1") as api:
        api.status = 200
        yield api


async def with_client(api: Shop, work: Callable[[stripe.StripeClient], T], retries: int = 2) -> T:
    """Run what an application does with the SDK, in a thread of its own."""

    def run() -> T:
        http = stripe.RequestsClient()
        client = stripe.StripeClient("sk_test_a", base_addresses={"api": api.base}, max_network_retries=retries, http_client=http)
        try:
            return work(client)
        finally:
            http.close()  # type: ignore[no-untyped-call]  # the SDK's own

    return await asyncio.to_thread(run)


def create(key: str | None = None, **more: Any) -> Callable[[stripe.StripeClient], Any]:
    """Create a payment intent, under a key of the SDK's own making or a given one."""

    def work(client: stripe.StripeClient) -> Any:
        return client.v1.payment_intents.create({**INTENT, **more}, {"idempotency_key": key} if key else {})  # type: ignore[typeddict-item]  # amounts vary

    return work


def header(made: Any, name: str) -> str | None:
    found: str | None = made.last_response.headers.get(name)
    return found


async def test_an_automatic_retry_is_replayed(api: Shop) -> None:
    """The answer to the first try is lost; the SDK sends it again under its own key and gets the first answer, marked."""
    api.front.drop_next_reply()
    made = await with_client(api, create())
    assert made.id == "TH1"
    assert len(api.made) == 1
    assert header(made, "Idempotent-Replayed") == "true"
    assert header(made, "Idempotency-Key")
    assert header(made, "Original-Request") != header(made, "Request-Id") == header(made, "X-Request-Id")
    await api.gateway.counted(1, "idempotency_requests_total", route="guarded", decision="replay")


async def test_a_first_answer_looks_like_stripes(api: Shop) -> None:
    """The key is echoed, and the exchange is its own original."""
    key = str(uuid.uuid4())
    made = await with_client(api, create(key))
    assert header(made, "Idempotency-Key") == key
    assert header(made, "Original-Request") == header(made, "Request-Id")
    assert header(made, "Idempotent-Replayed") is None


async def test_a_mismatch_raises_the_sdks_own_error(api: Shop) -> None:
    """Other parameters under a used key: IdempotencyError, at once, with the sentence that Stripe's users know."""
    key = str(uuid.uuid4())
    await with_client(api, create(key))
    with pytest.raises(stripe.IdempotencyError, match=f"Try using a key other than '{key}'") as raised:
        await with_client(api, create(key, amount=200))
    assert raised.value.http_status == 400
    assert raised.value.request_id
    assert len(api.made) == 1
    await api.gateway.counted(1, "idempotency_requests_total", route="guarded", decision="key_misuse")


async def test_a_running_request_is_waited_for(api: Shop) -> None:
    """A second process with the same key is told to try again, does so by itself, and gets the first one's answer."""
    key = str(uuid.uuid4())
    async with api.busy_with(with_client(api, create(key))) as first:
        second = asyncio.ensure_future(with_client(api, create(key), retries=20))
        while await api.gateway.metric("idempotency_requests_total", route="guarded", decision="in_progress") < 1:
            await asyncio.sleep(0.05)
    assert first.result().id == (await second).id == "TH1"
    assert header(second.result(), "Idempotent-Replayed") == "true"
    assert len(api.made) == 1


async def test_a_running_request_outlives_patience(api: Shop) -> None:
    """An SDK that does not retry raises what it raises for Stripe's own conflict."""
    key = str(uuid.uuid4())
    async with api.busy_with(with_client(api, create(key))):
        with pytest.raises(stripe.APIError) as raised:
            await with_client(api, create(key), retries=0)
    assert raised.value.http_status == 409
    assert raised.value.error is not None
    assert raised.value.error.code == "idempotency_key_in_use"


async def test_a_kept_failure_ends_the_retries(api: Shop) -> None:
    """A 500 is kept as Stripe keeps it: the SDK's retry gets it again, is told so, and stops; nothing runs twice."""
    api.status = 500
    with pytest.raises(stripe.APIError) as raised:
        await with_client(api, create(), retries=5)
    assert raised.value.http_status == 500
    assert (raised.value.headers or {}).get("Idempotent-Replayed") == "true"
    assert len(api.made) == 1
    await api.gateway.counted(1, "idempotency_requests_total", route="guarded", decision="replay")


async def test_a_request_without_a_key_passes(api: Shop) -> None:
    """Reads have no key, and are nobody's business."""
    made = await with_client(api, create())
    assert (await with_client(api, lambda client: client.v1.payment_intents.retrieve(made.id))).id == made.id
