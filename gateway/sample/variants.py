"""Request headers that make the sample slow or make it fail, so that a client can see what the gateway does about it."""

import asyncio
import enum
import json
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from gateway.sample.ledger import Refused

DELAY = "X-Sample-Delay"
FAIL = "X-Sample-Fail"
LONGEST_DELAY = 60.0


class Fail(enum.StrEnum):
    """How a request fails."""

    BEFORE = "before"
    AFTER = "after"
    DROP = "drop"
    RESET = "reset"
    TRUNCATE = "truncate"
    INTERNAL_ERROR = "500"
    UNAVAILABLE = "503"
    TOO_MANY = "429"


MEANINGS = {
    Fail.BEFORE: "closes the connection without executing and without an answer",
    Fail.AFTER: "executes, then answers 500",
    Fail.DROP: "executes, then closes the connection without an answer",
    Fail.RESET: "executes, then resets the connection",
    Fail.TRUNCATE: "executes, then closes the connection halfway through the answer",
    Fail.INTERNAL_ERROR: "answers 500 without executing",
    Fail.UNAVAILABLE: "answers 503 without executing",
    Fail.TOO_MANY: "answers 429 without executing",
}


@dataclass(frozen=True, slots=True)
class Variant:
    """What the headers of one request ask for. `delay` is seconds between executing and answering."""

    delay: float
    fail: Fail | None


def variant_of(request: web.Request) -> Variant:
    """Raises Refused (400) for a header that it does not understand."""
    text = request.headers.get(DELAY, "0")
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|)", text, re.ASCII)
    delay = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else -1
    if not 0 <= delay <= LONGEST_DELAY:
        raise Refused(400, "bad_header", f"{DELAY} is a time such as 2s or 500ms, at most {LONGEST_DELAY:.0f}s")
    word = request.headers.get(FAIL)
    if word is None:
        return Variant(delay, None)
    try:
        return Variant(delay, Fail(word.strip().lower()))
    except ValueError:
        raise Refused(400, "bad_header", f"{FAIL} is one of {', '.join(Fail)}") from None


async def carry_out(request: web.Request, execute: Callable[[], web.Response]) -> web.StreamResponse:
    """Execute and answer as the request's headers ask. The answer to a closed connection is never sent."""
    variant = variant_of(request)
    match variant.fail:
        case Fail.BEFORE:
            return hang_up(request)
        case Fail.INTERNAL_ERROR | Fail.UNAVAILABLE | Fail.TOO_MANY:
            await asyncio.sleep(variant.delay)
            headers = {"Retry-After": "1"} if variant.fail is Fail.TOO_MANY else {}
            return error(int(variant.fail), "asked_for", f"{FAIL} asked for this; nothing was executed", headers)
        case _:
            response = execute()
    await asyncio.sleep(variant.delay)
    match variant.fail:
        case Fail.AFTER:
            return error(500, "asked_for", f"{FAIL} asked for this; the operation was executed")
        case Fail.DROP:
            return hang_up(request)
        case Fail.RESET:
            reset_when_closed(request)
            return hang_up(request)
        case Fail.TRUNCATE:
            return await half(request, response)
        case _:
            return response


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


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error as this API words it."""
    return answer({"error": {"code": code, "message": message}}, status=status, headers=headers)


def answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None, indent: int | None = None) -> web.Response:
    """A JSON answer that ends with a line break, for people with curl."""
    body = json.dumps(value, indent=indent).encode() + b"\n"
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")
