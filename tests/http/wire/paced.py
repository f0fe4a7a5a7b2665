"""Event streams whose pieces go out when a test says so."""

import asyncio
import contextlib

from tests.http.wire.peer import until
from tests.http.wire.stub import DATE, Turn
from tests.support.client import Client

EVENTS = b"HTTP/1.1 200 OK\r\n%b\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" % DATE


def event(number: int) -> bytes:
    return b"data: %d\n\n" % number


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def next_chunk(client: Client, within: float = 6) -> bytes:
    """One chunk's data; empty for the last one."""
    size = int(await until(client, b"\r\n", within), 16)
    async with asyncio.timeout(within):
        return (await client.reader.readexactly(size + 2))[:-2]


class Paced:
    """An event stream whose pieces go out one by one, when the test says so."""

    def __init__(self, head: bytes = EVENTS) -> None:
        self.head = head
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def script(self, turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await turn.say(self.head)
        watching = asyncio.get_running_loop().create_task(self._watch(turn))
        try:
            while (piece := await self.pieces.get()) is not None:
                with contextlib.suppress(ConnectionError):
                    await turn.say(piece)
        finally:
            watching.cancel()

    async def _watch(self, turn: Turn) -> None:
        await turn.left()
        self.gone.set()
        self.pieces.put_nowait(None)

    def tell(self, *numbers: int) -> None:
        for number in numbers:
            self.pieces.put_nowait(chunk(event(number)))

    def end(self) -> None:
        self.pieces.put_nowait(b"0\r\n\r\n")
        self.pieces.put_nowait(None)
