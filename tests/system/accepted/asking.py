"""What clients of accepted work send."""

import asyncio
import json
from typing import Any

from tests.support.client import Answer, ask, payment

TENANT = b"Bearer tenant-a"


def status_request(at: bytes, principal: bytes | None = TENANT, *, method: bytes = b"GET", more: tuple[bytes, ...] = ()) -> bytes:
    """A request to a status resource as raw bytes."""
    return payment(None, b"", method=method, target=at, principal=principal, more=more)


async def look(port: int, at: bytes, principal: bytes | None = TENANT, *, method: bytes = b"GET", more: tuple[bytes, ...] = ()) -> Answer:
    """One look at a status resource."""
    return await ask(port, status_request(at, principal, method=method, more=more), timeout=90.0)


def told(answer: Answer) -> dict[str, Any]:
    """The JSON document of an answer."""
    document: dict[str, Any] = json.loads(answer.body)
    return document


def location(answer: Answer) -> bytes:
    """Where a 202 says that the operation is."""
    assert answer.status == 202, (answer.status, answer.body)
    at = answer.field("location")
    assert at is not None
    return at


async def to_its_end(port: int, at: bytes, principal: bytes = TENANT) -> Answer:
    """The stored answer of an operation, polled for as a client does."""
    async with asyncio.timeout(120):
        while (document := told(await look(port, at + b"?wait=5", principal)))["status"] != "completed":
            await asyncio.sleep(0.05)
    return await look(port, document["response"].encode(), principal)
