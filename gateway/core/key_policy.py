"""Where a key is in a request, which keys are good, and where the upstream sees it: what a route's `key:` section, and
its settings on forwarding, say.
"""

import enum
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, TypeAlias

from gateway.core import texts
from gateway.core.common_kinds import HEADER
from gateway.core.key_pattern import expression
from gateway.core.kinds import Inline, OneOrMany, Text, Whole
from gateway.core.setting import Form, Shape

_QUERY = Text("the name of a query parameter", texts.parameter)
_POINTER = Text("a JSON pointer", texts.member_pointer, texts.POINTER_PATTERN)
_FORM = Text("the name of a form field", texts.parameter)


class KeyMode(enum.StrEnum):
    """How strictly a key's spelling is judged; see `gateway.core.key`."""

    LENIENT = "lenient"
    STRICT = "strict"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class HeaderKey:
    """The key is the value of a header field, or of one of several; `name` is the first of them."""

    name: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.others)


@dataclass(frozen=True, slots=True)
class QueryKey:
    """The key is the value of a query parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class BodyKey:
    """The key is a string or a whole number in the JSON body, at this JSON pointer (RFC 6901)."""

    pointer: str


@dataclass(frozen=True, slots=True)
class FormKey:
    """The key is the value of a field of the form body (application/x-www-form-urlencoded)."""

    name: str


KeyPlace: TypeAlias = HeaderKey | QueryKey | BodyKey | FormKey

_PLACES = Shape(
    one_of=("header", "query", "json_pointer", "form"),
    meant={"name": "header", "parameter": "query", "pointer": "json_pointer", "body": "json_pointer", "field": "json_pointer"},
)


@dataclass(frozen=True, slots=True)
class KeySource(Form[KeyPlace]):
    """Where the file says that the client puts the key."""

    SHAPE: ClassVar = _PLACES

    header: Annotated[
        tuple[str, ...],
        OneOrMany(HEADER),
        "The header field that holds the key; of a list, one of them may be there, or several that are equal. Either this or `query`, "
        "`json_pointer` or `form`.",
    ] = ("Idempotency-Key",)
    query: Annotated[str | None, _QUERY, "The query parameter that holds the key."] = None
    json_pointer: Annotated[
        str | None, _POINTER, "Where in the JSON body the key is (RFC 6901), text or whole number; bodies up to 1MiB."
    ] = None
    form: Annotated[
        str | None, _FORM, "The field of a form body (application/x-www-form-urlencoded) that holds the key; bodies up to 1MiB."
    ] = None

    def value(self) -> KeyPlace:
        return _place(self.header, self.query, self.json_pointer, self.form)


@dataclass(frozen=True, slots=True)
class KeyTarget(Form[KeyPlace]):
    """Where the file says that the upstream sees the key."""

    SHAPE: ClassVar = replace(_PLACES, required=True)

    header: Annotated[str | None, HEADER, "A header field. Either this or `query`, `json_pointer` or `form`."] = None
    query: Annotated[str | None, _QUERY, "A query parameter."] = None
    json_pointer: Annotated[str | None, _POINTER, "A member of the JSON body (RFC 6901). Nothing else of the body changes."] = None
    form: Annotated[str | None, _FORM, "A field of the form body. Nothing else of the body changes."] = None

    def value(self) -> KeyPlace:
        return _place((self.header or "",), self.query, self.json_pointer, self.form)


def _place(headers: tuple[str, ...], query: str | None, json_pointer: str | None, form: str | None) -> KeyPlace:
    if query is not None:
        return QueryKey(query)
    if form is not None:
        return FormKey(form)
    return HeaderKey(headers[0], headers[1:]) if json_pointer is None else BodyKey(json_pointer)


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """Where the key is and which spellings count. Lengths are characters of the key itself, quotes not counted.

    `pattern` is a regular expression that the whole key must match besides its grammar. With `fold_case` keys that
    differ in letter case alone are one. `notice`: keys that look guessable or personal are counted and logged by
    digest.
    """

    place: Annotated[KeyPlace, Inline(KeySource)] = field(default_factory=lambda: HeaderKey("Idempotency-Key"))
    required: Annotated[bool, "Whether a request without a key is refused (400) or passed through unguarded."] = True
    mode: Annotated[KeyMode, "lenient: a quoted string or a bare token; strict: a quoted string; raw: visible ASCII."] = KeyMode.LENIENT
    min_length: Annotated[int, Whole(1, 255), "The least number of characters of a key."] = 1
    max_length: Annotated[int, Whole(1, 255), "The greatest number of characters of a key."] = 255
    pattern: Annotated[
        str | None, Text("a regular expression", expression), "A regular expression that the whole key must match besides."
    ] = None
    fold_case: Annotated[bool, "Whether keys that differ in letter case alone are one key."] = False
    notice: Annotated[bool, "Count and log, by digest, keys that look guessable or personal."] = True

    @property
    def headers(self) -> tuple[str, ...]:
        """The fields that may hold the key; none if it is not in a field."""
        return self.place.names if isinstance(self.place, HeaderKey) else ()


class ForwardKey(enum.StrEnum):
    """Which key the upstream sees: the client's field lines, a keyed digest of scope and key, or none."""

    AS_RECEIVED = "as_received"
    DERIVED = "derived"
    NONE = "none"
