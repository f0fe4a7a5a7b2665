"""A client that hides nothing: it sends the bytes it is given and shows the bytes it gets."""

import asyncio
from dataclasses import dataclass

Fields = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. `head` is the raw head without the empty line; `fields` are its lines in order."""

    status: int
    reason: bytes
    fields: Fields
    body: bytes
    head: bytes

    def field(self, name: str) -> bytes | None:
        """The value of the first line with this name."""
        return next((value for field, value in self.fields if field.lower() == name.lower().encode()), None)

    @property
    def problem(self) -> str | None:
        """The last segment of a problem document's type; None for any other answer."""
        if self.field("content-type") != b"application/problem+json":
            return None
        import json  # noqa: PLC0415 - the one place that reads JSON here

        document = json.loads(self.body)
        assert document["status"] == self.status
        return str(document["type"]).rpartition(":")[2]


class Client:
    """One connection. Use `async with await Client.connect(port)`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Hang up as a crashing client does."""
        self.writer.transport.abort()

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def receive(self, *, head_only: bool = False) -> Answer:
        """Read one final response. Raises IncompleteReadError when the connection ends before it is whole."""
        while True:
            head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4]
            line, *lines = head.split(b"\r\n")
            _, status, reason = line.split(b" ", 2)
            if not status.startswith(b"1"):
                break
        fields = tuple((name, value.removeprefix(b" ")) for name, _, value in (one.partition(b":") for one in lines))
        answer = Answer(int(status), reason, fields, b"", head)
        body = b"" if head_only or answer.status in {204, 304} else await self._body(answer)
        return Answer(answer.status, reason, fields, body, head)

    async def _body(self, answer: Answer) -> bytes:
        if answer.field("transfer-encoding") == b"chunked":
            pieces = []
            while size := int((await self.reader.readuntil(b"\r\n"))[:-2], 16):
                pieces.append((await self.reader.readexactly(size + 2))[:-2])
            await self.reader.readuntil(b"\r\n")
            return b"".join(pieces)
        length = answer.field("content-length")
        return await self.reader.read() if length is None else await self.reader.readexactly(int(length))

    async def request(self, raw: bytes, *, head_only: bool = False) -> Answer:
        await self.send(raw)
        return await self.receive(head_only=head_only)


PAYMENT = b'{"amount":100,"currency":"EUR"}'


def payment(
    key: bytes | None,
    body: bytes = PAYMENT,
    *,
    method: bytes = b"POST",
    target: bytes = b"/v1/pay",
    principal: bytes | None = b"Bearer tenant-a",
    more: tuple[bytes, ...] = (),
) -> bytes:
    """A payment request as raw bytes. `more` are further header lines."""
    lines = [b"%b %b HTTP/1.1" % (method, target), b"Host: gateway.test", b"Content-Type: application/json"]
    if principal is not None:
        lines.append(b"Authorization: " + principal)
    if key is not None:
        lines.append(b"Idempotency-Key: " + key)
    lines += [*more, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def ask(port: int, raw: bytes, *, timeout: float = 30.0) -> Answer:
    """One request on a connection of its own."""
    async with asyncio.timeout(timeout), await Client.connect(port) as client:
        return await client.request(raw)
