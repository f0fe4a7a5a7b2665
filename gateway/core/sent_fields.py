"""Fields of a request that a route sets or removes on the way to its upstream. Pure.

What counts for the key's meaning is what the client sent: principals and fingerprints know nothing of these changes.
"""

from dataclasses import dataclass, field
from typing import Annotated

from gateway.core import texts
from gateway.core.field_names import FORWARDED, FORWARDED_FAMILIES, FRAMING, HOP_BY_HOP, REPLACED
from gateway.core.kinds import ListOf, Named, Text
from gateway.core.model import Headers
from gateway.core.setting import Key

_OTHERS = HOP_BY_HOP | FRAMING | REPLACED | FORWARDED | {b"content-type", b"content-encoding", b"max-forwards"}
_FAMILIES = (*FORWARDED_FAMILIES, b"idempotency-", b"idempotent-")


def changeable(text: str) -> str:
    """The name of a field that a route may set or remove. Raises ValueError with a sentence."""
    name = texts.header_name(text).lower().encode().replace(b"_", b"-")
    if name in _OTHERS or name.startswith(_FAMILIES):
        raise ValueError(f"{text[:70]} says how the message is sent, what its body is, or is the gateway's to write; name another field")
    return text


_NAME = Text("a header name", changeable, texts.HEADER_PATTERN)
_VALUE = Text("text", texts.header_value, secret=True)


@dataclass(frozen=True, slots=True)
class SentFields:
    """`added` replace all lines of these names, in every spelling, and `removed` go."""

    added: Annotated[
        tuple[tuple[str, str], ...], Key("set"), Named(_NAME, _VALUE, fold=True), "Names and values; those of a client go."
    ] = field(default=(), repr=False)
    removed: Annotated[tuple[str, ...], Key("remove"), ListOf(_NAME), "Names that the upstream does not get."] = ()


class Sending:
    """`SentFields` as a request meets them, prepared once for a route."""

    __slots__ = ("_added", "_gone")

    def __init__(self, fields: SentFields) -> None:
        self._added = tuple((name.encode(), value.encode()) for name, value in fields.added)
        self._gone = frozenset(_folded(name.encode()) for name in (*dict(fields.added), *fields.removed))

    def apply(self, headers: Headers) -> Headers:
        """The fields as the upstream gets them."""
        gone = self._gone
        return (*[line for line in headers if _folded(line[0]) not in gone], *self._added)


def _folded(name: bytes) -> bytes:
    """As CGI and WSGI tell names: they know no difference between a hyphen and an underscore."""
    return name.lower().replace(b"_", b"-")
