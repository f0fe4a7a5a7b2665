"""The client's key: found, judged and unquoted. A bad key is always an error, never "no key" (RFC 9651 section 4.2).

Three grammars. `strict` is a structured-field String (RFC 9651 section 3.3.3, as the Idempotency-Key draft demands). `lenient` also
takes the bare spellings that nearly all clients send. `raw` takes visible ASCII and inner spaces; only the comma is refused, since a
hop on the way joins repeated field lines with one. In the first two, quoted and bare spellings of one text are one key, so that a client
may upgrade its library between two attempts.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

from gateway.core.headers import Fields, wire_name
from gateway.core.policy import KeyMode, KeyPolicy
from gateway.core.readings import decode_escapes

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


@dataclass(frozen=True, slots=True)
class Key:
    """A valid key: its text, 1 to 255 characters of ASCII, case kept."""

    text: str


@dataclass(frozen=True, slots=True)
class KeyMissing:
    """No field line names a key."""


@dataclass(frozen=True, slots=True)
class KeyInvalid:
    """The key cannot be used. `detail` tells the client why, without echoing the key."""

    detail: str


KeyFound: TypeAlias = Key | KeyMissing | KeyInvalid


def find_key(fields: Fields, policy: KeyPolicy) -> KeyFound:
    """Find the key among the field lines. Two lines, even equal ones, are an error: an Item cannot repeat (RFC 9651 section 4.2)."""
    values = fields.values(wire_name(policy.header))
    if not values:
        return KeyMissing()
    if len(values) > 1:
        return KeyInvalid(f"The {policy.header} field was sent {len(values)} times. Send it once.")
    return parse_key(values[0].strip(b" \t"), policy)


def parse_key(value: bytes, policy: KeyPolicy) -> KeyFound:
    """Judge one field value, without its surrounding whitespace."""
    text = _RAW_PARSERS[policy.mode](value)
    if text is None:
        return KeyInvalid(_REMEDY[policy.mode])
    if not policy.min_length <= len(text) <= policy.max_length:
        return KeyInvalid(f"The key has {len(text)} characters. It must have {policy.min_length} to {policy.max_length}.")
    return Key(text.decode("ascii"))


def _parse_strict(value: bytes) -> bytes | None:
    found = _STRING.fullmatch(value)
    if found is None or not _are_parameters(found[2]):
        return None
    return _ESCAPED.sub(rb"\1", found[1]) if b"\\" in found[1] else found[1]


def _are_parameters(text: bytes) -> bool:
    """Whether only parameters stand behind the String (RFC 9651 section 4.2.3.2). Display Strings must be UTF-8 (section 4.2.10)."""
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
_REMEDY = {
    KeyMode.STRICT: 'The key must be a quoted string, as in "8e03978e-40d5-43dd-bc93-6894a57f9324" (RFC 9651 section 3.3.3).',
    KeyMode.LENIENT: "The key must be one token of letters, digits and -_.~/+=*:@ or a quoted string. A UUID is a good key.",
    KeyMode.RAW: "The key must be visible ASCII characters without a comma.",
}
