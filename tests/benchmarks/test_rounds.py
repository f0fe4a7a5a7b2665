"""What one round of a benchmark asks for."""

import asyncio
import os
import re

from benchmarks.rounds import measure
from benchmarks.systems import System

ANSWER = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"


class Upstream(asyncio.Protocol):
    """Answers everything, and remembers the keys in their order."""

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.keys += re.findall(rb"Idempotency-Key: (\S+)", data)
        self.transport.write(ANSWER)


async def test_no_new_key_of_a_round_is_one_that_was_stored_for_replays() -> None:
    """Both are measured on one gateway, in turns: whichever comes first, a new key is new."""
    seen: list[bytes] = []
    server = await asyncio.get_running_loop().create_server(lambda: Upstream(seen), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        replays, new = System("replays", port, os.getpid(), keys=20), System("new keys", port, os.getpid())
        await measure(replays, 2, 30, "round-1")
        stored, count = set(seen), len(seen)
        await measure(new, 2, 30, "round-1")
    assert (len(stored), count) == (20, 50)
    assert len(set(seen[count:])) == 30
    assert not stored & set(seen[count:])
