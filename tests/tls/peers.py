"""A TLS server that echoes, and clients that tell what they saw."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

import trustme


@dataclass(frozen=True, slots=True)
class Link:
    """One open connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def echo(self, data: bytes = b"hello") -> bytes:
        self.writer.write(data)
        return await self.reader.readexactly(len(data))

    @property
    def tls(self) -> ssl.SSLObject:
        found = self.writer.get_extra_info("ssl_object")
        assert isinstance(found, ssl.SSLObject)
        return found

    @property
    def certificate(self) -> bytes:
        """What the server showed, in DER."""
        found = self.tls.getpeercert(binary_form=True)
        assert found is not None
        return found

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[int]:
    """A server on a free port of 127.0.0.1 that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def connected(port: int, context: ssl.SSLContext, name: str = "localhost") -> AsyncIterator[Link]:
    """A connection that has carried something both ways, so that the server has agreed to it (in TLS 1.3 it speaks last)."""
    link = Link(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name))
    try:
        assert await link.echo() == b"hello"
        yield link
    finally:
        await link.close()


async def refused(port: int, context: ssl.SSLContext) -> bool:
    """Whether no connection comes about, on either side's account."""
    try:
        async with connected(port, context):
            return False
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return True


def client(authority: trustme.CA, issued: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """A client that trusts `authority` and shows `issued`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if issued is not None:
        issued.configure_cert(context)
    return context
