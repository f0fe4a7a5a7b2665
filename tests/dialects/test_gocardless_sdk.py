"""GoCardless' own SDK, unmodified, against a stand-in for its API behind the gateway with `gocardless`, where a retry is a conflict."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gocardless_pro  # type: ignore[import-untyped]  # the SDK has no types
import pytest
from gocardless_pro import errors

from tests.dialects.sdks import Shop, shop
from tests.support.services import Services

PAYMENT = {"amount": 100, "currency": "GBP", "links": {"mandate": "MD1"}}


@pytest.fixture
async def api(services: Services, tmp_path: Path) -> AsyncIterator[Shop]:
    async with shop(services, tmp_path, "gocardless", "/payments", "payments") as api:
        yield api


async def create(api: Shop, key: str | None = None, *, raising: bool = False, **more: Any) -> Any:
    """Create a payment, under a key of the SDK's own making or a given one."""
    client = gocardless_pro.Client("token", base_url=api.base, raise_on_idempotency_conflict=raising)
    headers = {"Idempotency-Key": key} if key else None
    return await asyncio.to_thread(client.payments.create, params={**PAYMENT, **more}, headers=headers)


async def test_an_automatic_retry_finds_what_was_made(api: Shop) -> None:
    """The answer to the first try is lost; the retry's conflict names the payment, and the SDK fetches it for its caller."""
    api.front.drop_next_reply()
    made = await create(api)
    assert (made.id, made.amount) == ("TH1", 100)
    assert len(api.made) == 1
    assert [seen.method for seen in api.upstream.requests] == [b"POST", b"GET"]
    await api.gateway.counted(1, "idempotency_requests_total", route="guarded", decision="replay")


async def test_a_conflict_can_be_seen(api: Shop) -> None:
    """A caller who wants to know gets the SDK's own error, which names the payment."""
    key = str(uuid.uuid4())
    made = await create(api, key)
    with pytest.raises(errors.IdempotentCreationConflictError) as raised:
        await create(api, key, raising=True)
    assert raised.value.conflicting_resource_id == made.id
    assert raised.value.code == 409
    assert raised.value.request_id


async def test_another_payment_under_a_used_key_is_refused(api: Shop) -> None:
    """The SDK does not hand out the first payment for the second one."""
    key = str(uuid.uuid4())
    await create(api, key)
    with pytest.raises(errors.InvalidApiUsageError) as raised:
        await create(api, key, amount=200)
    assert raised.value.code == 422
    assert len(api.made) == 1


async def test_a_running_creation_is_an_invalid_state(api: Shop) -> None:
    """While the first one runs there is nothing to name yet."""
    key = str(uuid.uuid4())
    async with api.busy_with(create(api, key)) as first:
        with pytest.raises(errors.InvalidStateError) as raised:
            await create(api, key)
    assert not isinstance(raised.value, errors.IdempotentCreationConflictError)
    assert first.result().id == "TH1"
