"""Writes that are gathered: none waits long, and none keeps another from its turn."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import StoredResponse
from gateway.ports import StoreUnavailable
from gateway.runtime.system import SystemClock
from gateway.store.completed import CompletedEntry
from gateway.store.null_observer import NullObserver
from gateway.store.redis import writeback as writeback_module
from gateway.store.redis.connection import pack, pack_acquire
from gateway.store.redis.hotpath import Told
from gateway.store.redis.writeback import GATHERED, Following, Settle, Writeback
from tests.store.redis.support import fingerprint

OWNER = bytes(16)


def entry(body: bytes) -> CompletedEntry:
    return CompletedEntry(fingerprint(), OWNER, 10**15, UUID(int=1), 1, 1, "request-1", StoredResponse(201, b"", (), body, len(body), b""))


def writeback(settle: Settle) -> Writeback:
    return Writeback(SystemClock(), NullObserver(), settle)


@given(st.binary(max_size=80), st.binary(max_size=300), st.integers(1, 10**12))
def test_a_command_is_packed_as_the_driver_packs_it(key: bytes, value: bytes, ttl_ms: int) -> None:
    assert pack_acquire(key, value, ttl_ms) == pack(b"SET", key, value, b"NX", b"GET", b"PX", ttl_ms)


async def test_writes_are_gathered_for_a_moment() -> None:
    """In order, and all at once; meanwhile they are pending."""
    begun: list[list[bytes]] = []

    def settle(changes: Sequence[Following]) -> None:
        begun.append([change.lookup for change in changes])
        for change in changes:
            change.told(True)

    writes = writeback(settle)
    for number in range(3):
        writes.follow("complete", b"%d" % number, OWNER, 1e12)
    assert begun == []
    assert all(writes.pending(b"%d" % number) for number in range(3))
    await asyncio.sleep(GATHERED * 5)
    assert begun == [[b"0", b"1", b"2"]]
    assert not any(writes.pending(b"%d" % number) for number in range(3))


async def test_large_answers_do_not_wait_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make the values of all that came in ten milliseconds would hold up the event loop."""
    monkeypatch.setattr(writeback_module, "GATHERED", 60.0)
    begun: list[int] = []
    writes = writeback(lambda changes: begun.append(len(changes)))
    for number in range(12):
        writes.follow("complete", b"%d" % number, OWNER, 1e12, entry(bytes(60_000)))
    assert begun == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == [12]
    writes.follow("complete", b"a", OWNER, 1e12, entry(bytes(60_000)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun == [12]


async def test_a_drain_does_not_wait_for_more() -> None:
    begun: list[Following] = []

    def settle(changes: Sequence[Following]) -> None:
        for change in changes:
            begun.append(change)
            change.told(False)

    writes = writeback(settle)
    writes.follow("delete", b"a", OWNER, 1e12)
    assert await writes.drain(0)
    assert len(begun) == 1


async def test_what_a_quota_writes_is_queued_at_once_behind_what_was_gathered() -> None:
    order: list[object] = []
    writes = writeback(lambda changes: order.extend(change.lookup for change in changes))
    writes.follow("delete", b"a", OWNER, 1e12)
    writes.write("leave", b"b", order.append, 1e12)
    assert order[0] == b"a"
    assert len(order) == 2
    assert writes.pending(b"b")


@pytest.mark.parametrize("before", [True, False])
async def test_a_write_that_fails_on_our_side_is_tried_again_and_keeps_no_other_back(before: bool) -> None:
    """Those that were to leave with it are tried anew each by itself."""
    tried: list[list[bytes]] = []

    def settle(changes: Sequence[Following]) -> None:
        tried.append([change.lookup for change in changes])
        if len(tried) == 1:
            if not before:
                changes[0].told(StoreUnavailable("redis", "timeout", may_have_landed=True))
            raise RuntimeError
        for change in changes:
            change.told(True)

    writes = writeback(settle)
    writes.follow("complete", b"a", OWNER, 1e12)
    writes.follow("complete", b"b", OWNER, 1e12)
    assert await writes.drain(10)
    assert tried[0] == [b"a", b"b"]
    assert sorted(tried[1:]) == [[b"a"], [b"b"]]
    assert not writes.pending(b"a")


async def test_a_quotas_write_that_fails_on_our_side_is_tried_again() -> None:
    tried: list[Told] = []

    def write(told: Told) -> None:
        tried.append(told)
        if len(tried) < 3:
            raise RuntimeError
        told(True)

    writes = writeback(lambda changes: None)
    writes.write("undo", b"a", write, 1e12)
    assert await writes.drain(10)
    assert len(tried) == 3


async def test_a_word_that_comes_twice_ends_a_write_once() -> None:
    heard: list[Following] = []
    writes = writeback(heard.extend)
    writes.follow("complete", b"a", OWNER, 1e12)
    writes.follow("complete", b"a", OWNER, 1e12)
    assert not await writes.drain(0)
    for _ in range(2):
        heard[0].told(True)
    assert writes.pending(b"a")
    heard[1].told(False)
    assert not writes.pending(b"a")


async def test_a_word_that_comes_as_the_writes_are_closed_is_let_pass() -> None:
    """The try was cancelled, and its task has not had its turn: an exception here would cut the connection to Redis."""
    tried: list[Following] = []
    again = asyncio.Event()

    def settle(changes: Sequence[Following]) -> None:
        tried.extend(changes)
        if len(tried) == 1:
            tried[0].told(StoreUnavailable("redis", "timeout", may_have_landed=True))
        else:
            again.set()

    writes = writeback(settle)
    writes.follow("complete", b"a", OWNER, 1e12)
    await again.wait()
    closing = asyncio.create_task(writes.close(0))
    await asyncio.sleep(0)
    tried[1].told(True)
    await closing
    assert not writes.pending(b"a")
