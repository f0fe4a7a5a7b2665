"""A proxy that spreads keys over databases by the first key of each command, and takes all of the command there."""

import asyncio
import zlib
from contextlib import suppress

import hiredis

from gateway.store.redis.connection import ErrorReply
from gateway.store.redis.link import Link

NOTHING = object()


class Sharding:
    """Listens on a free port of 127.0.0.1 in front of `shards`. `async with` starts and stops it. `instead`: what it says of a script with
    two keys.
    """

    def __init__(self, *shards: Link, instead: object = NOTHING) -> None:
        self._shards = shards
        self._instead = instead
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> str:
        """Its URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"redis://:any@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        parser = hiredis.Reader()
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                parser.feed(data)
                while (command := parser.gets()) is not False:
                    writer.write(_encoded(await self._execute([*map(bytes, command)])))

    async def _execute(self, command: list[bytes]) -> object:
        if command[0] == b"AUTH":
            return b"OK"
        key = command[3] if command[0].startswith(b"EVAL") else command[1]
        if self._instead is not NOTHING and command[0] == b"EVALSHA" and command[2] == b"2":
            return self._instead
        try:
            return await self._shards[zlib.crc32(key) % len(self._shards)].execute(*command)
        except ErrorReply as error:
            return error


def _encoded(reply: object) -> bytes:
    match reply:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % reply
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case ErrorReply():
            return b"-%b\r\n" % str(reply).encode()
        case list():
            return b"*%d\r\n%b" % (len(reply), b"".join(map(_encoded, reply)))
        case _:
            raise AssertionError(reply)
