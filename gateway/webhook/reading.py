"""Reads a webhook request: its body, the id of the event, and the text that names the record."""

import asyncio
import hashlib
from dataclasses import dataclass

from gateway.core.headers import Fields, first
from gateway.core.model import Headers
from gateway.core.pointers import Json, at, split_pointer
from gateway.core.reconcile.policy import Webhook
from gateway.core.strict_json import Number, read
from gateway.http.request import BodyLost, Request
from gateway.http.response import CONTINUE
from gateway.ports import Memory

PATIENCE = 30.0
"""Seconds within which a whole event must arrive. Its sender has it ready."""

LONGEST_ID = 255
"""Characters, of an event's id and of the text that names the record."""

HEADER = "header:"


class SenderGone(Exception):
    """The sender hung up, or broke its own framing: there was no event."""


class BodyTooLarge(Exception):
    """The body has more bytes than the endpoint takes."""


class MemoryFull(Exception):
    """The process holds as much as it may."""


async def read_body(request: Request, fields: Fields, limit: int, memory: Memory) -> bytes:
    """The whole body, as received. A body that is announced as larger than `limit` is not read; a body that turns out
    to be larger is read no further.

    `memory` counts its bytes until the caller gives them back. Raises `BodyTooLarge`, `SenderGone`, `MemoryFull`, and
    TimeoutError after `PATIENCE`.
    """
    announced = fields.first(b"content-length")
    if announced is not None and int(announced) > limit:
        raise BodyTooLarge
    if fields.first(b"expect") is not None and request.version[1] >= 1 and request.connection.transport is not None:
        request.connection.transport.write(CONTINUE)
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(PATIENCE):
            await _read(request, limit, memory, pieces)
    except BaseException as error:
        memory.give(sum(map(len, pieces)))
        if isinstance(error, BodyLost):
            raise SenderGone from error
        raise
    return b"".join(pieces)


async def _read(request: Request, limit: int, memory: Memory, pieces: list[bytes]) -> None:
    left = limit
    while not request.body.at_end:
        if memory.full:
            raise MemoryFull
        piece = await request.body.read()
        pieces.append(piece)
        memory.take(len(piece))
        left -= len(piece)
        if left < 0:
            raise BodyTooLarge


@dataclass(frozen=True, slots=True)
class Told:
    """The SHA-256 of the event's id, and the text that names the record; None if the event names none."""

    digest: bytes
    value: str | None


def tell(webhook: Webhook, headers: Headers, body: bytes) -> Told | None:
    """Read an event. None if it has no id, or is no JSON text with one meaning."""
    try:
        document = read(body)
    except ValueError:
        return None
    if webhook.event_id.startswith(HEADER):
        field = first(headers, webhook.event_id.removeprefix(HEADER).strip().lower().encode())
        event = None if field is None else _short(field.decode("latin-1").strip(" \t"))
    else:
        event = _text(document, webhook.event_id)
    if event is None:
        return None
    return Told(hashlib.sha256(event.encode("utf-8", "surrogatepass")).digest(), _text(document, webhook.find))


def _text(document: Json, pointer: str) -> str | None:
    """A text, or a number by its own text, as `gateway.core.reconcile.capture` keeps them."""
    value = at(document, split_pointer(pointer))
    if isinstance(value, Number):
        return _short(str(value))
    return _short(value) if isinstance(value, str) else None


def _short(text: str) -> str | None:
    usable = 0 < len(text) <= LONGEST_ID and "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
    return text if usable else None
