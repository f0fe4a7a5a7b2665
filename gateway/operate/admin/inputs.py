"""What a request to the operators' API says, judged: every mistake names its field."""

import base64
import binascii
import datetime as dt
import re
from collections.abc import Collection, Mapping
from typing import Any

from aiohttp import web

from gateway.core.model import Headers
from gateway.core.strict_json import AS_PYTHON, DuplicateName, read, refuse_lone_surrogates
from gateway.operate.operations import Grounds, Wrong, read_instant

BODY_LIMIT = 16 * 1024 * 1024
"""Bytes of a request's body."""


_AGES = 10**15
"""Seconds beyond all retention, and still a float."""


class Query:
    """The parameters of a request. Raises `Wrong` for one that is not among `known`, or comes twice."""

    def __init__(self, request: web.Request, known: Collection[str]) -> None:
        self._given: dict[str, str] = {}
        for name, value in request.query.items():
            if name not in known:
                raise Wrong(name, f"no such parameter here; there are {', '.join(known)}" if known else "there are no parameters here")
            if name in self._given:
                raise Wrong(name, "is given twice")
            self._given[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def number(self, name: str, low: int, high: int) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        # No number of more digits is meant, and Python refuses to read one of thousands.
        if not re.fullmatch(r"[0-9]{1,20}", value, re.ASCII) or not low <= int(value) <= high:
            raise Wrong(name, f"must be a whole number from {low} to {high}")
        return int(value)

    def instant(self, name: str) -> dt.datetime | None:
        """An instant as RFC 3339 has it, with its offset."""
        value = self._given.get(name)
        if value is None:
            return None
        try:
            return read_instant(value)
        except ValueError as error:
            raise Wrong(name, str(error)) from None

    def flag(self, name: str) -> bool:
        value = self._given.get(name, "false")
        if value not in {"true", "false"}:
            raise Wrong(name, "must be true or false")
        return value == "true"

    def grounds(self) -> Grounds:
        """Why, and by whom: `reason` and `actor`."""
        return Grounds(self._given.get("reason", ""), self._given.get("actor"))


class Document:
    """The JSON object that a request carries. Made by `read_document`; its methods raise `Wrong`."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def grounds(self) -> Grounds:
        """Why, and by whom: `reason` and `actor`."""
        return Grounds(self.text("reason") if "reason" in self else "", self.text("actor") if "actor" in self else None)

    def choice(self, name: str, choices: Collection[str]) -> str:
        """One of some words, which must be there."""
        if name not in self or self._members[name] not in choices:
            raise Wrong(name, f"must be one of {', '.join(choices)}")
        return self.text(name)

    def number(self, name: str, low: int, high: int) -> int | None:
        """A whole number. JSON has no integers: 201.0 is 201 (RFC 8259 section 6)."""
        value = self._members.get(name)
        if name not in self:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or value != int(value):
            raise Wrong(name, f"must be a whole number from {low} to {high}")
        return int(value)

    def seconds(self, name: str) -> float | None:
        if name not in self:
            return None
        value = self._members[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Wrong(name, "must be a number of seconds")
        return float(min(value, _AGES))

    def content(self) -> bytes | None:
        """What `body` (text) or `body_base64` says; None if there is neither."""
        if "body" in self and "body_base64" in self:
            raise Wrong("body_base64", "and body exclude each other")
        if "body" in self:
            return self.text("body").encode()
        if "body_base64" not in self:
            return None
        try:
            return base64.b64decode(self.text("body_base64"), validate=True)
        except (binascii.Error, ValueError):
            raise Wrong("body_base64", "is no base64") from None

    def headers(self) -> Headers:
        """What `headers` says: an object of names and texts, or a list of pairs, as records show it."""
        given = self._members.get("headers", {})
        found = list(given.items()) if isinstance(given, dict) else given
        if not isinstance(found, list) or not all(_is_pair(pair) for pair in found):
            raise Wrong("headers", 'must be an object of names and texts, or a list of pairs [["Content-Type", "application/json"]]')
        try:
            return tuple([(name.encode("latin-1"), value.encode("latin-1")) for name, value in found])
        except UnicodeEncodeError:
            raise Wrong("headers", "hold characters beyond ISO-8859-1") from None

    def text(self, name: str) -> str:
        """A text, which must be there."""
        value = self._members.get(name)
        if not isinstance(value, str):
            raise Wrong(name, "must be a text")
        return value


async def read_document(request: web.Request, known: Collection[str]) -> Document:
    """The request's body: one JSON object whose members are all among `known`.

    Only `application/json` is taken: a page in an operator's browser cannot send that to another origin unasked.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    body = await request.read()
    try:
        members = read(body, AS_PYTHON)
        refuse_lone_surrogates(members)  # they can be neither stored nor shown
    except DuplicateName as error:
        raise Wrong(error.name, "is given twice") from None
    except ValueError:
        raise Wrong("body", "is no JSON") from None
    if not isinstance(members, dict):
        raise Wrong("body", "must be a JSON object")
    for name in members:
        if name not in known:
            raise Wrong(name, f"no such member here; there are {', '.join(known)}")
    return Document(members)


def answer_of(given: Document) -> tuple[int, Headers, bytes]:
    """The answer that a document describes: `status`, `headers`, and `body` or `body_base64`."""
    status = given.number("status", 200, 599)
    if status is None:
        raise Wrong("status", "is missing: the answer that retries get from now on has one")
    return status, given.headers(), given.content() or b""


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
