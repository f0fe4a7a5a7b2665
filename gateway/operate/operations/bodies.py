"""Answers as people give and see them: judged, packed and unpacked as the engine does it."""

import hashlib
import re
from dataclasses import replace

from gateway.core.dialect import mark_replay
from gateway.core.headers import to_client, to_store
from gateway.core.model import Headers, StoredResponse
from gateway.core.packing import PLAIN
from gateway.core.policy import Policy
from gateway.core.upstream_answer import phrase
from gateway.operate.operations.inputs import Wrong
from gateway.ports.reconciliation import Shown
from gateway.runtime.packing import pack_response, unpack_body

HEADERS_MAX = 64 * 1024
"""Bytes of an answer's header fields, at most."""

_BODILESS = frozenset({204, 205, 304})
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")


def check_answer(status: int, headers: Headers, body: bytes) -> None:
    """Raises `Wrong` for what could not be an answer's: final statuses, field names and values (RFC 9110 sections 5.1, 5.5 and 15)."""
    if not 200 <= status <= 599:
        raise Wrong("status", "the status of an answer is between 200 and 599")
    if body and status in _BODILESS:
        raise Wrong("body", f"an answer with status {status} has no body")
    for name, value in headers:
        shown = name.decode("latin-1")
        if _NAME.fullmatch(name) is None:
            raise Wrong("headers", f"{shown!r} is no field name")
        if _VALUE.fullmatch(value) is None:
            raise Wrong("headers", f"the value of {shown} has control characters, or spaces at its ends")
    if sum(len(name) + len(value) for name, value in headers) > HEADERS_MAX:
        raise Wrong("headers", f"at most {HEADERS_MAX} bytes")


def never_stored(headers: Headers) -> list[str]:
    """The names of those fields that an answer is kept without."""
    kept = to_store(to_client(headers))
    return [name.decode("latin-1") for name, value in headers if (name, value) not in kept]


async def answer(status: int, headers: Headers, body: bytes) -> StoredResponse:
    """A checked answer as its record keeps it: without the fields that are never stored."""
    plain = StoredResponse(status, phrase(status), to_store(to_client(headers)), body, len(body), hashlib.sha256(body).digest())
    return await pack_response(plain)


class _Placeholders(dict[str, str]):
    """Values of a request that nobody has sent yet: each placeholder stands for itself."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def preview(policy: Policy | None, status: int, headers: Headers, body: bytes) -> bytes:
    """What a client's retry gets for an answer, as it goes out in HTTP/1.1, but for the date and what the connection asks for. What a
    dialect takes from the request stands as its placeholder.
    """
    fields = to_store(to_client(headers))
    if policy is not None:
        fields = mark_replay(fields, policy.dialect, _Placeholders())
    if status not in _BODILESS:
        fields += ((b"Content-Length", b"%d" % len(body)),)
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, phrase(status), lines, body)


async def unpacked(shown: Shown) -> Shown:
    """With the body as it came. One that cannot be unpacked is left out: its length and digest still say what it was."""
    response = shown.response
    if response is None or response.body is None:
        return shown
    try:
        body = await unpack_body(response)
    except ValueError:
        return replace(shown, response=response.without_body())
    return replace(shown, response=replace(response, body=body, encoding=PLAIN))
