"""Reading a client's request body."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from gateway.core.fingerprint import LARGE_BODY
from gateway.core.multipart import parts_reader
from gateway.engine.request import Held
from gateway.http.request import BodyLost, Request
from gateway.http.response import CONTINUE
from gateway.ports import Body, Memory

SMALL = 8 * 1024
"""Bodies up to this size are not counted: every connection may have that much. Larger ones are, and above `LARGE_BODY` they go to disk
while they are hashed.
"""


class ClientGone(Exception):
    """The client hung up, or broke its own framing, before its request was whole: there was no request (RFC 9112 section 8)."""


class ClientSilent(Exception):
    """The client has sent nothing of its body for too long, or too little."""


class BodyTooLarge(Exception):
    """The body has more bytes than the route takes."""


class MemoryFull(Exception):
    """The process holds as much as it may: the body is not taken."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A whole body, what holds it, to be closed by its owner, and, of a spilled multipart body, the digest of its parts."""

    body: bytes | Body
    held: Held | None = None
    parts: bytes | None = None


class Counted:
    """Counted memory that one request holds."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._size = 0

    def grow(self, size: int) -> None:
        self._memory.take(size)
        self._size += size

    def close(self) -> None:
        self._memory.give(self._size)
        self._size = 0

    def __del__(self) -> None:
        self.close()


def expect_continue(request: Request, *, expected: bool) -> None:
    """Answer `Expect: 100-continue` once the body is really wanted: refusals by the head alone go out before it is sent."""
    transport = request.connection.transport
    if expected and request.version[1] == 1 and transport is not None:
        transport.write(CONTINUE)


class Pace:
    """How long the client of one body is waited for, in seconds: `silence` at first, and what it sends earns more at `rate` bytes a second.

    Never more than `silence` is left, so that nobody can save up for a pause. A `rate` of 0 earns all of it with every byte. Only the time
    in which we wait counts, not that in which an upstream takes its time.
    """

    __slots__ = ("_rate", "_silence", "left")

    def __init__(self, silence: float, rate: int) -> None:
        self._silence = silence
        self._rate = rate
        self.left = silence

    def came(self, size: int, waited: float = 0.0) -> None:
        """So much came, after so many seconds."""
        if self._rate:
            self.left = min(self._silence, self.left - waited + size / self._rate)


async def read_body(request: Request, limit: int, pace: Pace, memory: Memory) -> Taken:
    """The whole body.

    Raises `BodyTooLarge` as soon as it has more than `limit` bytes, `ClientGone` if it never becomes whole, `ClientSilent` when `pace` has
    no time left, `MemoryFull` if the process cannot hold it.
    """
    if not request.body.exists:
        return Taken(b"")
    incoming = request.body
    body = b""
    pieces: list[bytes] = []
    size = 0
    counted: Counted | None = None
    while not incoming.at_end:
        body = await _next(request, pace)
        size += len(body)
        if size > limit:
            raise BodyTooLarge
        pieces.append(body)
        if size > SMALL:
            if memory.full:
                raise MemoryFull
            if size > LARGE_BODY:
                return await _spill(request, limit, pace, memory, pieces)
            counted = counted or Counted(memory)
            counted.grow(len(body))
    return Taken(body if size == len(body) else b"".join(pieces), counted)


async def _spill(request: Request, limit: int, pace: Pace, memory: Memory, pieces: list[bytes]) -> Taken:
    """Go on reading into a file, and judge what can only be judged while it comes."""
    incoming, spool = request.body, memory.spool()
    parts = parts_reader(request.headers)
    try:
        for piece in pieces:
            await spool.write(piece)
            if parts is not None:
                parts.feed(piece)
        pieces.clear()
        while not incoming.at_end:
            piece = await _next(request, pace)
            if spool.length + len(piece) > limit:
                raise BodyTooLarge
            await spool.write(piece)
            if parts is not None:
                parts.feed(piece)
        spool.end()
    except BaseException:
        spool.close()
        raise
    return Taken(spool, spool, None if parts is None else parts.digest())


async def stream_body(request: Request, pace: Pace) -> AsyncIterator[bytes]:
    """The body in pieces as they come, with backpressure on the client. Raises like `read_body`."""
    while True:
        chunk = await _next(request, pace)
        if chunk:
            yield chunk
        if request.body.at_end:
            return


async def _next(request: Request, pace: Pace) -> bytes:
    """What has arrived, waiting for it as long as `pace` says. Empty only at the end."""
    body = request.body
    try:
        piece = body.take()  # a timer for each piece would cost as much as the piece
        if piece or body.at_end:
            pace.came(len(piece))
            return piece
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(pace.left):
            piece = await body.read()
        pace.came(len(piece), loop.time() - began)
        return piece
    except TimeoutError as error:
        raise ClientSilent from error
    except BodyLost as error:
        raise ClientGone from error
