"""Which pages of other origins may read an answer (the CORS protocol: Fetch standard, section 3.3).

The `Access-Control-*` fields belong to one exchange: they name the page that asked. The gateway passes the upstream's
own fields on with the first answer and stores them as they came; a replay has them only for a page that they name. With
`cors` in the route map, the gateway makes these fields for the page that asks: for its own answers, for replays, and
for a first answer if the upstream sent none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from gateway.core import texts
from gateway.core.common_kinds import HEADER
from gateway.core.headers import Fields, wire_name
from gateway.core.kinds import Choice, Duration, ListOf, SetOf, Text
from gateway.core.model import Headers
from gateway.core.setting import Key, Shape

ALLOW_ORIGIN = b"Access-Control-Allow-Origin"
EXPOSE = b"Access-Control-Expose-Headers"

_ALLOW_ORIGIN, _FAMILY, _VARY = ALLOW_ORIGIN.lower(), b"access-control-", b"vary"
_NAMES = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+([ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")
_HEADERS = ListOf(HEADER)


@dataclass(frozen=True, slots=True)
class Cors:
    """`origins` are serialised as browsers do, `*` for any. `expose` are names of fields beside the gateway's own.
    `answers`: preflights are answered here, and do not go upstream; they allow `headers` (empty: whatever the page asks
    for), and hold for `max_age` seconds.
    """

    SHAPE: ClassVar = Shape(meant={"allow_origins": "origins", "allow_credentials": "credentials", "expose_headers": "expose"})

    origins: Annotated[
        frozenset[str],
        SetOf(Text("an origin", texts.origin, texts.ORIGIN_PATTERN)),
        "Whose pages may read answers: origins such as https://shop.example, or * for any. None: the gateway says nothing.",
    ] = frozenset()
    credentials: Annotated[bool, "Whether they may with cookies and the like."] = False
    expose: Annotated[tuple[str, ...], _HEADERS, "Fields that their scripts may read, beside the gateway's own."] = ()
    answers: Annotated[
        bool,
        Key("preflight"),
        Choice({"upstream": False, "answer": True}),
        "Who answers preflights: upstream, by whatever route takes OPTIONS; or the gateway.",
    ] = False
    headers: Annotated[tuple[str, ...], _HEADERS, "Fields that requests may have, where the gateway answers. None: any."] = ()
    max_age: Annotated[float, Duration("0s", "1d"), "How long browsers may keep that answer."] = 600.0

    @property
    def anywhere(self) -> bool:
        return "*" in self.origins

    def allows(self, origin: bytes | None) -> Headers:
        """The fields that let a page of this origin read an answer; none if it may not."""
        if self.anywhere:
            return ((ALLOW_ORIGIN, b"*"),)
        if origin is None or origin.decode("latin-1") not in self.origins:
            return ()
        return ((ALLOW_ORIGIN, origin), *_CREDENTIALS) if self.credentials else ((ALLOW_ORIGIN, origin),)


_CREDENTIALS: Headers = ((b"Access-Control-Allow-Credentials", b"true"),)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a browser asks before a page's request: whether this origin may use this method, with these fields."""

    origin: bytes
    method: str
    headers: bytes | None


def origin_of(fields: Fields) -> bytes | None:
    """The origin that a request names, if it names one."""
    values = fields.values(b"origin")
    return values[0] if len(values) == 1 and values[0] else None


def preflight_of(method: str, fields: Fields) -> Preflight | None:
    """The preflight that a request is; None for every other."""
    if method != "OPTIONS":
        return None
    origin, wanted = origin_of(fields), fields.values(b"access-control-request-method")
    if origin is None or len(wanted) != 1 or not _NAMES.fullmatch(wanted[0]) or b"," in wanted[0]:
        return None
    headers = b", ".join(fields.values(b"access-control-request-headers"))
    return Preflight(origin, wanted[0].decode(), headers if _NAMES.fullmatch(headers) else None)


def answer_preflight(cors: Cors, asked: Preflight) -> Headers:
    """The fields of the answer, which is 204 either way: an origin that may not is not told anything."""
    vary: Headers = ((b"Vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),)
    allowed = cors.allows(asked.origin)
    if not allowed:
        return vary
    fields: Headers = (*allowed, (b"Access-Control-Allow-Methods", asked.method.encode()))
    headers = b", ".join(wire_name(name) for name in cors.headers) if cors.headers else asked.headers
    if headers is not None:
        fields += ((b"Access-Control-Allow-Headers", headers),)
    return (*fields, (b"Access-Control-Max-Age", b"%d" % cors.max_age), *vary)


def opened(headers: Headers, cors: Cors | None, origin: bytes | None, names: Sequence[bytes]) -> Headers:
    """An answer of our own, for a page of `origin`; `names` are the fields that its script needs to see."""
    if cors is None or not cors.origins:
        return headers
    allowed = cors.allows(origin)
    headers = without(headers)
    if not cors.anywhere:
        headers = _varies(headers)
    if not allowed or origin is None:
        return headers
    return expose((*headers, *allowed), (*names, *[name.encode() for name in cors.expose]))


def first_opened(headers: Headers, cors: Cors | None, origin: bytes | None, names: Sequence[bytes]) -> Headers:
    """The upstream's answer: as it says, or as our own if it says nothing."""
    if cors is None or any(field[0].lower() == _ALLOW_ORIGIN for field in headers):
        return headers
    return opened(headers, cors, origin, names)


def replay_opened(headers: Headers, cors: Cors | None, origin: bytes | None, names: Sequence[bytes]) -> Headers:
    """A stored answer. Without `cors`, what the upstream allowed another page is left out."""
    if cors is not None and cors.origins:
        return opened(headers, cors, origin, names)
    if origin is None:
        return headers
    allowed = [value.strip(b" \t") for name, value in headers if name.lower() == _ALLOW_ORIGIN]
    return headers if all(value in (b"*", origin) for value in allowed) else without(headers)


def without(headers: Headers) -> Headers:
    """The fields without those of the protocol."""
    return tuple([field for field in headers if not field[0].lower().startswith(_FAMILY)])


def _varies(headers: Headers) -> Headers:
    """With Origin in `Vary`: a cache must not give one page what was made for another (RFC 9110 section 12.5.5)."""
    listed = {token.strip(b" \t").lower() for name, value in headers if name.lower() == _VARY for token in value.split(b",")}
    return headers if listed & {b"*", b"origin"} else (*headers, (b"Vary", b"Origin"))


def expose(headers: Headers, names: tuple[bytes, ...]) -> Headers:
    """The field lines with `names` in `Access-Control-Expose-Headers` (Fetch standard, section 3.3.3).

    What the upstream exposes stays; each name is added once, letter case aside. `*` exposes everything, and stays
    alone, except where credentials are allowed: there it is an ordinary name.
    """
    lines = [index for index, field in enumerate(headers) if field[0].lower() == EXPOSE.lower()]
    listed = {token.strip(b" \t").lower() for index in lines for token in headers[index][1].split(b",")}
    if b"*" in listed and not _allows_credentials(headers):
        return headers
    missing = b", ".join(name for name in names if name.lower() not in listed)
    if not missing:
        return headers
    if not lines:
        return (*headers, (EXPOSE, missing))
    last = lines[-1]
    value = headers[last][1]
    merged = (headers[last][0], value + b", " + missing if value.strip(b" \t,") else missing)
    return (*headers[:last], merged, *headers[last + 1 :])


def _allows_credentials(headers: Headers) -> bool:
    return any(name.lower() == b"access-control-allow-credentials" and value.strip(b" \t") == b"true" for name, value in headers)
