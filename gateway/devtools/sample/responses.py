"""How the sample answers, and the ways in which it does not."""

import json
import socket
import struct
from collections.abc import Mapping

from aiohttp import web


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error as this API words it."""
    return answer(error_body(code, message), status=status, headers=headers)


def error_body(code: str, message: str) -> dict[str, object]:
    return {"error": {"code": code, "message": message}}


def answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None, indent: int | None = None) -> web.Response:
    """A JSON answer that ends with a line break, for people with curl."""
    body = json.dumps(value, indent=indent).encode() + b"\n"
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def hang_up(request: web.Request) -> web.Response:
    """Close the connection; the response is a formality."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def reset_when_closed(request: web.Request) -> None:
    """Let the close send RST instead of FIN."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def half(request: web.Request, response: web.Response) -> web.StreamResponse:
    """Send the head and half of the body, then close."""
    body = response.body
    assert isinstance(body, bytes)
    part = web.StreamResponse(status=response.status, headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    await part.prepare(request)
    await part.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return part
