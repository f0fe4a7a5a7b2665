"""Those who wait for another attempt, and their clients' connections."""

import socket
import struct
from contextlib import AsyncExitStack

from gateway.core.model import Record, RecordKey
from gateway.engine.waiting import Waiting
from gateway.http.request import Request
from gateway.http.response import WireResponse, wire_response
from gateway.runtime.system import SystemClock
from tests.engine.stage import NotingObserver
from tests.http.connections.house import House, connection_of, request, until

RESET = struct.pack("ii", 1, 0)


async def nothing(_: RecordKey) -> Record | None:
    raise AssertionError("an attempt of this process is under way: nobody looks")


async def test_hang_ups_leave_no_waiters(house: House) -> None:
    """Whether the client's end is a reset or a FIN, which an HTTP client sends that has lost its patience; who is still there gets an
    answer.
    """
    waiting = Waiting(SystemClock(), NotingObserver(), nothing, lambda _: True)

    async def wait(asked: Request) -> WireResponse:
        with waiting.place(RecordKey("payments:none", "key-1"), 300, connection_of(asked)) as place:
            seen = await place.next()
        return wire_response(409, b"Conflict", (), b"in progress" if seen is None else b"ended")

    house.answering = wait
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(house.peer()) for _ in range(30)]
        for peer in peers:
            await peer.send(request("POST", "/1", "Content-Length: 2", body=b"ok"))
        await until(lambda: waiting.places == 30)
        for peer in peers[:10]:
            peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            peer.raw.close()
        for peer in peers[10:20]:
            peer.end()
        await until(lambda: waiting.places == 10)
        assert {(await peer.answer()).body for peer in peers[10:20]} == {b"in progress"}
        for peer in peers[20:]:
            peer.raw.close()
        await until(lambda: waiting.places == 0)
    await house.closed()
