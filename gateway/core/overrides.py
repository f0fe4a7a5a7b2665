"""Fields and parameters by which an upstream of guarded routes could read another request than the gateway judged.

* Fields by which servers and frameworks take another path than the request line's (gunicorn's `SCRIPT_NAME`, IIS'
  `X-Original-URL`).
* Fields and parameters by which frameworks take another method (`X-HTTP-Method-Override`, `_method`).
* Doubles: CGI and WSGI make `HTTP_X_ACCOUNT_ID` of `X_Account_Id` as of `X-Account-Id`, and some servers of
  `X.Account.Id` too. An upstream must not read another spelling of a field that the gateway judges by, or writes.
"""

import re
from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from gateway.core.field_names import REPLACED, TAKING_PART
from gateway.core.forms import decode_parameter
from gateway.core.headers import Fields
from gateway.core.key_policy import HeaderKey
from gateway.core.policy import Policy
from gateway.core.principal_source import principal_headers
from gateway.core.routes import split_target

METHOD_FIELDS = (b"x-http-method-override", b"x-http-method", b"x-method-override")
METHOD_PARAMETER = b"_method"

PATH_FIELDS = frozenset({b"script-name", b"x-script-name", b"path-info", b"x-original-url", b"x-rewrite-url", b"x-override-url"})
"""Folded names of the fields that rewrite the path for some server or framework. (`X-Forwarded-Prefix` is of the
forwarded family.)
"""

JUDGED = frozenset(
    {b"content-type", b"content-encoding", b"content-length", b"transfer-encoding", b"early-data", b"idempotency-attempt"}
    | {*METHOD_FIELDS}
    | REPLACED
)
"""Fields that are judged, or written, on any guarded route. (A fingerprint covers those that select the operation in
either spelling.)
"""

_TELLING = PATH_FIELDS.union(METHOD_FIELDS, TAKING_PART)

_plain: set[bytes] = set()
"""Lower-case names that are known to mislead nobody: those that come in nearly every request."""

_PLAIN_MAX = 256
_PLAIN_LONGEST = 64

_NOTHING: frozenset[bytes] = frozenset()
_ODD = frozenset(range(256)) - frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-")
_ORDINARY = bytes(set(range(256)) - _ODD)
_FOLD = bytes.maketrans(bytes(_ODD), b"-" * len(_ODD))
_SEPARATOR = re.compile(rb"[&;]")
_METHOD = re.compile(rb"[A-Za-z]{1,32}")
_PART = re.compile(rb"""\bname[ \t]{0,8}=[ \t]{0,8}["']?[ \t]{0,8}[_. \[]method\b""", re.IGNORECASE)
"""In the head of a part of a form (RFC 7578): its name, as PHP (single quotes, and what it takes for an underscore) and
others read it.
"""

_MEMBER = re.compile(rb'"_method"[ \t\r\n]*:[ \t\r\n]*"([A-Za-z]{1,32})"')
_ASCII_ESCAPE = re.compile(rb"\\u00([0-7][0-9A-Fa-f])")
_BLANK_LINE = re.compile(rb"\n\r?\n[ \t]{0,8}")
_READ = frozenset({b"application/x-www-form-urlencoded", b"multipart/form-data", b"application/json"})
_UNDERSCORE = bytes.maketrans(b". [", b"___")


def fold(name: bytes) -> bytes:
    """A field's name as the most forgiving server tells it: letter case and everything but letters and digits made
    equal.
    """
    return name.translate(_FOLD).lower()


def nothing_misleads(method: str, names: KeysView[bytes], target: bytes) -> bool:
    """Whether the lower-case names of a request's fields, its method and its target show at next to no cost that
    `Overrides.clean` has nothing to remove, and that `methods_asked` finds nothing.
    """
    if method == "HEAD" or (b"?" in target and (b"%" in target or b"method" in target)):
        return False
    return names <= _plain or _learn(names)


def _learn(names: KeysView[bytes]) -> bool:
    """The same of names that are not all in `_plain`, which is bounded: clients cannot fill the memory."""
    if b"".join(names).translate(None, _ORDINARY) or not _TELLING.isdisjoint(names):
        return False
    if len(_plain) >= _PLAIN_MAX:
        _plain.clear()
    _plain.update([name for name in names if len(name) <= _PLAIN_LONGEST][:_PLAIN_MAX])
    return True


