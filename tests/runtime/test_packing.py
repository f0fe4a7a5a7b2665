"""Stored bodies packed beside the event loop."""

import hashlib

import pytest

from gateway.core.model import StoredResponse
from gateway.core.packing import INLINE, unpack
from gateway.runtime.packing import pack_response, unpack_body


def response(body: bytes) -> StoredResponse:
    return StoredResponse(200, b"OK", (), body, len(body), hashlib.sha256(body).digest())


@pytest.mark.parametrize("size", [0, 10, 10_000, INLINE + 1])
async def test_bodies_are_packed_where_it_pays(size: int) -> None:
    """And come back as they were; what is packed already, or not kept, stays as it is."""
    plain = response(b"x" * size)
    kept = await pack_response(plain)
    assert unpack(kept.encoding, kept.body or b"", kept.body_length) == plain.body
    assert await unpack_body(kept) == plain.body
    assert (kept.encoding != 0) == (size >= 10_000)
    assert await pack_response(kept) is kept
    bare = plain.without_body()
    assert await pack_response(bare) is bare
