"""A dialect's file, read: `name`, `about`, `sources`, `idempotency`, `answers`, `replay`, `first_headers`,
`replay_headers`. Pure.

This module does not judge `idempotency`: its fields are those of a route, and the reader of routes reads them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from xml.parsers import expat

from gateway.core.dialect_model import Dialect, Replay, Situation, Template
from gateway.core.dialect_template import NUMBERS, PLACEHOLDERS, STORED, TemplateError, check, placeholders, render
from gateway.core.field_names import FRAMING, HOP_BY_HOP
from gateway.core.strict_json import read
from gateway.core.template import content_type_of, is_json, is_xml

_KEYS = ("name", "about", "sources", "idempotency", "answers", "replay", "first_headers", "replay_headers")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_FIELD_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_WRITTEN_BY_US = HOP_BY_HOP | FRAMING | {b"date", b"x-request-id", b"proxy-status"}
_NUMBER_ALONE = re.compile(rf'"\{{({"|".join(sorted(NUMBERS))})\}}"')

_ANYWHERE = {"request_id", "date", "status"}
_MARKS = {"request_id", "key", "original_request", "expires"}
_ANSWER = _ANYWHERE | {"key", "detail", "retry", "retry_after"}
_KNOWN: Mapping[Situation, set[str]] = {
    **dict.fromkeys(Situation, _ANSWER),
    Situation.MISSING: _ANSWER - {"key"},
    Situation.INVALID: _ANSWER - {"key"},
    Situation.NOT_STORED: _ANSWER | {"original_status"},
    Situation.REPLAYED: _ANYWHERE | _MARKS | {"original_status", STORED},
}
"""Which placeholders have a value, by situation. `STORED` stands for all that begin with it."""

_HOSTILE = "\"'\\\r\n\t<&>]]>--%\u00e9\u2028\U0001f511"
_SAMPLES: tuple[Mapping[str, str], ...] = ({}, {**dict.fromkeys(PLACEHOLDERS, _HOSTILE), **dict.fromkeys(NUMBERS, "17")})


@dataclass(frozen=True, slots=True)
class DialectMistake:
    """One thing that is wrong: the keys that lead to it, and a sentence with the remedy."""

    path: tuple[str, ...]
    message: str


class DialectError(ValueError):
    """A file that is no dialect. Its text has one line for each mistake: file, path, message."""

    def __init__(self, file: str, mistakes: tuple[DialectMistake, ...]) -> None:
        lines = [f"{file}: {'.'.join(mistake.path) + ': ' if mistake.path else ''}{mistake.message}" for mistake in mistakes]
        super().__init__("\n".join(lines))
        self.file = file
        self.mistakes = mistakes


def parse_dialect(tree: object, file: str) -> tuple[Dialect, dict[str, object]]:
    """The dialect that a loaded YAML document describes, and the fields of a route's `idempotency` that it brings, as
    they are written.

    `tree` is made of dict, list, str, int, float, bool and None. Raises `DialectError` with every mistake that can be
    told at once.
    """
    parser = _Parser()
    dialect, defaults = parser.document(tree)
    if parser.mistakes:
        raise DialectError(file, tuple(parser.mistakes))
    return dialect, defaults


@dataclass(slots=True)
class _Parser:
    mistakes: list[DialectMistake] = field(default_factory=list)

    def report(self, path: tuple[str, ...], message: str) -> None:
        self.mistakes.append(DialectMistake(path, message))

    def document(self, tree: object) -> tuple[Dialect, dict[str, object]]:
        root = self.mapping(tree, (), _KEYS)
        name = root.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.report(("name",), "is required: 1 to 64 characters of a-z 0-9 . _ -")
        if not isinstance(root.get("about"), str):
            self.report(("about",), "is required: a sentence that says whose answers these are")
        sources = root.get("sources", [])
        if not isinstance(sources, list) or not all(isinstance(one, str) for one in sources):
            self.report(("sources",), "must be a list of texts, such as addresses of pages")
        defaults = self.mapping(root.get("idempotency", {}), ("idempotency",))
        if "dialect" in defaults:
            self.report(("idempotency", "dialect"), "a dialect cannot name another one; copy the fields that you want from it")
        replay = self.replay(root.get("replay", Replay.VERBATIM.value))
        answers = self.answers(root.get("answers", {}))
        self.together(replay, answers)
        replay_headers = self.headers(root["replay_headers"], ("replay_headers",), _MARKS) if "replay_headers" in root else None
        first_headers = self.headers(root.get("first_headers", {}), ("first_headers",), _MARKS)
        return Dialect(str(name), answers, replay, first_headers, replay_headers), defaults

    def mapping(self, value: object, path: tuple[str, ...], known: tuple[str, ...] = ()) -> dict[str, Any]:
        """A mapping from texts, with these keys, or any if none are named."""
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self.report(path, "must be a mapping, `key: value` in each line")
            return {}
        for key in value if known else ():
            if key not in known:
                close = get_close_matches(key, known, n=1)
                remedy = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
                self.report((*path, key), f"unknown key; {remedy}")
        return value

    def replay(self, value: object) -> Replay:
        if isinstance(value, str) and value in tuple(Replay):
            return Replay(value)
        self.report(("replay",), "must be verbatim or conflict")
        return Replay.VERBATIM

    def together(self, replay: Replay, answers: Mapping[Situation, Template]) -> None:
        path = ("answers", Situation.REPLAYED.value)
        if replay is Replay.CONFLICT and Situation.REPLAYED not in answers:
            self.report(path, "is required with `replay: conflict`: it is what a retry gets")
        elif replay is Replay.VERBATIM and Situation.REPLAYED in answers:
            self.report(path, "is never sent under `replay: verbatim`; remove it, or write `replay: conflict`")

    def answers(self, value: object) -> dict[Situation, Template]:
        entries = self.mapping(value, ("answers",), tuple(Situation))
        found = {Situation(key): self.answer(Situation(key), entry) for key, entry in entries.items() if key in tuple(Situation)}
        return {situation: template for situation, template in found.items() if template is not None}

    def answer(self, situation: Situation, value: object) -> Template | None:
        path, before = ("answers", situation.value), len(self.mistakes)
        entry = self.mapping(value, path, ("status", "headers", "body"))
        status = self.status(situation, entry.get("status"), (*path, "status"))
        headers = self.headers(entry.get("headers", {}), (*path, "headers"), _KNOWN[situation])
        body = entry.get("body", "")
        if isinstance(body, dict | list):
            if not any(name.lower() == "content-type" for name, _ in headers):
                headers = (("Content-Type", "application/json"), *headers)
            body = self.as_json(body, (*path, "body"))
        if not isinstance(body, str):
            self.report((*path, "body"), "must be text, or a mapping that becomes JSON")
        if len(self.mistakes) > before:
            return None
        template = Template(status, headers, body)
        self.body(template, (*path, "body"), situation)
        return template

    def status(self, situation: Situation, value: object, path: tuple[str, ...]) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 200 <= value <= 599:
            self.report(path, "is required: a status from 200 to 599")
            return 500
        success = situation is Situation.REPLAYED or (situation is Situation.IN_FLIGHT and value == 202)
        if value < 400 and not success:
            self.report(path, f"{value} would tell the client that its operation was done; use 400 to 599")
        return value

    def headers(self, value: object, path: tuple[str, ...], known: set[str]) -> tuple[tuple[str, str], ...]:
        result: list[tuple[str, str]] = []
        for name, text in self.mapping(value, path).items():
            before = len(self.mistakes)
            if not _FIELD_NAME.fullmatch(name):
                self.report((*path, name), "is not a header name; use letters, digits and -")
            elif name.lower().encode() in _WRITTEN_BY_US:
                self.report((*path, name), "is written by the gateway; remove it")
            elif path[0] != "answers" and name.lower().startswith("content-"):
                self.report((*path, name), "describes the upstream's body, which is not changed; remove it")
            if not isinstance(text, str):
                self.report((*path, name), 'must be text; put it in quotes, as in "true"')
            elif not _FIELD_VALUE.fullmatch(text):
                self.report((*path, name), "must be visible ASCII characters, with spaces only between them")
            if len(self.mistakes) == before:
                self.placeholders(Template(200, ((name, text),)), (*path, name), known)
                result.append((name, text))
        return tuple(result)

    def placeholders(self, template: Template, path: tuple[str, ...], known: set[str]) -> bool:
        """Whether all placeholders are good and have a value here."""
        try:
            check(template)
        except TemplateError as error:
            self.report(path, str(error))
            return False
        unknown = {name for name in placeholders(template) if (STORED if name.startswith(STORED) else name) not in known}
        for name in sorted(unknown):
            here = ", ".join(f"{{{one}}}" for one in sorted(known - {STORED}))
            self.report(path, f"`{{{name}}}` has no value here; known are {here}")
        return not unknown

    def as_json(self, value: object, path: tuple[str, ...]) -> str:
        """JSON text in which a number's placeholder that is a whole string has lost its quotes."""
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError):
            self.report(path, "cannot be written as JSON; use mappings, lists, texts, numbers, true and false")
            return ""
        return _NUMBER_ALONE.sub(r"{\1}", text)

    def body(self, template: Template, path: tuple[str, ...], situation: Situation) -> None:
        if not template.body:
            return
        media_type = content_type_of(template.headers)
        if not media_type:
            self.report(path, "needs a Content-Type among the answer's headers")
            return
        if template.status in {204, 205, 304}:
            self.report(path, f"an answer of {template.status} has no body; remove it")
            return
        if not self.placeholders(Template(template.status, (("Content-Type", media_type),), template.body), path, _KNOWN[situation]):
            return
        well_formed = _is_json if is_json(media_type) else _is_xml if is_xml(media_type) else None
        if well_formed is not None and not all(well_formed(render(template, values)[2]) for values in _SAMPLES):
            self.report(path, f"is not well-formed {'JSON' if is_json(media_type) else 'XML'} once its placeholders are filled in")


def _is_json(body: bytes) -> bool:
    try:
        read(body)
    except ValueError:
        return False
    return True


def _is_xml(body: bytes) -> bool:
    """Well-formed, and without a document type: entities are of no use in an answer."""
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError):
        return False
    return True


def _refuse_doctype(*_: object) -> None:
    raise ValueError("a document type")
