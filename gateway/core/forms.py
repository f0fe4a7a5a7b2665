"""Form bodies (application/x-www-form-urlencoded, WHATWG URL section 5.1) by their pairs.

`read_form` answers None for everything whose meaning could be read in two ways: a broken escape, a `;` that some readers take for `&`,
a name without `=`, characters that no serializer leaves as they are (a JSON text sent under the type of a form is full of them).
"""

import re
from operator import itemgetter
from string import ascii_letters, digits
from urllib.parse import unquote_to_bytes

from gateway.core.scope import length_prefixed

MAX_PAIRS = 4096

_PLAIN = (ascii_letters + digits + "-._~!$'()*+,:@/?[]=&%").encode()
"""What a query may hold (RFC 3986 section 3.4) without `;`, and brackets, which many clients leave as they are."""

_COMMON = ((b"%5B", b"["), (b"%5D", b"]"), (b"%20", b" "), (b"%40", b"@"), (b"%2F", b"/"), (b"%3A", b":"), (b"%2C", b","))
"""Escapes of what separates nothing: undone all at once, they cost next to nothing."""

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def read_form(body: bytes) -> bytes | None:
    """An injective encoding of the decoded pairs, or None if the body is no strict form or has more than `MAX_PAIRS` pairs.

    The order of pairs with different names does not count, that of equal names does. Where a name has an empty bracket (`items[][sku]`)
    the order of all names that start alike counts, up to their first bracket: readers build lists from it.
    """
    if body.count(b"&") >= MAX_PAIRS or body.translate(None, _PLAIN) or _BROKEN_ESCAPE.search(body):
        return None
    if b"%" in body:
        for escape, char in _COMMON:
            body = body.replace(escape, char)
    pairs: list[tuple[bytes, bytes]] = []
    for text in body.replace(b"+", b" ").split(b"&"):
        name, equals, value = text.partition(b"=")
        if equals:
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)) if b"%" in text else (name, value))
        elif text:
            return None
    pairs = _in_order(pairs)
    return length_prefixed([part for pair in pairs for part in pair])


def _in_order(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    lists = {_start(name) for name, _ in pairs if b"[]" in name}
    if not lists:
        return sorted(pairs, key=itemgetter(0))  # stable
    return sorted(pairs, key=lambda pair: start if (start := _start(pair[0])) in lists else pair[0])


def _start(name: bytes) -> bytes:
    return name.partition(b"[")[0]
