"""Keys that look as if they would not do their work: guessable, or personal data. Never refused, only counted and
logged by digest.

A guessable key may be another operation's key tomorrow, and lets others in a scope probe for it. A personal key ends up
in the logs and tables of every hop. These are heuristics: they know common shapes and say nothing about the rest. They
take no UUID, ULID, NanoID, KSUID, hex digest or base64 of random bytes for anything (but one in a million), as long as
it has 20 characters.
"""

import enum
import re

SHORT = 16
"""Keys with fewer characters are short. 16 hex digits, 64 random bits, are not, unless none of them happens to be a
letter.
"""

FEW = 4
"""A key made of so few different characters is repetitive, as is the nil UUID."""

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}(?![A-Za-z0-9])")
_PHONE = re.compile(r"(?<![A-Za-z0-9+/=_-])\+[1-9](?:[ ().-]{0,2}[0-9]){7,14}(?![A-Za-z0-9+/=_])")
_CARD = re.compile(r"(?<![A-Za-z0-9])[2-6](?:[0-9]{13,18}|[0-9]{3}(?:[ -][0-9]{4}){3}|[0-9]{3}[ -][0-9]{6}[ -][0-9]{5})(?![A-Za-z0-9])")
_COUNTER = re.compile(r"[0-9]+(?:[-_:/.#T ][0-9]+)*Z?")
_COUNTED = re.compile(r"(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)(?:[-_:/.#](?:[a-z]+|[A-Z]+|[A-Z][a-z]+))*(?:[-_:/.#]([0-9]+)|[0-9]+)")
_UUID = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[1-8][0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}")
"""RFC 9562 section 4. Most keys are one, and its shape leaves room for nothing but repetition."""

_COUNTER_DIGITS = 19
"""What a 64-bit number has at most: sequences, timestamps, and ids made of both."""


class Notice(enum.StrEnum):
    """What a key looks like. A closed set: metrics use it as a label."""

    EMAIL = "email"
    CARD = "card"
    PHONE = "phone"
    COUNTER = "counter"
    REPETITIVE = "repetitive"
    SHORT = "short"


def notice(key: str) -> Notice | None:
    """What is to be said about a key, the worst first: personal data, what can be counted, what can be guessed. Pure
    and cheap.
    """
    if not _UUID.fullmatch(key):
        if "@" in key and _EMAIL.search(key):
            return Notice.EMAIL
        if _CARD.search(key) is not None and any(_is_card(found[0]) for found in _CARD.finditer(key)):
            return Notice.CARD
        if "+" in key and _PHONE.search(key):
            return Notice.PHONE
        if _is_counter(key):
            return Notice.COUNTER
        if len(key) < SHORT:
            return Notice.SHORT
    few = len(set(key[:SHORT])) <= FEW + 1 and len(set(key) - {"-"}) <= FEW  # nearly every key shows more at its beginning
    return Notice.REPETITIVE if few else None


def _is_counter(key: str) -> bool:
    """Bare digits, dates and times; or words and then digits, set off from them unless the key is short: `order-1001`,
    `txn42`.
    """
    if _COUNTER.fullmatch(key):
        return sum(map(str.isdigit, key)) <= _COUNTER_DIGITS
    counted = _COUNTED.fullmatch(key)
    return counted is not None and (len(key) < SHORT if counted[1] is None else len(counted[1]) <= _COUNTER_DIGITS)


def _is_card(text: str) -> bool:
    """The check digit of payment cards (ISO/IEC 7812-1, annex B), which one in ten numbers has by chance."""
    total = 0
    for place, character in enumerate(reversed([character for character in text if character.isdigit()])):
        digit = int(character) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0
