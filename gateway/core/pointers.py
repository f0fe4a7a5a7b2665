"""JSON pointers (RFC 6901): the value that one names, and as fingerprint policies use them, to leave values out or to cover nothing else.

In a fingerprint policy a `*` segment stands for every member of an object or every element of an array. (A member that is called `*`
cannot be named alone.)
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
"""dict with str keys, list, str, bool, None, int or float; a reader of `strict_json` may make numbers a subclass of str."""

Pointer: TypeAlias = tuple[str | None, ...]
"""The segments, unescaped; None for every member or element."""

NOTHING: Final = object()
"""What `at` and `selected` answer if there is nothing."""

_ESCAPE = re.compile(r"~([01])")


def split_pointer(pointer: str) -> list[str]:
    """The reference tokens of a JSON pointer; none for the empty one. Raises ValueError if the text is no pointer."""
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueError("a JSON pointer is empty or starts with a slash, as in /client_timestamp")
    if re.search(r"~(?![01])", pointer):
        raise ValueError("in a JSON pointer ~ is written ~0 and / inside a name is written ~1")
    return [_ESCAPE.sub(lambda found: "~/"[int(found[1])], segment) for segment in pointer[1:].split("/")]


def at(value: Json, tokens: Sequence[str]) -> Json:
    """What the reference tokens name (RFC 6901 section 4); `NOTHING` if they name nothing. There is no wildcard, and `-` names nothing."""
    for token in tokens:
        if isinstance(value, dict):
            value = value.get(token, NOTHING)
        elif isinstance(value, list):
            value = NOTHING if (index := _index(token, value)) is None else value[index]
        else:
            return NOTHING
    return value


def compile_pointer(pointer: str, *, wildcards: bool = True) -> Pointer:
    """A pointer made ready. Without `wildcards` a `*` is a name like any other. Raises ValueError if the text is no pointer."""
    return tuple(None if wildcards and segment == "*" else segment for segment in split_pointer(pointer))


def matches(value: Json, pointer: Pointer) -> list[Json]:
    """All that the pointer names, in the order of the text. The empty pointer names the whole value."""
    found = [value]
    for segment in pointer:
        found = [child for holder in found for child in _children(holder, segment)]
    return found


def without(value: Json, pointer: Pointer) -> Json:
    """`value`, changed in place, without what the pointer names; unchanged if it names nothing. The empty pointer names the whole text.

    An element of an array leaves null in its place: [1, ignored] and [ignored, 1] are different operations.
    """
    if not pointer:
        return None
    for holder in matches(value, pointer[:-1]):
        _drop(holder, pointer[-1])
    return value


def selected(value: Json, pointers: Sequence[Pointer]) -> Json:
    """The part of `value` that the pointers name, within the objects and arrays that hold it; `NOTHING` if there is none.

    Members that are not selected are left out. In arrays what is selected keeps its place, after nulls; what comes behind it does not
    count, nor does whether it is there. Two values have equal parts exactly if the same places exist in both and hold the same there.
    """
    if () in pointers:
        return value
    if not isinstance(value, dict | list):
        return NOTHING
    every, named = _by_segment(pointers)
    if isinstance(value, dict):
        members = {name: selected(item, rests) for name, item in value.items() if (rests := named.get(name, every))}
        return {name: item for name, item in members.items() if item is not NOTHING} or NOTHING
    items = [selected(item, rests) if (rests := named.get(str(at), every)) else NOTHING for at, item in enumerate(value)]
    while items and items[-1] is NOTHING:
        items.pop()
    return [None if item is NOTHING else item for item in items] or NOTHING


def _by_segment(pointers: Sequence[Pointer]) -> tuple[list[Pointer], dict[str, list[Pointer]]]:
    """What is left of the pointers below any member or element, and below each one that is named: the former included."""
    every = [pointer[1:] for pointer in pointers if pointer[0] is None]
    named: dict[str, list[Pointer]] = {}
    for pointer in pointers:
        if pointer[0] is not None:
            named.setdefault(pointer[0], every[:]).append(pointer[1:])
    return every, named


def _children(value: Json, segment: str | None) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values() if segment is None else (value[segment],) if segment in value else ()
    if isinstance(value, list):
        return value if segment is None else () if (index := _index(segment, value)) is None else (value[index],)
    return ()


def _drop(holder: Json, segment: str | None) -> None:
    if isinstance(holder, dict):
        if segment is None:
            holder.clear()
        else:
            holder.pop(segment, None)
    elif isinstance(holder, list):
        if segment is None:
            holder[:] = [None] * len(holder)
        elif (index := _index(segment, holder)) is not None:
            holder[index] = None


def _index(name: str, array: list[Json]) -> int | None:
    valid = name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) < 10
    return int(name) if valid and int(name) < len(array) else None
