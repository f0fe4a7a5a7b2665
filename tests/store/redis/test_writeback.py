"""Writes that are gathered: none waits long, and none keeps another from its turn."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import StoreUnavailable
from gateway.runtime.system import SystemClock
from gateway.store.null_observer import NullObserver
from gateway.store.redis.connection import pack, pack_acquire, pack_complete
from gateway.store.redis.hotpath import Told
from gateway.store.redis.writeback import GATHERED, Write, Writeback


@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=300), st.integers(1, 10**12))
def test_a_command_is_packed_as_the_driver_packs_it(sha: bytes, key: bytes, lease: bytes, value: bytes, ttl_ms: int) -> None:
    assert pack_acquire(key, value, ttl_ms) == pack(b"SET", key, value, b"NX", b"GET", b"PX", ttl_ms)
    assert pack_complete(sha, key, lease, value, ttl_ms) == pack(b"EVALSHA", sha, b"1", key, lease, b"complete", ttl_ms, value)


async def test_writes_are_gathered_for_a_moment() -> None:
    """In order, and all at once; meanwhile they are pending."""
    writes = Writeback(SystemClock(), NullObserver())
    begun: list[object] = []

    def writer(number: int) -> Write:
        def write(told: Told) -> None:
            begun.append(number)
            told(True)

        return write

    for number in range(3):
        writes.submit("complete", b"%d" % number, writer(number), 1e12)
    assert begun == []
    assert all(writes.pending(b"%d" % number) for number in range(3))
    await asyncio.sleep(GATHERED * 5)
    assert begun == [0, 1, 2]
    assert not any(writes.pending(b"%d" % number) for number in range(3))


async def test_a_drain_does_not_wait_for_more() -> None:
    writes = Writeback(SystemClock(), NullObserver())
    begun: list[object] = []

    def write(told: Told) -> None:
        begun.append(told)
        told(False)

    writes.submit("delete", b"a", write, 1e12)
    assert await writes.drain(0)
    assert len(begun) == 1


@pytest.mark.parametrize("before", [True, False])
async def test_a_write_that_fails_on_our_side_is_tried_again_and_keeps_no_other_back(before: bool) -> None:
    writes = Writeback(SystemClock(), NullObserver())
    tried: list[Told] = []
    others: list[Told] = []

    def fail(told: Told) -> None:
        tried.append(told)
        if len(tried) > 1:
            told(True)
            return
        if not before:
            told(StoreUnavailable("redis", "timeout", may_have_landed=True))
        raise RuntimeError

    def other(told: Told) -> None:
        others.append(told)
        told(True)

    writes.submit("complete", b"a", fail, 1e12)
    writes.submit("complete", b"b", other, 1e12)
    assert await writes.drain(10)
    assert (len(tried), len(others)) == (2, 1)
    assert not writes.pending(b"a")
