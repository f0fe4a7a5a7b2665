"""An upstream that costs as little as possible: it answers every request with the same 201, and reads nothing but the framing."""

import argparse
import asyncio
from typing import cast

import uvloop

BODY = b'{"id":"ch_000001","account":"alice","amount":100,"currency":"EUR","status":"succeeded","description":"' + b"x" * 120 + b'"}'
ANSWER = (
    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nDate: Fri, 27 Nov 2026 12:00:00 GMT\r\n"
    b"Location: /v1/charges/ch_000001\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
)


class Upstream(asyncio.Protocol):
    """Takes pipelined requests with a Content-Length, one after the other."""

    def __init__(self) -> None:
        self.buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].partition(b"\r\n")[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            self.buffer = self.buffer[end + 4 + length :]
            assert self.transport is not None
            self.transport.write(ANSWER)


async def serve(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    uvloop.run(serve(parser.parse_args().port))
