"""Reads a body at the upstream's pace, whatever the client's. A relayed body leaves as it comes, except its last piece,
which waits for the commit.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

from gateway.ports import Memory, Observer, Spool, UpstreamResponse

SILENCE = 0.05
"""Seconds without a piece after which a stream counts as silent, not as ended."""


class Relay:
    """The body of one answer that is not read in one piece. `on_relay` is called once, when it begins to be relayed."""

    def __init__(self, memory: Memory, observer: Observer, on_relay: Callable[[UpstreamResponse, Spool], None]) -> None:
        self.spool = memory.spool()
        self.relaying = False
        self._observer = observer
        self._on_relay = on_relay
        self._held_back = b""

    async def read(self, response: UpstreamResponse, cap: int, *, stream: bool) -> tuple[int, bytes]:
        """Read to the end. Returns length and SHA-256. A body larger than `cap` is relayed and not kept; a `stream` is
        relayed, too.
        """
        if stream or (response.content_length or 0) > cap:
            self._relay(response)
        length, digest = 0, hashlib.sha256()
        chunks = response.chunks()
        while (chunk := await self._next(chunks, response)) is not None:
            if not chunk:
                continue  # the piece that is held back until the commit must be a real one
            length += len(chunk)
            digest.update(chunk)
            if length > cap:
                self._relay(response)
                self.spool.let_go()
            await self.spool.write(self._held_back)
            self._held_back = chunk
        if not self.relaying:
            self.spool.end(self._held_back)
        return length, digest.digest()

    async def whole(self, length: int) -> bytes | None:
        """The body in one piece. None if some of it is lost: then its record completes without it."""
        try:
            whole = await self.spool.load()
        except OSError as error:
            self._observer.background_failed("attempt", error)
            return None
        whole = whole if self.spool.ended else whole + self._held_back
        return whole if len(whole) == length else None

    @property
    def ended(self) -> bool:
        """Whether its last piece was let go."""
        return self.spool.ended

    def end(self) -> None:
        """Let the last piece go: the answer may end normally."""
        self.spool.end(self._held_back)

    def cut(self) -> None:
        """Cut the answer short, unless it has ended already."""
        if not self.spool.ended:
            self.spool.cut()

    def close(self) -> None:
        """The attempt needs it no more. What its client has not got yet stays until it has."""
        self.cut()
        self.spool.close()

    async def _next(self, chunks: AsyncIterator[bytes], response: UpstreamResponse) -> bytes | None:
        """The next piece; None at the end. While a stream of unknown length is silent, the piece that is held back is
        let go: an event must not wait for the next one. What waits for the commit then is the end of the body alone.
        """
        coming = anext(chunks, None)
        if not (self.relaying and self._held_back) or response.content_length is not None:
            return await coming
        task = asyncio.ensure_future(coming)
        try:
            await asyncio.wait({task}, timeout=SILENCE)
            if not task.done():
                await self.spool.write(self._held_back)
                self._held_back = b""
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def _relay(self, response: UpstreamResponse) -> None:
        if not self.relaying:
            self.relaying = True
            self._on_relay(response, self.spool)
