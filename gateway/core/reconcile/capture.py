"""Values of the original request that are kept with its record, for probes and webhooks to find it by."""

import re
from collections.abc import Mapping, Sequence

from gateway.core.pointers import NOTHING, Json, at, split_pointer
from gateway.core.strict_json import AS_TEXTS, read
from gateway.core.template import is_json

MAX_LENGTH = 255
"""In characters. A longer value is left out whole: a part of it would name something else."""

_NOT_KEPT = re.compile("[\0\ud800-\udfff]")
"""What Postgres keeps in no text."""


UNREAD = "@unread"
"""The captured name of those values that are in the request, or may be, and were not captured. No configured name can be this one."""


def capture(body: bytes | None, content_type: bytes | None, wanted: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The values that `wanted` (name and JSON pointer, as `Reconcile.capture`) names in a JSON request: texts, and whole numbers as text.
    `body` None: there is one, and it is not at hand.

    Left out is what is missing, null, empty, of another kind, a number that readers read differently, or longer than `MAX_LENGTH`; all of
    it, if the request is not strict JSON under a JSON media type: the upstream may then read another value, or none, and a look for this
    one would find nothing. The names of those that are there all the same, or may be, are in `UNREAD`, a space between them; so are those
    for which the request has a second spelling in other letter cases, which Go and .NET read, too. Raises nothing, if the pointers are
    pointers.
    """
    if not wanted or body == b"":
        return {}
    if body is None or content_type is None or not is_json(content_type.decode("latin-1")):
        return _unread([name for name, _ in wanted])
    try:
        document = read(body, AS_TEXTS)
    except ValueError:
        return _unread([name for name, _ in wanted])
    kept, unread = dict[str, str](), list[str]()
    for name, pointer in wanted:
        tokens = split_pointer(pointer)
        value = at(document, tokens)
        there = value is not NOTHING and value is not None and value != ""
        if there and _is_captured(value):
            kept[name] = value
        elif there:
            unread.append(name)
            continue
        if _has_second_spelling(document, tokens):
            unread.append(name)
    return {**kept, **_unread(unread)}


def is_unread(name: str, captured: Mapping[str, str]) -> bool:
    """Whether a record's request has a value of this name, or may have, that was not captured."""
    return name in captured.get(UNREAD, "").split(" ")


def _unread(names: Sequence[str]) -> dict[str, str]:
    return {UNREAD: " ".join(names)} if names else {}


def _has_second_spelling(document: Json, tokens: Sequence[str]) -> bool:
    """Whether some name on the way is another one's but for letter case. Linear."""
    for token in tokens:
        if isinstance(document, dict):
            folded = token.casefold()
            if any(name != token and len(name) == len(token) and name.casefold() == folded for name in document):
                return True
        document = at(document, [token])
    return False


def _is_captured(value: Json) -> bool:
    return isinstance(value, str) and len(value) <= MAX_LENGTH and keepable(value)


def keepable(text: str) -> bool:
    """Whether a store can keep the text as it is."""
    return _NOT_KEPT.search(text) is None
