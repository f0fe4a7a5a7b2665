"""Answers as people give and see them: judged, packed and unpacked as the engine does it."""

import hashlib
import re
from dataclasses import dataclass, replace

from gateway.core.cors import expose
from gateway.core.dialect import conflict_answer, mark_replay, render
from gateway.core.dialect_model import Dialect
from gateway.core.headers import to_client, to_store
from gateway.core.model import Headers, StoredResponse
from gateway.core.packing import PLAIN
from gateway.core.policy import Policy
from gateway.core.status_headers import EXPIRES, MARKS, STATUS, Mark, exposed
from gateway.core.upstream_answer import phrase
from gateway.operate.operations.inputs import Wrong
from gateway.ports.reconciliation import Listed, Shown
from gateway.runtime.packing import pack_response, unpack_body

HEADERS_MAX = 64 * 1024
"""Bytes of an answer's header fields, at most."""

_OF_THE_RETRY = "(of the retry)"
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


@dataclass(frozen=True, slots=True)
class Message:
    """An answer as it goes out in HTTP/1.1, but for the date and what the connection asks for. `head`: the status line and a line for each
    field, without line ends.
    """

    head: tuple[bytes, ...]
    body: bytes

    @property
    def packed(self) -> bytes:
        return b"\r\n".join((*self.head, b"", self.body))


def preview(listed: Listed, policy: Policy | None, status: int, headers: Headers, body: bytes) -> Message:
    """What a client's retry gets for an answer, in the route's dialect. What each exchange has of its own stands as `(of the retry)`."""
    dialect = Dialect() if policy is None else policy.dialect
    values = {
        "key": listed.key.key,
        "original_request": listed.request_id,
        "original_status": str(status),
        **dict.fromkeys(("request_id", "date", "expires"), _OF_THE_RETRY),
    }
    conflict = conflict_answer(dialect, status, body)
    if conflict is None:
        fields = mark_replay(to_store(to_client(headers)), dialect, values)
    else:
        template, stored = conflict
        status, fields, body = render(template, {**values, **stored})
    lines = [b"HTTP/1.1 %d %b" % (status, phrase(status)), *(b"%b: %b" % field for field in _marked(fields, policy))]
    if status not in _BODILESS:
        lines.append(b"Content-Length: %d" % len(body))
    return Message(tuple(lines), body)


def _marked(headers: Headers, policy: Policy | None) -> Headers:
    """With what the route tells its clients of their keys, and browsers."""
    if policy is None:
        return headers
    if policy.status_fields:
        headers = tuple([field for field in headers if field[0].lower() not in MARKS])
        headers += ((STATUS, Mark.REPLAYED.value.encode()), (EXPIRES, _OF_THE_RETRY.encode()))
    return expose(headers, exposed(policy)) if policy.expose_headers else headers


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
