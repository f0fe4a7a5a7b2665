"""An upstream's answer on its way into a record and out of it: packed where that pays, and off the event loop where that takes long."""

from gateway.core.model import StoredResponse
from gateway.core.packing import PLAIN, pack, unpack
from gateway.core.policy import Expired, OnExpired, Policy
from gateway.engine.tools import Tools
from gateway.ports import Body, Retention

INLINE = 64 * 1024
"""Bodies up to this size are read whole, and packed and unpacked in place."""

LARGE = 1024 * 1024
"""A replayed body above this is moved to disk, since its client may be slow."""


def retention_of(policy: Policy, seconds: float | None = None) -> Retention:
    """What becomes of a record after its end; `seconds` overrides the route's own retention."""
    return Retention(
        policy.retention if seconds is None else seconds,
        policy.tombstone if policy.on_expired is OnExpired.GONE else None,
        policy.keep_for if policy.expired is Expired.KEEP else None,
    )


async def keep(tools: Tools, plain: StoredResponse) -> StoredResponse:
    """The response as its record keeps it."""
    body = plain.body
    if body is None:
        return plain
    encoding, packed = pack(body, plain.headers) if len(body) <= INLINE else await tools.offload(pack, body, plain.headers)
    if encoding == PLAIN:
        return plain
    return StoredResponse(plain.status, plain.reason, plain.headers, packed, plain.body_length, plain.body_digest, encoding)


async def recall(tools: Tools, response: StoredResponse) -> bytes | Body:
    """The body of a stored response that has one. Raises ValueError if it cannot be unpacked."""
    packed = response.body or b""
    if response.encoding == PLAIN:
        body = packed
    elif response.body_length <= INLINE:
        body = unpack(response.encoding, packed, response.body_length)
    else:
        body = await tools.offload(unpack, response.encoding, packed, response.body_length)
    if len(body) <= LARGE:
        return body
    spool = tools.memory.spool()
    for at in range(0, len(body), LARGE):
        await spool.write(body[at : at + LARGE])
    spool.end()
    return spool
