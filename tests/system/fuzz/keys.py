"""An independent reading of keys: a String as RFC 9651 section 4.2.5 parses it, and the lenient grammar as the documentation words it."""

from tests.core.structured import Cursor, NotAnItem

_ALPHANUMERIC = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_FIRST = _ALPHANUMERIC | frozenset(b"_.~/+=*-")
_NOT_BARE = frozenset(b"\"'\\,;`%?")
LONGEST = 255


def string_key(value: bytes) -> bytes | None:
    """The content of a String Item with whatever parameters, or None."""
    content = bytearray()
    at = 1
    if value[:1] != b'"':
        return None
    while True:
        char = value[at : at + 1]
        if char == b"\\":
            at += 1
            if value[at : at + 1] not in {b'"', b"\\"}:
                return None
            content += value[at : at + 1]
        elif char == b'"':
            break
        elif not b" " <= char <= b"~":
            return None
        else:
            content += char
        at += 1
    behind = Cursor(value[at + 1 :].rstrip(b" "))
    try:
        behind.parameters()
    except NotAnItem:
        return None
    return bytes(content) if not behind.text else None


def bare_key(value: bytes) -> bytes | None:
    """A bare token: visible ASCII but quotes, backslash, comma, semicolon, backtick, percent and question mark; no sigil in front."""
    visible = all(0x21 <= code <= 0x7E and code not in _NOT_BARE for code in value)
    return value if value and visible and value[0] in _FIRST else None


def lenient_key(value: bytes) -> bytes | None:
    """A key of 1 to 255 characters in either spelling."""
    key = string_key(value) if value.startswith(b'"') else bare_key(value)
    return key if key is not None and 1 <= len(key) <= LONGEST else None


def raw_key(value: bytes) -> bytes | None:
    """Visible ASCII and inner blanks, but no comma."""
    fits = all(0x20 <= code <= 0x7E and code != 0x2C for code in value)
    return value if value and fits and value == value.strip(b" ") else None
