"""Form bodies (application/x-www-form-urlencoded, WHATWG URL section 5.1) by their pairs, and the parameters of a query.

`read_form` answers None for everything whose meaning could be read in two ways: a broken escape, a `;` that some readers take for `&`,
a name without `=`, characters that no serializer leaves as they are (a JSON text sent under the type of a form is full of them).
"""

import re
from collections.abc import Callable
from operator import itemgetter
from string import ascii_letters, digits
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

from gateway.core.model import Headers
from gateway.core.path_interpretations import decode_escapes
from gateway.core.scope import length_prefixed

MAX_PAIRS = 4096

FREE_PAIRS = 256
"""In a form of more pairs their order counts: readers ignore silently what comes behind their limit (1000 with PHP and Node)."""

FORM_TYPE = b"application/x-www-form-urlencoded"

_PLAIN = (ascii_letters + digits + "-._~!$'()*+,:@/?[]=&%").encode()
"""What a query may hold (RFC 3986 section 3.4) without `;`, and brackets, which many clients leave as they are."""

_COMMON = ((b"%5B", b"["), (b"%5D", b"]"), (b"%20", b" "), (b"%40", b"@"), (b"%2F", b"/"), (b"%3A", b":"), (b"%2C", b","))
"""Escapes of what separates nothing: undone all at once, they cost next to nothing."""

_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_ONE_READING = re.compile(rb"([A-Za-z0-9_-]+)(?:\[[A-Za-z0-9_-]*\])*+")
_FOLD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ-. []\0", b"abcdefghijklmnopqrstuvwxyz______")

Pairs: TypeAlias = list[tuple[bytes, bytes]]
Ordering: TypeAlias = Callable[[Pairs], Pairs]


def decode_parameter(text: bytes) -> bytes:
    """A name or a value of a query as it is meant. Broken escapes are kept as they stand."""
    return decode_escapes(text.replace(b"+", b" "))


def without_named(query: bytes, names: frozenset[bytes]) -> bytes:
    """A query without its parameters of these names; what is left stays as it stands. A pair with a `;` is left: some readers find another
    parameter behind it.
    """
    pairs = query.split(b"&")
    kept = [pair for pair in pairs if b";" in pair or decode_parameter(pair.partition(b"=")[0]) not in names]
    return query if len(kept) == len(pairs) else b"&".join(kept)


def is_form(headers: Headers) -> bool:
    """Whether a request with these fields has a form body and nothing else: of one media type, not coded."""
    types = [value for name, value in headers if len(name) == 12 and name.lower() == b"content-type"]
    coded = any(len(name) == 16 and name.lower() == b"content-encoding" for name, _ in headers)
    return not coded and len(types) == 1 and types[0].partition(b";")[0].strip().lower() == FORM_TYPE


def may_name(spelled: bytes, wanted: bytes) -> bool:
    """Whether some reader takes a decoded name for `wanted`. PHP ends it at a NUL or a bracket, drops blanks before it, and reads dots,
    blanks and open brackets as underscores; ASP.NET does not know letter case; a hyphen is an underscore to some.
    """
    name, wanted = spelled.partition(b"\0")[0].lstrip(b" "), wanted.translate(_FOLD)
    return name.translate(_FOLD) == wanted or name.partition(b"[")[0].translate(_FOLD) == wanted


def read_form(body: bytes, ignore: frozenset[bytes] = frozenset(), ordering: Ordering | None = None) -> bytes | None:
    """An injective encoding of the decoded pairs whose name is not in `ignore`, or None if the body is no strict form or has more than
    `MAX_PAIRS` pairs. `ordering` puts pairs whose order does not count into one order; by default `in_safe_order`.
    """
    pairs = form_pairs(body)
    if pairs is None:
        return None
    if ignore:
        pairs = [pair for pair in pairs if pair[0] not in ignore]
    pairs = (ordering or in_safe_order)(pairs)
    return length_prefixed([part for pair in pairs for part in pair])


def form_pairs(body: bytes) -> Pairs | None:
    """The decoded pairs of a strict form of at most `MAX_PAIRS` pairs, in their order; None if it is none."""
    if body.count(b"&") >= MAX_PAIRS or body.translate(None, _PLAIN) or _BROKEN_ESCAPE.search(body):
        return None
    if b"%" in body:
        for escape, char in _COMMON:
            body = body.replace(escape, char)
    pairs: Pairs = []
    for text in body.replace(b"+", b" ").split(b"&"):
        name, equals, value = text.partition(b"=")
        if equals:
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)) if b"%" in text else (name, value))
        elif text:
            return None
    return pairs


def in_safe_order(pairs: Pairs) -> Pairs:
    """Pairs in the order of what their names are about, where no reader can tell the difference (fingerprint version 3).

    The order counts among names that are about one thing (equal up to their first bracket, letter case and hyphens aside): `a=2&a[b]=1` is
    a list or a text to PHP, by its order. It counts of all pairs as soon as a name could be taken for another one's (a dot or a blank is an
    underscore to PHP, and a level to others) or more than `FREE_PAIRS` are there.
    """
    if len(pairs) > FREE_PAIRS:
        return pairs
    keyed: list[tuple[bytes, tuple[bytes, bytes]]] = []
    for pair in pairs:
        known = _ONE_READING.fullmatch(pair[0])
        if known is None:
            return pairs
        keyed.append((known[1].translate(_FOLD), pair))
    keyed.sort(key=itemgetter(0))  # stable
    return [pair for _, pair in keyed]


def in_order_of_names(pairs: Pairs) -> Pairs:
    """How fingerprint version 2 orders pairs: by their names. Where a name has an empty bracket (`items[][sku]`) those that start alike, up
    to their first bracket, keep their order.
    """
    lists = {_start(name) for name, _ in pairs if b"[]" in name}
    if not lists:
        return sorted(pairs, key=itemgetter(0))  # stable
    return sorted(pairs, key=lambda pair: start if (start := _start(pair[0])) in lists else pair[0])


def _start(name: bytes) -> bytes:
    return name.partition(b"[")[0]