class Cleaned(NamedTuple):
    """The fields that go on, without those that could mislead an upstream, and the folded names of the doubles among
    the others.
    """

    fields: Fields
    doubles: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Overrides:
    """Made ready for one upstream with guarded routes. `spellings`: by folded name, the lower-case names under which we
    know a field. `removed`: the folded names of fields that no client may send.

    `refuse` False: the operator says that the upstream knows no overrides; then only doubles are removed, and what is
    the gateway's alone.
    """

    spellings: Mapping[bytes, frozenset[bytes]]
    refuse: bool = True
    removed: frozenset[bytes] = PATH_FIELDS

    def clean(self, fields: Fields) -> Cleaned | None:
        """None if there is nothing to remove, which is found out at next to no cost."""
        odd = b"".join(fields.names()).translate(None, _ORDINARY)
        if not odd and self.removed.isdisjoint(fields.names()):
            return None
        doubles: set[bytes] = set()
        lines: list[tuple[bytes, bytes]] = []
        for line in fields.lines:
            folded = fold(line[0])
            known = self.spellings.get(folded)
            if known is not None and line[0].lower() not in known:
                doubles.add(folded)
            elif folded not in self.removed:
                lines.append(line)
        return Cleaned(Fields(tuple(lines)), frozenset(doubles)) if len(lines) < len(fields.lines) else None


def make_overrides(policies: Iterable[Policy], *, refuse: bool = True) -> Overrides:
    """For the upstream of these guarded routes."""
    policies = tuple(policies)
    names = {name.lower().encode() for policy in policies for name in _names(policy)} | JUDGED
    spellings: dict[bytes, set[bytes]] = {}
    for name in names:
        spellings.setdefault(fold(name), set()).add(name)
    removed = (PATH_FIELDS if refuse else _NOTHING) | (TAKING_PART if any(policy.takes_part for policy in policies) else _NOTHING)
    return Overrides({folded: frozenset(known) for folded, known in spellings.items()}, refuse, removed)


def _names(policy: Policy) -> Iterable[str]:
    places = [name for place in (policy.key.place, policy.forward_key_in) if isinstance(place, HeaderKey) for name in place.names]
    return [*places, *principal_headers(policy.principal), *policy.fingerprint.headers]


def methods_asked(method: str, fields: Fields, target: bytes) -> frozenset[str]:
    """The methods, in capitals, that a framework may take instead of the request line's, as the fields and the query
    have them. HEAD is answered by what GET runs.
    """
    asked = {"GET"} if method == "HEAD" else set[str]()
    for name in METHOD_FIELDS:
        if fields.first(name) is not None:
            asked |= _upper(fields.values(name))
    if b"?" in target:
        asked |= _of_pairs(split_target(target)[1])
    return frozenset(asked)


def may_ask_in_body(method: str, fields: Fields) -> bool:
    """Whether a framework may look into the body for another method: into that of a POST, if it is a form, JSON, or of
    no type (Rack).
    """
    if method != "POST":
        return False
    types = fields.values(b"content-type")
    for content_type in types:
        kind = content_type.partition(b";")[0].strip().lower()
        if kind in _READ or kind.endswith(b"+json"):
            return True
    return not types


def methods_asked_in(body: bytes) -> frozenset[str]:
    """The methods that a body asks for, in any form: no server has to go by the media type that the body is
    sent under.
    """
    if b"method" not in body and b"%" not in body and b"\\" not in body:
        return frozenset()
    return frozenset(_of_pairs(body) | _of_parts(body.replace(b"\\", b"")) | _of_json(body))


def _of_pairs(text: bytes) -> set[str]:
    pairs = [pair.partition(b"=") for pair in _SEPARATOR.split(text) if b"method" in pair or b"%" in pair]
    return _upper([decode_parameter(value) for name, _, value in pairs if _is_parameter(decode_parameter(name))])


def _of_parts(body: bytes) -> set[str]:
    """What stands in parts of that name. Backslashes were taken out: some readers drop them in a quoted text. Looks at
    each byte once.
    """
    asked: set[str] = set()
    at = 0
    while (named := _PART.search(body, at)) is not None and (blank := _BLANK_LINE.search(body, named.end())) is not None:
        at = blank.end()
        value = _METHOD.match(body, at)
        asked |= set() if value is None else {value[0].decode().upper()}
    return asked


def _is_parameter(name: bytes) -> bool:
    """PHP takes what is before a NUL, and an underscore for dots, blanks and an open bracket."""
    return name.partition(b"\0")[0].strip().translate(_UNDERSCORE) == METHOD_PARAMETER


def _of_json(body: bytes) -> set[str]:
    try:
        value = orjson.loads(body)
    except ValueError:  # other readers take what this one does not: 1e400 (PHP), half a surrogate pair (JavaScript), NaN (Python)
        return _upper(_MEMBER.findall(_ASCII_ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), body)))
    asked = value.get(METHOD_PARAMETER.decode()) if isinstance(value, dict) else None
    return _upper([asked.encode()]) if isinstance(asked, str) else set()


def _upper(values: Iterable[bytes]) -> set[str]:
    return {found.decode().upper() for value in values for found in _METHOD.findall(value)}
