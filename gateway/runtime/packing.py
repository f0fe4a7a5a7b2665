"""Packing and unpacking stored bodies beside the event loop, where a long body would hold it up."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gateway.core.model import StoredResponse
from gateway.core.packing import INLINE, PLAIN, packed, unpack

P = ParamSpec("P")
T = TypeVar("T")


async def pack_response(plain: StoredResponse) -> StoredResponse:
    """The response as its record keeps it; unchanged if it is packed already."""
    if plain.body is None or plain.encoding != PLAIN:
        return plain
    return await _beside(len(plain.body), packed, plain)


async def unpack_body(response: StoredResponse) -> bytes:
    """The body of a stored response that has one. Raises ValueError if it cannot be unpacked."""
    assert response.body is not None, "the caller has seen to it"
    if response.encoding == PLAIN:
        return response.body
    return await _beside(response.body_length, unpack, response.encoding, response.body, response.body_length)


async def _beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return work(*args, **kwargs) if size <= INLINE else await asyncio.to_thread(work, *args, **kwargs)
