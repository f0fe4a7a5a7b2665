"""What of a request's fields its fingerprint covers, as each version reads them: parts of an injective encoding, in a fixed order."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

from gateway.core.field_names import SELECTING
from gateway.core.fingerprint_policy import FingerprintPolicy
from gateway.core.model import Headers
from gateway.core.scope import length_prefixed

_NOT_COUNTED = frozenset({b"charset", b"boundary"})
"""Parameters of a media type that change how a body is spelt and not what it means."""

_FOLD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ_", b"abcdefghijklmnopqrstuvwxyz-")
"""A name in lower case, and as CGI tells it: with no difference between a hyphen and an underscore."""

_PARAMETER = re.compile(rb'((?:[^;"]++|"(?:[^"\\]|\\.)*+"?)*+)(?:;|\Z)', re.DOTALL)
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_QUOTED_PAIR = re.compile(rb"\\(.)", re.DOTALL)


class Head(NamedTuple):
    """`content_type` is the last such line as it is, `media_type` that of each line, without parameters; `parts` is all that counts."""

    content_type: bytes
    media_type: bytes
    coding: bytes
    parts: list[bytes]


class HeadReader(Protocol):
    """How a version reads the fields of a request under a policy."""

    def counts(self, name: bytes) -> bool:
        """Whether `read` looks at fields of this name, in this spelling."""
        ...

    def read(self, headers: Headers) -> Head:
        """What of the fields counts."""
        ...


def head_reader(policy: FingerprintPolicy, version: int) -> HeadReader:
    """How a version reads the fields of a request under a policy."""
    names = tuple(sorted(name.lower().encode() for name in policy.headers))
    if version < 3:
        return _Named(names, frozenset({b"content-type", b"content-encoding", *names}))
    dropped = {name.lower().encode() for name in policy.ignore_headers}
    selecting = SELECTING - dropped - set(names)
    return _Selecting(names, selecting, frozenset({b"content-type", b"content-encoding", *map(_fold, names), *selecting}))


def _fold(name: bytes) -> bytes:
    return name.translate(_FOLD)


@dataclass(frozen=True, slots=True)
class _Named:
    """Versions 1 and 2: media type, coding, and the fields that the policy names. `known` are all that count."""

    names: tuple[bytes, ...]
    known: frozenset[bytes]

    def counts(self, name: bytes) -> bool:
        return name.lower() in self.known

    def read(self, headers: Headers) -> Head:
        content_type = b""
        media_types: list[bytes] = []
        coding = b""
        named: dict[bytes, list[bytes]] = {name: [] for name in self.names}
        for name, value in headers:
            lower = name.lower()
            if lower == b"content-type":
                content_type = value
                media_types.append(_bare(value))
            elif lower == b"content-encoding":
                coding += value.strip().lower() + b","
            if lower in named:
                named[lower].append(value.strip(b" \t"))
        media_type = b",".join(media_types)
        return Head(content_type, media_type, coding, [media_type, coding, *_lines(named)])


@dataclass(frozen=True, slots=True)
class _Selecting:
    """Version 3: besides, the parameters of the media type, and what a request has of `selecting`. `known` are all that count, folded."""

    names: tuple[bytes, ...]
    selecting: frozenset[bytes]
    known: frozenset[bytes]

    def counts(self, name: bytes) -> bool:
        return _fold(name) in self.known

    def read(self, headers: Headers) -> Head:
        content_type = b""
        media_types: list[bytes] = []
        parameters: list[bytes] = []
        coding = b""
        named: dict[bytes, list[bytes]] = {name: [] for name in self.names}
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            folded, lower = _fold(name), name.lower()
            if lower == b"content-type":
                content_type = value
                media_types.append(_bare(value))
                parameters.append(counted_parameters(value) if b";" in value else b"")
            elif lower == b"content-encoding":
                coding += value.strip().lower() + b","
            if lower in named:
                named[lower].append(value.strip(b" \t"))
            elif folded in self.selecting:
                found.setdefault(lower, []).append(value.strip(b" \t"))
        media_type = b",".join(media_types)
        parts = [media_type, length_prefixed(parameters) if any(parameters) else b"", coding, *_lines(named)]
        return Head(content_type, media_type, coding, [*parts, length_prefixed(_lines(dict(sorted(found.items())))) if found else b""])


def _bare(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()


def _lines(fields: Mapping[bytes, list[bytes]]) -> list[bytes]:
    """Each field as name, number of lines, lines."""
    return [part for name, values in fields.items() for part in (name, b"%d" % len(values), *values)]


@lru_cache(maxsize=256)
def counted_parameters(content_type: bytes) -> bytes:
    """The parameters of a media type that count, injectively: names in lower case, values without quotes, in order of their names. Empty if
    there are none.

    Whatever is sent has parameters: one that is not strictly such counts as it stands.
    """
    found: list[tuple[bytes, bytes]] = []
    for text in _PARAMETER.findall(content_type.partition(b";")[2]):
        name, equals, value = text.partition(b"=")
        name, value = name.strip().lower(), value.strip()
        quoted = _QUOTED.fullmatch(value)
        if quoted is not None:
            value = _QUOTED_PAIR.sub(rb"\1", quoted[1])
        if (name or equals) and name not in _NOT_COUNTED:
            found.append((name + equals, value))
    found.sort(key=lambda pair: pair[0])
    return length_prefixed([part for pair in found for part in pair]) if found else b""
