"""The client's key: found, judged and unquoted. A bad key is always an error, never "no key" (RFC 9651 section 4.2).

Three grammars. `strict` is a structured-field String (RFC 9651 section 3.3.3, as the Idempotency-Key draft demands).
`lenient` also takes the bare spellings that nearly all clients send. `raw` takes visible ASCII and inner spaces; only
the comma is refused, since a hop on the way joins repeated field lines with one. In the first two, quoted and bare
spellings of one text are one key, so that a client may upgrade its library between two attempts.

They are grammars of a field value. In a query, a form and a JSON body the container says where the key begins and ends,
so there every text of visible ASCII and spaces is a key, quotes and commas included, whatever the mode.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gateway.core.fingerprint import LARGE_BODY
from gateway.core.forms import decode_parameter, form_pairs, is_form, may_name
from gateway.core.headers import Fields, wire_name
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, KeyMode, KeyPolicy, QueryKey
from gateway.core.path_interpretations import decode_escapes
from gateway.core.pointers import NOTHING, at, split_pointer
from gateway.core.routes import split_target
from gateway.core.splice import JsonText
from gateway.core.strict_json import Number
from gateway.core.value import value

_STRING = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(.*)', re.DOTALL)
_ESCAPED = re.compile(rb'\\(["\\])')
_BARE = re.compile(rb"[A-Za-z0-9_.~/+=*-][A-Za-z0-9!#$&*+./:<=>@^_|~()\[\]{}-]*")
_RAW = re.compile(rb"[\x21-\x2b\x2d-\x7e](?:[\x20-\x2b\x2d-\x7e]*[\x21-\x2b\x2d-\x7e])?")
_BARE_ITEM = (
    rb'(?:-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
    rb"|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}"
    rb'|%"(?P<display>(?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*)")'
)
_PARAMETER = re.compile(rb"; *[a-z*][a-z0-9_.*-]*(?:=" + _BARE_ITEM + rb")?")
_PARAMETERS = re.compile(rb"(?:" + _PARAMETER.pattern + rb")*")
_PRINTABLE = re.compile(rb"[\x20-\x7e]*")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@value
class Key:
    """A valid key: its text, 1 to 255 characters of ASCII, case kept."""

    text: str


@dataclass(frozen=True, slots=True)
class KeyMissing:
    """There is no key."""


@dataclass(frozen=True, slots=True)
class KeyInvalid:
    """The key cannot be used. `detail` tells the client why, without echoing the key."""

    detail: str


KeyFound: TypeAlias = Key | KeyMissing | KeyInvalid


def find_key(fields: Fields, policy: KeyPolicy) -> KeyFound:
    """Find the key among the field lines. Two lines of one name, even equal ones, are an error: an Item cannot repeat
    (RFC 9651 section 4.2). Of several names one may be there, or more with the same key.
    """
    assert isinstance(policy.place, HeaderKey), "a route has one kind of place for its key"
    if policy.place.others:
        return _find_one(fields, policy, policy.place.names)
    return _find_in(fields, policy, policy.place.name)


def key_finder(policy: KeyPolicy) -> Callable[[Fields, bytes], KeyFound]:
    """`find_key` made ready for one policy; it does not look at the target. Nearly every key is plainly good, and is found in one step."""
    assert isinstance(policy.place, HeaderKey), "a route has one kind of place for its key"
    if policy.place.others or policy.pattern is not None or policy.fold_case:
        return lambda fields, _: find_key(fields, policy)
    name, plainly, least, most = wire_name(policy.place.name), _PLAINLY[policy.mode].fullmatch, policy.min_length, policy.max_length

    def find(fields: Fields, _: bytes) -> KeyFound:
        value = fields.single(name)
        if value is not None and (good := plainly(value)) is not None:
            text = good[good.lastindex or 0]
            if least <= len(text) <= most:
                return Key(text.decode("ascii"))
        return find_key(fields, policy)

    return find


def _find_in(fields: Fields, policy: KeyPolicy, name: str) -> KeyFound:
    wanted = wire_name(name)
    value = fields.single(wanted)
    if value is None:
        values = fields.values(wanted)
        if not values:
            return KeyMissing()
        if len(values) > 1:
            return KeyInvalid(f"The {name} field was sent {len(values)} times. Send it once.")
        value = values[0]
    return parse_key(value.strip(b" \t"), policy)


def _find_one(fields: Fields, policy: KeyPolicy, names: tuple[str, ...]) -> KeyFound:
    """The one key that the fields of these names hold. One that is bad is not passed over: an upstream may read that
    one.
    """
    found = [one for name in names if not isinstance(one := _find_in(fields, policy, name), KeyMissing)]
    bad = next((one for one in found if isinstance(one, KeyInvalid)), None)
    if bad is not None or not found:
        return bad or KeyMissing()
    if any(one != found[0] for one in found):
        return KeyInvalid(f"The fields {', '.join(names)} hold different keys. Send one of them.")
    return found[0]


def find_key_in(target: bytes, policy: KeyPolicy) -> KeyFound:
    """Find the key in the query of a request target, by the rules of application/x-www-form-urlencoded (WHATWG URL
    section 5.1): pairs between `&`, `+` is a space, escapes are decoded once. Two values, even equal ones, are an
    error, and so is a broken escape.
    """
    assert isinstance(policy.place, QueryKey), "a route has one kind of place for its key"
    pairs = [pair.partition(b"=") for pair in split_target(target)[1].split(b"&")]
    value = _only_value([(decode_parameter(name), value) for name, _, value in pairs], policy.place.name, "query parameter")
    if not isinstance(value, bytes):
        return value
    if _BROKEN_ESCAPE.search(value):
        return KeyInvalid("The key cannot be read: in a query a percent sign is written %25 (RFC 3986 section 2.4).")
    return parse_text(decode_parameter(value), policy)


def find_key_in_form(body: bytes, fields: Fields, policy: KeyPolicy) -> KeyFound:
    """Find the key in a form body of at most `LARGE_BODY` bytes, by the rules of a query.

    An empty body is no key. A body that is no form, or that two readers may read differently, is an error, not "no
    key": an upstream that reads more loosely may find a key in it.
    """
    assert isinstance(policy.place, FormKey), "a route has one kind of place for its key"
    if not body:
        return KeyMissing()
    pairs = form_pairs(body) if len(body) <= LARGE_BODY and is_form(fields.lines) else None
    if pairs is None:
        return KeyInvalid(f"The key is read only from a form (application/x-www-form-urlencoded) of at most {LARGE_BODY} bytes.")
    value = _only_value(pairs, policy.place.name, "form field")
    return parse_text(value, policy) if isinstance(value, bytes) else value


def _only_value(pairs: list[tuple[bytes, bytes]], name: str, what: str) -> bytes | KeyMissing | KeyInvalid:
    """The one value of a name. A name that some reader takes for it (PHP reads `request.id` as `request_id`) is a
    second one.
    """
    wanted = name.encode()
    found = [pair for pair in pairs if may_name(pair[0], wanted)]
    if not found:
        return KeyMissing()
    if len(found) > 1:
        return KeyInvalid(f"The {what} {name} was sent {len(found)} times, perhaps in another spelling. Send it once.")
    return found[0][1] if found[0][0] == wanted else KeyInvalid(f"The {what} {name} was sent in another spelling.")


def find_key_in_body(body: bytes, policy: KeyPolicy, text: JsonText | None = None) -> KeyFound:
    """Find the key in a JSON body of at most `LARGE_BODY` bytes.

    An empty body, a member that is absent, and `null` (which many libraries send for what is not set) are no key. A
    body that is not strict JSON is an error, not "no key": an upstream that reads more loosely, or the other one of two
    equal names, may find a key in it. A whole number is the text that it is written as. `text` is what is known of the
    body as JSON already.
    """
    assert isinstance(policy.place, BodyKey), "a route has one kind of place for its key"
    if len(body) > LARGE_BODY:
        return KeyInvalid(f"The key is read only from bodies of at most {LARGE_BODY} bytes.")
    if not body.strip(b" \t\r\n"):
        return KeyMissing()
    try:
        value = at((text or JsonText(body)).value(), split_pointer(policy.place.pointer))
    except ValueError:
        return KeyInvalid("The key cannot be read: the body must be JSON (RFC 8259) in UTF-8, without duplicate names.")
    if value is None or value is NOTHING:
        return KeyMissing()
    if not isinstance(value, str) or (isinstance(value, Number) and value == "-0"):
        return KeyInvalid(f"The key at {policy.place.pointer} must be a JSON string or a whole number.")
    return parse_text(value.encode("utf-8", "surrogatepass"), policy)


def parse_key(value: bytes, policy: KeyPolicy) -> KeyFound:
    """Judge one field value, without its surrounding whitespace."""
    text = _RAW_PARSERS[policy.mode](value)
    return KeyInvalid(_REMEDY[policy.mode]) if text is None else _judge(text, policy)


def parse_text(value: bytes, policy: KeyPolicy) -> KeyFound:
    """Judge a key that a query or a body holds, its escapes resolved."""
    return _judge(value, policy) if _PRINTABLE.fullmatch(value) else KeyInvalid("The key must be visible ASCII characters and spaces.")


def _judge(text: bytes, policy: KeyPolicy) -> KeyFound:
    """What is asked of every key, wherever it stands. Where letter case means nothing, the pattern does not look at it
    either.
    """
    if not policy.min_length <= len(text) <= policy.max_length:
        return KeyInvalid(f"The key has {len(text)} characters. It must have {policy.min_length} to {policy.max_length}.")
    key = text.decode("ascii")
    if policy.pattern is not None and not _pattern(policy.pattern, policy.fold_case).fullmatch(key):
        return KeyInvalid(f"The key must match {policy.pattern}.")
    return Key(key.lower() if policy.fold_case else key)


@lru_cache(maxsize=256)
def _pattern(text: str, fold_case: bool) -> re.Pattern[str]:  # noqa: FBT001 - lru_cache takes positional arguments at half the cost
    return re.compile(text, re.ASCII | re.IGNORECASE if fold_case else re.ASCII)


def field_value(key: str) -> bytes:
    """A key's text as a field value: bare where a field can hold it so, else as a String (RFC 9651 section 4.1.6).

    Injective, so that no two keys meet at the next hop: what is bare never starts with a quote.
    """
    text = key.encode("ascii")
    if _RAW.fullmatch(text) and not text.startswith(b'"'):
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _parse_strict(value: bytes) -> bytes | None:
    found = _STRING.fullmatch(value)
    if found is None or not _are_parameters(found[2]):
        return None
    return _ESCAPED.sub(rb"\1", found[1]) if b"\\" in found[1] else found[1]


def _are_parameters(text: bytes) -> bool:
    """Whether only parameters stand behind the String (RFC 9651 section 4.2.3.2). Display Strings must be UTF-8
    (section 4.2.10).
    """
    if not _PARAMETERS.fullmatch(text):
        return False
    return all(_is_utf8(decode_escapes(found["display"])) for found in _PARAMETER.finditer(text) if found["display"])


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_lenient(value: bytes) -> bytes | None:
    if value.startswith(b'"'):
        return _parse_strict(value)
    return value if _BARE.fullmatch(value) or not value else None


def _parse_raw(value: bytes) -> bytes | None:
    return value if _RAW.fullmatch(value) or not value else None


_RAW_PARSERS = {KeyMode.STRICT: _parse_strict, KeyMode.LENIENT: _parse_lenient, KeyMode.RAW: _parse_raw}
_QUOTED = rb'"([\x20\x21\x23-\x5b\x5d-\x7e]+)"'
_PLAINLY = {
    KeyMode.STRICT: re.compile(_QUOTED),
    KeyMode.LENIENT: re.compile(rb"(" + _BARE.pattern + rb")|" + _QUOTED),
    KeyMode.RAW: _RAW,
}
"""Values that are keys without an escape or a parameter. The text is the last group, or all."""

_REMEDY = {
    KeyMode.STRICT: 'The key must be a quoted string, as in "8e03978e-40d5-43dd-bc93-6894a57f9324" (RFC 9651 section 3.3.3).',
    KeyMode.LENIENT: "The key must be one token of letters, digits and -_.~/+=*:@ or a quoted string. A UUID is a good key.",
    KeyMode.RAW: "The key must be visible ASCII characters without a comma.",
}
