"""An upstream's answer on its way into a record and out of it: packed where that pays, and off the event loop where that takes long."""

from gateway.core.model import StoredResponse
from gateway.core.packing import INLINE, PLAIN, packed, unpack
from gateway.engine.dependencies import Dependencies
from gateway.ports import Body

LARGE = 1024 * 1024
"""A replayed body above this is moved to disk, since its client may be slow."""


async def keep(deps: Dependencies, plain: StoredResponse) -> StoredResponse:
    """The response as its record keeps it."""
    if plain.body is None or len(plain.body) <= INLINE:
        return packed(plain)
    kept: StoredResponse = await deps.offload(packed, plain)
    return kept


def body_at_hand(response: StoredResponse) -> bytes | None:
    """The body of a stored response that has one, if `recall` would give it as it stands."""
    body = response.body
    return body if response.encoding == PLAIN and body is not None and len(body) <= LARGE else None


async def whole_body(deps: Dependencies, response: StoredResponse) -> bytes:
    """The body of a stored response that has one, in memory. Raises ValueError if it cannot be unpacked."""
    stored = response.body or b""
    if response.encoding == PLAIN:
        return stored
    if response.body_length <= INLINE:
        return unpack(response.encoding, stored, response.body_length)
    body: bytes = await deps.offload(unpack, response.encoding, stored, response.body_length)
    return body


async def recall(deps: Dependencies, response: StoredResponse) -> bytes | Body:
    """As `whole_body`, but a large one is no longer in memory."""
    body = await whole_body(deps, response)
    if len(body) <= LARGE:
        return body
    spool = deps.memory.spool()
    for at in range(0, len(body), LARGE):
        await spool.write(body[at : at + LARGE])
    spool.end()
    return spool
