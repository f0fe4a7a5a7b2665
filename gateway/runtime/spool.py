"""Bodies that are too large for memory, and the count of what memory holds.

A body is written to memory first and to an unlinked temporary file once it is larger than `SPILL_ABOVE`, or as soon as the process
holds as much as it may. Reading follows the writing, from memory or disk, so that a slow client never holds an upstream back. Files
have no name: nothing is left behind by a process that dies.
"""

import asyncio
import hashlib
import os
import tempfile
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from gateway.ports import RelayCut

T = TypeVar("T")

SPILL_ABOVE = 1024 * 1024
"""A body of more bytes than this is moved to disk."""

FLUSH = 256 * 1024
"""How much is gathered for one write, once a body is on disk; also how much one read takes."""

BEHIND = 1024 * 1024 * 1024
"""How many bytes a reader may be behind a body that is not kept, before it is cut."""


class MemoryBudget:
    """Implements `gateway.ports.Memory`. `total` is in bytes; `directory` None means the system's temporary folder.

    `disk_failed` is called when a body had to stay in memory.
    With `offload` False files are read and written without threads, for loops that have none.
    """

    def __init__(
        self,
        total: int,
        directory: str | None = None,
        *,
        offload: bool = True,
        disk_failed: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        self.total = total
        self.disk_failed = disk_failed
        self.directory = directory
        self.offload = offload
        self.held = 0

    @property
    def full(self) -> bool:
        return self.held >= self.total

    def take(self, size: int) -> None:
        self.held += size

    def give(self, size: int) -> None:
        self.held -= size

    def spool(self) -> "SpooledBody":
        return SpooledBody(self)


class SpooledBody:
    """Implements `gateway.ports.Spool`.

    The bytes up to `_spilled` are in the file, those behind it in `_chunks`, which begin at the offsets `_starts`. `_from` is the first
    byte that is still kept, which moves only after `let_go`.
    """

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._hash = hashlib.sha256()
        self._chunks: list[bytes] = []
        self._starts: list[int] = []
        self._held = 0
        self._file: _File | None = None
        self._disk_failed = False
        self._spilled = 0
        self._from = 0
        self._length = 0
        self._read = 0
        self._keep = True
        self._flushing = False
        self._ended = False
        self._cut = False
        self._holders = 1
        self._wake = asyncio.Event()

    @property
    def length(self) -> int:
        return self._length

    @property
    def sha256(self) -> bytes:
        return self._hash.digest()

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def on_disk(self) -> bool:
        """Whether anything of it is in a file."""
        return self._file is not None

    # ---- write

    async def write(self, piece: bytes) -> None:
        if not self._append(piece):
            return
        on_disk = self._file is not None or self._memory.full
        if self._held > (FLUSH if on_disk else SPILL_ABOVE) and not self._disk_failed:
            await self._flush()

    def end(self, last: bytes = b"") -> None:
        self._append(last)
        self._ended = True
        self._wake.set()

    def cut(self) -> None:
        self._cut = True
        self._drop_chunks(len(self._chunks))
        self._wake.set()

    def let_go(self) -> None:
        self._keep = False
        self._forget_read()

    def _append(self, piece: bytes) -> bool:
        """Whether anything was added."""
        self._hash.update(piece)
        if not piece or self._cut:
            self._length += len(piece)
            return False
        self._chunks.append(piece)
        self._starts.append(self._length)
        self._length += len(piece)
        self._held += len(piece)
        self._memory.take(len(piece))
        if not self._keep:
            if self._holders < 2:
                self._read = self._length  # nobody reads any more
            self._forget_read()
            if self._length - self._read > (SPILL_ABOVE * 8 if self._disk_failed else BEHIND):
                self.cut()
        self._wake.set()
        return True

    async def _flush(self) -> None:
        """Move what memory holds to the file. A disk that fails is not asked again: the body stays in memory, and is counted."""
        chunks = self._chunks[:]
        self._flushing = True
        try:
            if self._file is None:
                self._from = self._spilled = self._starts[0]
                self._file = await self._threaded(lambda: _File(self._memory.directory))
            file, at = self._file, self._spilled - self._from
            await self._threaded(lambda: file.write(at, chunks))
        except OSError as error:
            self._disk_failed = True
            self._memory.disk_failed(error)
            return
        finally:
            self._flushing = False
        if not self._cut:
            self._spilled += sum(map(len, chunks))
            self._drop_chunks(len(chunks))

    # ---- read

    async def pieces(self) -> AsyncIterator[bytes]:
        at = 0
        while True:
            self._wake.clear()
            if self._cut:
                raise RelayCut
            if at < self._length:
                try:
                    piece = await self._piece(at)
                except OSError as error:
                    raise RelayCut from error
                at += len(piece)
                yield piece
                self._read = at
                if not self._keep:
                    self._forget_read()
            elif self._ended:
                return
            else:
                await self._wake.wait()

    async def load(self) -> bytes:
        file, spilled = self._file, self._spilled - self._from
        head = await self._threaded(lambda: file.read(0, spilled)) if file is not None and spilled else b""
        return b"".join((head, *self._chunks))

    async def _piece(self, at: int) -> bytes:
        file = self._file
        if at < self._spilled and file is not None:
            offset, size = at - self._from, min(FLUSH, self._spilled - at)
            return await self._threaded(lambda: file.read(offset, size))
        index = bisect_right(self._starts, at) - 1
        return self._chunks[index][at - self._starts[index] :]

    def _forget_read(self) -> None:
        """Free what the reader has passed: pieces in memory, and the file once all of it was read."""
        if self._flushing:
            return
        passed = bisect_right(self._starts, self._read)
        if passed and self._starts[passed - 1] + len(self._chunks[passed - 1]) > self._read:
            passed -= 1
        self._drop_chunks(passed)
        if self._read >= self._spilled:
            self._file = None

    def _drop_chunks(self, count: int) -> None:
        size = sum(map(len, self._chunks[:count]))
        del self._chunks[:count], self._starts[:count]
        self._held -= size
        self._memory.give(size)

    # ---- holders

    def hold(self) -> None:
        self._holders += 1

    def close(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self._free()

    def __del__(self) -> None:
        self._free()

    def _free(self) -> None:
        self._drop_chunks(len(self._chunks))
        self._file = None

    async def _threaded(self, work: Callable[[], T]) -> T:
        """In a thread: a disk under load makes even small writes wait. The file outlives a cancelled wait, see `_File`."""
        return await asyncio.to_thread(work) if self._memory.offload else work()


class _File:
    """An unlinked temporary file, closed by its last reference.

    A thread that still works on it after its waiter was cancelled keeps it open, so that its number cannot pass to another file meanwhile.
    """

    _fd: int | None = None

    def __init__(self, directory: str | None) -> None:
        self._fd, path = tempfile.mkstemp(prefix="gateway-", dir=directory)
        os.unlink(path)

    def write(self, at: int, chunks: Sequence[bytes]) -> None:
        assert self._fd is not None
        data = memoryview(b"".join(chunks))
        while data:
            written = os.pwrite(self._fd, data, at)
            data, at = data[written:], at + written

    def read(self, at: int, size: int) -> bytes:
        """Exactly `size` bytes. Raises OSError otherwise."""
        assert self._fd is not None
        pieces = []
        while size > 0:
            piece = os.pread(self._fd, size, at)
            if not piece:
                raise OSError("a temporary file is shorter than what was written")
            pieces.append(piece)
            at, size = at + len(piece), size - len(piece)
        return b"".join(pieces)

    def __del__(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
