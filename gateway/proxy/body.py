"""Reading a client's request body."""

from collections.abc import AsyncIterator

from aiohttp import ClientError, web
from aiohttp.web_request import BaseRequest

from gateway.wire import CONTINUE

_BROKEN = (ClientError, web.RequestPayloadError, ConnectionError)


class ClientGone(Exception):
    """The client hung up, or broke its own framing, before its request was whole: there was no request (RFC 9112 section 8)."""


class BodyTooLarge(Exception):
    """The body has more bytes than the route takes."""


def expect_continue(request: BaseRequest, expected: bytes | None) -> None:
    """Answer `Expect: 100-continue` once the body is really wanted: refusals by the head alone go out before it is sent."""
    if (
        expected is not None
        and expected.strip().lower() == b"100-continue"
        and request.version.minor == 1
        and request.transport is not None
    ):
        request.transport.write(CONTINUE)


async def read_body(request: BaseRequest, limit: int) -> bytes:
    """The whole body. Raises `BodyTooLarge` as soon as it has more than `limit` bytes, `ClientGone` if it never becomes whole."""
    if not request.body_exists:
        return b""
    content = request.content
    body = b""
    pieces: list[bytes] = []
    size = 0
    try:
        while not content.at_eof():
            body = await content.readany()
            size += len(body)
            if size > limit:
                raise BodyTooLarge
            pieces.append(body)
    except _BROKEN as error:
        raise ClientGone from error
    return body if size == len(body) else b"".join(pieces)


async def stream_body(request: BaseRequest) -> AsyncIterator[bytes]:
    """The body in pieces as they come, with backpressure on the client."""
    content = request.content
    try:
        while True:
            chunk = await content.readany()
            if chunk:
                yield chunk
            if content.at_eof():
                return
    except _BROKEN as error:
        raise ClientGone from error
