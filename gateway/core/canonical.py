"""Canonical JSON (RFC 8785) for strict I-JSON (RFC 7493), and nothing else.

`canonicalise` answers None for each text that two readers may read differently: whatever is not strict JSON
(`strict_json`), a lone surrogate, a number that is not exactly what the shortest text of its double says, a number
beyond fixed limits. The limits are ours and not the interpreter's, so that one body has one canonical form in every
process of a rolling deploy.

Two readers make the form. The exact one (`strict_json.read`) defines it. The quick one reads nearly every body at a
third of the cost. It takes only texts that it certainly reads like the exact one, and leaves all others to that.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

import orjson

from gateway.core.pointers import NOTHING, Json, Pointer, selected, without
from gateway.core.strict_json import MAX_DEPTH, Pairs, decoder, read, unique_members

MAX_NUMBER_LENGTH = 64
MAX_EXPONENT_LENGTH = 3

_SAFE_DIGITS = 15
"""Two different decimals of so many digits are never one double (DBL_DIG): then the shortest text of the double is the
decimal.
"""

_SAFE_EXPONENT = 290
"""Well within the normal doubles, for all numbers of `_SAFE_DIGITS` digits and this exponent."""

_DECIMAL = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_SHORT_FRACTION = re.compile(rb"\.[0-9]{0,3}[1-9]0{0,9}(?![0-9])")
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_TOO_LONG = b"0" * (_SAFE_DIGITS + 1)
_TOO_LONG_WITH_FRACTION = b"0" * (_SAFE_DIGITS - 3)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CAPITALS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ") | frozenset(range(0x80, 0x100))
_CASED = bytes(ord("A") if octet in _CAPITALS else octet for octet in range(256))
_CASELESS = bytes(set(range(256)) - _CAPITALS - {ord('"'), ord(":")})
"""To keep of a form capitals (all of them an A, letters beyond ASCII too), quotes and colons alone."""
_BEYOND_BASIC_PLANE = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")
"""The first bytes of characters beyond U+FFFF in UTF-8."""

_MINUS, _POINT, _BACKSLASH, _EXPONENT, _CAPITAL_EXPONENT = b"-.\\eE"
"""To look for one of these octets costs a fifth of what it costs to look for a text."""

_AS_READ = orjson.OPT_PASSTHROUGH_SUBCLASS
_SORTED = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_SORT_KEYS


class NotCanonical(ValueError):
    """The text is strict JSON, or could be, and has no canonical form."""


class _Number(str):
    """A number that is already in its ECMAScript text (ECMA-262 Number::toString)."""

    __slots__ = ()


def canonicalise(body: bytes, ignore: Sequence[Pointer] = (), only: Sequence[Pointer] = (), *, case_variants: bool = True) -> bytes | None:
    """The canonical form of a JSON text, or None if it has none.

    The form leaves out the values under `ignore` and, if `only` is not empty, all that is not under `only`. If `only`
    selects nothing, the form is empty, as no other form is. Without `case_variants`, a text has no form if an object
    has two names that differ only in letter case: to readers that ignore case (those of Go and .NET) the last one
    counts, and a canonical form has no last one.
    """
    try:
        value, form, sort = _read(body)
        if not case_variants and (form is None or _may_have_variants(form)) and _has_variants(value):
            return None
        if form is None or ignore or only:
            return _write(_covered(value, ignore, only), sort=sort)
        return form
    except ValueError:  # JSONDecodeError and UnicodeError are ValueErrors
        return None


def _read(body: bytes) -> tuple[Json, bytes | None, bool]:
    """The value, its form if the quick reader made it, and whether members are yet to be sorted, by their bytes."""
    escaped = _BACKSLASH in body
    pieces = _between_quotes(body) if escaped else body.split(b'"')
    outside = b"".join(pieces[::2])
    height = 0 if outside.count(b"{") + outside.count(b"[") <= MAX_DEPTH else _height(outside)
    in_byte_order = (not escaped and body.isascii()) or _has_names_in_byte_order(body, pieces)
    if height <= MAX_DEPTH and in_byte_order and _has_plain_numbers(outside):
        found = _quick(body, len(pieces) - 1)
        if found is not None:
            return *found, True
    return read(body, _EXACT if in_byte_order else _EXACT_SORTING), None, in_byte_order


def _covered(value: Json, ignore: Sequence[Pointer], only: Sequence[Pointer]) -> Json:
    for pointer in ignore:
        value = without(value, pointer)
    return selected(value, only) if only else value


def _write(value: Json, *, sort: bool) -> bytes:
    if value is NOTHING:
        return b""
    try:
        return orjson.dumps(value, _fragment, _SORTED if sort else _AS_READ)
    except orjson.JSONEncodeError as error:  # of all that the readers make, only lone surrogates
        raise NotCanonical("lone surrogate") from error


def _fragment(value: object) -> orjson.Fragment:
    """The one subclass among the values: its text is taken as it is."""
    assert isinstance(value, _Number), "the readers make no other class"
    return orjson.Fragment(str(value))


# ---- names that are one to readers without letter case


def _may_have_variants(form: bytes) -> bool:
    """Whether two names anywhere in a canonical form differ in letter case alone, exact but for where they stand.
    Linear, quick where no name has a capital or a letter beyond ASCII.
    """
    if _BACKSLASH in form:
        form = form.replace(b"\\\\", b"").replace(b'\\"', b"")  # no letter goes, so that names which differ in one still do
    cased = form.translate(_CASED, _CASELESS)
    if cased.find(b'A":') < 0 and (cased.find(b"A:") < 0 or cased.replace(b'":', b"\0").replace(b":", b"").find(b"A\0") < 0):
        return False  # where a quote begins a text, what is before it is another quote, or a colon behind one
    names = {piece[piece.rfind(b'"') + 1 :] for piece in form.split(b'":')[:-1]}
    if form.isascii():
        return len(set(map(bytes.lower, names))) != len(names)
    return len({_folded(name.decode()) for name in names}) != len(names)


def _has_variants(value: Json) -> bool:
    """Whether any object has two such names. Without recursion: a value nests as deep as `MAX_DEPTH`."""
    holders = [value]
    while holders:
        holder = holders.pop()
        if isinstance(holder, dict):
            if len(set(map(_folded, holder))) != len(holder):
                return True
            holders += holder.values()
        elif isinstance(holder, list):
            holders += holder
    return False


def _folded(name: str) -> str:
    """A name without letter case. Letters beyond Cyrillic keep theirs (but the Kelvin sign, which is a K to Go): which
    of them have one depends on the interpreter's Unicode, and no fingerprint may.
    """
    name = name.replace("\u212a", "K")
    return name.casefold() if name.isascii() or max(name) < "\u0530" else name


# ---- what stands outside of strings


def _between_quotes(body: bytes) -> list[bytes]:
    """What is outside of strings and what is inside, in turn, if the text is JSON. Some escapes are left out of the
    inside.
    """
    return body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')  # pairs first: in \\" the quote ends the string


def _height(outside: bytes) -> int:
    """How deep the text nests, if it is JSON. Raises `NotCanonical` beyond `MAX_DEPTH` + 1.

    Refused before anything parses it: an interpreter's own limit must not decide which form a body has.
    """
    brackets = outside.translate(_BRACKETS, _ALL_BUT_BRACKETS)
    for height in range(1, MAX_DEPTH + 2):
        size = len(brackets)
        brackets = brackets.replace(b"[]", b"")  # the innermost of all
        if not brackets:
            return height
        if len(brackets) == size:
            break
    raise NotCanonical("too deep, or no JSON")


# ---- the quick reader


def _quick(body: bytes, quotes: int) -> tuple[Json, bytes] | None:
    """The value and its form, or None if the exact reader must judge. Raises `NotCanonical` for duplicate names."""
    try:
        value = orjson.loads(body)
    except ValueError:
        return None
    form = orjson.dumps(value, None, _SORTED)
    found = form.count(b'"')
    if _BACKSLASH in form:
        found -= form.replace(b"\\\\", b"").count(b'\\"')
    if found != quotes:
        raise NotCanonical("duplicate name")  # one was dropped, and its quotes with it
    return value, form


def _has_names_in_byte_order(body: bytes, pieces: list[bytes]) -> bool:
    """Whether the order of names by UTF-16 code units (RFC 8785 section 3.2.3) is that of their bytes: without
    characters beyond U+FFFF.
    """
    escaped = b"\\" in body and (b"\\ud" in body or b"\\uD" in body)
    if not escaped and (body.isascii() or not any(lead in body for lead in _BEYOND_BASIC_PLANE)):
        return True
    strings, behind = pieces[1::2], pieces[2::2]
    special = [at for at, plain in enumerate(map(bytes.isascii, strings)) if not plain]
    if escaped:
        special += [at for at, string in enumerate(strings) if b"\\" in string]
    return not any(behind[at].lstrip(b" \t\r\n").startswith(b":") for at in special if at < len(behind))


def _has_plain_numbers(outside: bytes) -> bool:
    """Whether each number is exact as a double, and its text is what ECMAScript and the quick writer make of it."""
    if _MINUS in outside and outside.find(b"-0") >= 0:
        return False
    if _CAPITAL_EXPONENT in outside or (_EXPONENT in outside and outside.count(b"e") != outside.count(b"t") + outside.count(b"f")):
        return False  # an e is that of true, of false or of an exponent
    digits = outside.translate(_DIGITS)
    if _POINT not in outside:
        return digits.find(_TOO_LONG) < 0
    return digits.find(_TOO_LONG_WITH_FRACTION) < 0 and outside.count(b".") == len(_SHORT_FRACTION.findall(outside))


# ---- the exact reader


def _unique_in_utf16_order(pairs: Pairs) -> dict[str, Json]:
    return dict(sorted(unique_members(pairs).items(), key=_utf16_order))


def _utf16_order(member: tuple[str, Json]) -> bytes:
    return member[0].encode("utf-16-be", "surrogatepass")  # a lone surrogate may stand in what is ignored


def _integer(text: str) -> Json:
    return int(text) if len(text) <= _SAFE_DIGITS else _number(text)


def _number(text: str) -> Json:
    """The number's ECMAScript text, if that text has exactly the value that was written: 1e2 is 100, but 0.1000…0001 is
    not 0.1.
    """
    if len(text) > MAX_NUMBER_LENGTH or len(text.lower().partition("e")[2].lstrip("+-")) > MAX_EXPONENT_LENGTH:
        raise NotCanonical("number too long")
    parts = _DECIMAL.fullmatch(text)
    assert parts is not None, "the decoder found a number"
    sign, whole, fraction, exponent = parts.groups("")
    digits = (whole + fraction).lstrip("0")
    power = int(exponent or "0") - len(fraction)
    if len(digits) <= _SAFE_DIGITS and -_SAFE_EXPONENT <= power <= _SAFE_EXPONENT:
        return _Number(_layout(sign, digits, power))
    double = float(text)
    shortest = repr(double)
    if shortest in {"inf", "-inf"} or Decimal(shortest) != Decimal(text):
        raise NotCanonical("number not exact")
    return _Number(ecmascript(double))


def ecmascript(double: float) -> str:
    """ECMA-262 Number::toString for a finite double: the digits are Python's (both are the shortest), the layout is
    ECMAScript's.
    """
    sign, digits, exponent = Decimal(repr(double)).as_tuple()
    assert isinstance(exponent, int), "a finite double"
    return _layout("-" if sign else "", "".join(map(str, digits)).lstrip("0"), exponent)


def _layout(sign: str, digits: str, power: int) -> str:
    """How ECMAScript writes the number `digits` · 10^`power`. The digits do not start with 0; none are zero."""
    text = digits.rstrip("0")
    if not text:
        return "0"
    point = len(digits) + power
    if len(text) <= point <= 21:
        return sign + text + "0" * (point - len(text))
    if 0 < point <= 21:
        return f"{sign}{text[:point]}.{text[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{text}"
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{sign}{mantissa}e{'+' if point > 0 else '-'}{abs(point - 1)}"


_EXACT = decoder(_integer, _number)
_EXACT_SORTING = decoder(_integer, _number, _unique_in_utf16_order)
"""For texts in which the order of names by UTF-16 code units is not that of their bytes."""
