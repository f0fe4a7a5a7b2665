"""What a record keeps of what a look learned."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.background.answers import packed
from gateway.core.answers import built
from gateway.core.packing import INLINE, unpack
from gateway.core.reconcile.found import Built


@given(st.integers(200, 599), st.binary(max_size=64))
def test_a_built_answer_is_described_in_full(status: int, body: bytes) -> None:
    """With length, digest, and the status's own phrase if it has one."""
    answer = built(Built(status, ((b"X-Bank", b"1"),), body))
    assert (answer.status, answer.headers, answer.body) == (status, ((b"X-Bank", b"1"),), body)
    assert (answer.body_length, answer.body_digest) == (len(body), hashlib.sha256(body).digest())
    assert built(Built(201, (), b"")).reason == b"Created"
    assert built(Built(599, (), b"")).reason == b""


@pytest.mark.parametrize("size", [0, 10, 10_000, INLINE + 1])
async def test_bodies_are_packed_where_it_pays(size: int) -> None:
    """And come back as they were; what is packed already, or not kept, stays as it is."""
    plain = built(Built(200, (), b"x" * size))
    kept = await packed(plain)
    assert unpack(kept.encoding, kept.body or b"", kept.body_length) == plain.body
    assert (kept.encoding != 0) == (size >= 10_000)
    assert await packed(kept) is kept
    bare = plain.without_body()
    assert await packed(bare) is bare
