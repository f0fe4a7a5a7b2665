"""Bodies in memory and on disk: what is written is what is read, whoever is slow, and everything is given back."""

import asyncio
import errno
import gc
import hashlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.ports import RelayCut
from gateway.runtime import spool as module
from gateway.runtime.spool import MemoryBudget, SpooledBody

MIB = 1024 * 1024


async def everything(body: SpooledBody) -> bytes:
    return b"".join([piece async for piece in body.pieces()])


def files_of(folder: Path) -> int:
    """How many deleted files of this folder the process has open."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    return sum(link.startswith(f"{folder}/") for link in links)


async def no_files_of(folder: Path) -> None:
    """Until none is open any more: a thread lets go of its last piece of work a moment after that is done."""
    async with asyncio.timeout(10):
        while files_of(folder):
            await asyncio.sleep(0.01)


async def test_a_small_body_stays_in_memory_and_is_counted(tmp_path: Path) -> None:
    """No file for what memory can hold; the count follows, and ends at nothing."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    await body.write(b"one ")
    await body.write(b"two")
    body.end()
    assert (memory.held, body.length, body.on_disk) == (7, 7, False)
    assert body.sha256 == hashlib.sha256(b"one two").digest()
    assert await everything(body) == await body.load() == b"one two"
    body.close()
    assert memory.held == 0


async def test_a_large_body_goes_to_a_file_without_a_name(tmp_path: Path) -> None:
    """Memory holds little of it, the folder shows nothing, and closing frees both."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    data = random.Random(1).randbytes(5 * MIB + 17)
    for at in range(0, len(data), 70_001):
        await body.write(data[at : at + 70_001])
    body.end()
    assert body.on_disk
    assert memory.held <= module.FLUSH + 70_001
    assert os.listdir(tmp_path) == []
    assert files_of(tmp_path) == 1
    assert await everything(body) == await body.load() == data
    assert body.sha256 == hashlib.sha256(data).digest()
    body.close()
    assert memory.held == 0
    await no_files_of(tmp_path)


async def test_reading_follows_writing(tmp_path: Path) -> None:
    """A reader that is there from the start gets each piece as it comes, across the move to disk."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    reading = asyncio.create_task(everything(body))
    for number in range(30):
        await body.write(bytes([number]) * 100_000)
        await asyncio.sleep(0)
    assert not reading.done()
    body.end(b"last")
    assert await reading == b"".join(bytes([number]) * 100_000 for number in range(30)) + b"last"
    body.close()


async def test_a_cut_body_never_ends_normally(tmp_path: Path) -> None:
    """Neither for a reader that waits, nor for one that comes later; what comes behind the cut is dropped."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    await body.write(b"some")
    reading = asyncio.create_task(everything(body))
    await asyncio.sleep(0)
    body.cut()
    await body.write(b"more")
    body.end()
    with pytest.raises(RelayCut):
        await reading
    with pytest.raises(RelayCut):
        await everything(body)
    assert memory.held == 0


async def test_a_process_that_holds_its_fill_goes_to_disk_at_once(tmp_path: Path) -> None:
    """Beyond the total, bodies that are under way take hardly any more memory."""
    memory = MemoryBudget(MIB, str(tmp_path))
    memory.take(MIB)
    assert memory.full
    body = memory.spool()
    for _ in range(8):
        await body.write(b"x" * 100_000)
    assert body.on_disk
    assert memory.held <= MIB + module.FLUSH + 100_000
    body.close()


async def test_a_full_disk_costs_memory_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing never fails: the body is kept in memory, which is counted, so that new work is refused instead."""

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_space)
    memory = MemoryBudget(2 * MIB, str(tmp_path))
    body = memory.spool()
    data = bytes(100_000) * 30
    for at in range(0, len(data), 100_000):
        await body.write(data[at : at + 100_000])
    body.end()
    assert memory.full
    assert await everything(body) == data
    body.close()
    assert memory.held == 0


async def test_what_is_let_go_is_freed_as_it_is_read(tmp_path: Path) -> None:
    """A body that nobody stores takes no more room than its reader is behind, in memory and on disk."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    body.hold()
    body.let_go()
    pieces = body.pieces()
    for number in range(100):
        await body.write(bytes([number]) * 100_000)
        assert await anext(pieces) == bytes([number]) * 100_000
        assert memory.held <= 100_000
    assert not body.on_disk


async def test_what_nobody_reads_any_more_is_dropped_at_once(tmp_path: Path) -> None:
    """The client has gone: the rest of an answer that is not stored is read from the upstream and kept nowhere."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    body.hold()
    body.let_go()
    body.close()
    for _ in range(50):
        await body.write(b"x" * 100_000)
    assert (memory.held, body.on_disk) == (0, False)
    body.close()


async def test_a_reader_too_far_behind_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is not endless."""
    monkeypatch.setattr(module, "BEHIND", 3 * MIB)
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    body.hold()
    body.let_go()
    for _ in range(40):
        await body.write(b"x" * 100_000)
    with pytest.raises(RelayCut):
        await everything(body)
    assert memory.held == 0


async def test_a_body_that_is_forgotten_is_freed(tmp_path: Path) -> None:
    """Whoever dropped it without closing it: the garbage collector does."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    for _ in range(20):
        await body.write(b"x" * 100_000)
    del body
    gc.collect()
    assert memory.held == 0
    await no_files_of(tmp_path)


async def test_a_cancelled_write_loses_nothing(tmp_path: Path) -> None:
    """The piece is there already; what a thread still does to the file does no harm."""
    memory = MemoryBudget(16 * MIB, str(tmp_path))
    body = memory.spool()
    writing = asyncio.create_task(body.write(b"a" * 2 * MIB))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await body.write(b"b" * MIB)
    body.end(b"c")
    assert await everything(body) == b"a" * 2 * MIB + b"b" * MIB + b"c"
    body.close()
    assert memory.held == 0


@settings(max_examples=60)
@given(st.lists(st.integers(0, 700_000), max_size=12), st.lists(st.booleans(), min_size=12, max_size=12), st.integers(0, 1 << 20))
def test_what_is_written_is_what_is_read(sizes: list[int], read_after: list[bool], last: int) -> None:
    """Any pieces, read at any time: the same bytes in the same order, the same digest, and nothing is held at the end."""

    async def play() -> None:
        memory = MemoryBudget(1 << 30, offload=False)
        body = memory.spool()
        source = random.Random(len(sizes))
        written = [source.randbytes(size) for size in sizes] + [source.randbytes(last)]
        reader = body.pieces()
        got = b""
        for piece, reads in zip(written[:-1], read_after, strict=False):
            await body.write(piece)
            if reads and len(got) < body.length:
                got += await anext(reader)
        body.end(written[-1])
        async for piece in reader:
            got += piece
        assert got == b"".join(written) == await body.load()
        assert body.sha256 == hashlib.sha256(got).digest()
        body.close()
        assert memory.held == 0

    asyncio.run(play())
