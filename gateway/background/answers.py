"""What a look learned as the answer that a record keeps."""

import asyncio

from gateway.core.model import StoredResponse
from gateway.core.packing import INLINE
from gateway.core.packing import packed as packed_here


async def packed(plain: StoredResponse) -> StoredResponse:
    """The response as its record keeps it, if it is not already. Long bodies are packed off the event loop."""
    if plain.body is None or plain.encoding or len(plain.body) <= INLINE:
        return plain if plain.encoding else packed_here(plain)
    return await asyncio.to_thread(packed_here, plain)
