"""A strict reader of what a server answered on one connection (RFC 9112): status line, fields, exactly one framing for each answer."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.system.fuzz.reader import Incomplete, Invalid, Lines, read_chunked, read_head, tokens, values

_STATUS = re.compile(rb"HTTP/1\.1 ([1-9][0-9][0-9]) ([\t\x20-\x7e\x80-\xff]*)")


class Malformed(Exception):
    """These are not whole answers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One final answer. `continued`: a `100 Continue` came before it."""

    status: int
    fields: Lines
    body: bytes
    continued: bool

    def values(self, name: bytes) -> list[bytes]:
        """The values of all lines with this lower-case name."""
        return values(self.fields, name)

    @property
    def closes(self) -> bool:
        return b"close" in tokens(self.fields, b"connection")


def read_answers(data: bytes, methods: Iterator[bytes], *, ended: bool = True) -> list[Answer]:
    """All final answers in `data`; `methods` are those of the requests, for as long as they are known.

    `ended`: no more bytes will come, so that what is not whole is malformed; else it is left out. Raises Malformed.
    """
    answers: list[Answer] = []
    continued = False
    at = 0
    while at < len(data):
        found = _read_one(data, at, continued=continued, methods=methods)
        if found is None:
            if ended:
                raise Malformed(f"a piece of an answer: {data[at : at + 200]!r}")
            break
        answer, at = found
        continued = answer.status == 100
        if not continued:
            answers.append(answer)
    return answers


def _read_one(data: bytes, at: int, *, continued: bool, methods: Iterator[bytes]) -> tuple[Answer, int] | None:
    head = read_head(data, at)
    if isinstance(head, Incomplete):
        return None
    if isinstance(head, Invalid):
        raise Malformed(f"{head.why}: {data[at : at + 200]!r}")
    line, fields, at = head
    found = _STATUS.fullmatch(line)
    if found is None:
        raise Malformed(f"status line: {line!r}")
    status = int(found[1])
    lengths, codings = values(fields, b"content-length"), values(fields, b"transfer-encoding")
    if status == 100:
        if fields or continued:
            raise Malformed("a 100 that says more, or another one")
        return Answer(status, fields, b"", continued), at
    method = next(methods, b"")
    if len(lengths) + len(codings) > 1 or codings not in ([], [b"chunked"]) or not all(length.isdigit() for length in lengths):
        raise Malformed(f"framing: {lengths!r} {codings!r}")
    if method == b"HEAD" or status in {204, 304}:
        # Who refuses a request unread, and closes, need not know that it was a HEAD.
        unread = status >= 400 and b"close" in tokens(fields, b"connection") and lengths == [b"%d" % (len(data) - at)]
        return (Answer(status, fields, b"", continued), at) if not unread else (Answer(status, fields, data[at:], continued), len(data))
    if not lengths and not codings:
        if b"close" not in tokens(fields, b"connection"):
            raise Malformed("an answer without an end")
        return Answer(status, fields, data[at:], continued), len(data)
    return _read_body(data, at, Answer(status, fields, b"", continued), int(lengths[0]) if lengths else None)


def _read_body(data: bytes, at: int, head: Answer, length: int | None) -> tuple[Answer, int] | None:
    if length is not None:
        body = data[at : at + length]
        return None if len(body) < length else (Answer(head.status, head.fields, body, head.continued), at + length)
    found = read_chunked(data, at)
    if isinstance(found, Incomplete):
        return None
    if isinstance(found, Invalid):
        raise Malformed(found.why)
    return Answer(head.status, head.fields, found[0], head.continued), found[1]
