"""Fields that a route sets or removes: of a request on the way to its upstream, of an upstream's answer on the way to the client. Pure.

What counts for the key's meaning is what the client sent: principals and fingerprints know nothing of these changes. An answer is changed
before it is stored, so that a replay equals the first answer, whatever the route says by then.
"""

from dataclasses import dataclass, field
from typing import Annotated

from gateway.core import texts
from gateway.core.field_names import FORWARDED, FORWARDED_FAMILIES, FRAMING, HOP_BY_HOP, OURS, REPLACED
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


_ANSWERS_OWN = HOP_BY_HOP | FRAMING | OURS | {b"content-type", b"content-encoding", b"location", b"date", b"via", b"x-request-id"}


def changeable_in_answers(text: str) -> str:
    """The name of a field of answers that a route may set or remove. Raises ValueError with a sentence."""
    name = texts.header_name(text).lower().encode()
    if name in _ANSWERS_OWN or name.startswith((b"idempotency-", b"idempotent-")):
        raise ValueError(f"{text[:70]} says how the answer is sent, what it means, or is the gateway's to write; name another field")
    return text


_NAME = Text("a header name", changeable, texts.HEADER_PATTERN)
_ANSWER_NAME = Text("a header name", changeable_in_answers, texts.HEADER_PATTERN)
_VALUE = Text("text", texts.header_value, secret=True)


@dataclass(frozen=True, slots=True)
class SentFields:
    """`added` replace all lines of these names, in every spelling, and `removed` go."""

    added: Annotated[
        tuple[tuple[str, str], ...], Key("set"), Named(_NAME, _VALUE, fold=True), "Names and values; those of a client go."
    ] = field(default=(), repr=False)
    removed: Annotated[tuple[str, ...], Key("remove"), ListOf(_NAME), "Names that the upstream does not get."] = ()


@dataclass(frozen=True, slots=True)
class AnswerFields:
    """The same of answers; letter case alone does not tell names apart."""

    added: Annotated[
        tuple[tuple[str, str], ...],
        Key("set"),
        Named(_ANSWER_NAME, Text("text", texts.header_value), fold=True),
        "Names and values; those of the upstream go.",
    ] = ()
    removed: Annotated[tuple[str, ...], Key("remove"), ListOf(_ANSWER_NAME), "Names that clients do not get."] = ()

    @property
    def lines(self) -> Headers:
        """What is set, as it is sent."""
        return tuple((name.encode(), value.encode()) for name, value in self.added)

    @property
    def gone(self) -> frozenset[bytes]:
        """The lower-case names of which nothing of the upstream's is left."""
        return frozenset(name.lower().encode() for name in (*dict(self.added), *self.removed))


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
