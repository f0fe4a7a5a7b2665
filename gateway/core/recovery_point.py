"""Recovery points: how far an attempt has come, in the upstream's own words. Pure."""

import re
from dataclasses import dataclass

from gateway.core.strict_json import read, refuse_lone_surrogates, write

LONGEST_DATA = 4096
"""Bytes of a point's data as the field has it: compact JSON in ASCII. Many servers take no field of more than 8 KiB."""

LONGEST_BODY = 16 * 1024
"""Bytes of a request that tells a point: its data in any form, and the rest."""

LABEL = re.compile(r"[a-z0-9_.-]{1,50}")


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """A label, and what the upstream needs to go on from there: the text of a JSON object, or nothing."""

    label: str
    data: str | None = None


class BadPoint(ValueError):
    """What was told is no recovery point. The message says why, and the remedy."""


class DataTooLarge(ValueError):
    """The data of a point has more than `LONGEST_DATA` bytes."""


def read_point(body: bytes) -> RecoveryPoint:
    """The point that `{"recovery_point": "charge_created", "data": {…}}` tells. Raises `BadPoint` and `DataTooLarge`."""
    try:
        document = read(body)
    except ValueError as error:
        raise BadPoint("Send a JSON object that can be read in one way only.") from error
    if not isinstance(document, dict) or not {"recovery_point"} <= document.keys() <= {"recovery_point", "data"}:
        raise BadPoint('Send an object with "recovery_point", and "data" if there is any.')
    label, data = document["recovery_point"], document.get("data")
    if type(label) is not str or LABEL.fullmatch(label) is None:
        raise BadPoint('"recovery_point" is 1 to 50 lower-case letters, digits, and _ . -')
    if data is None:
        return RecoveryPoint(label)
    if not isinstance(data, dict):
        raise BadPoint('"data" is an object.')
    try:
        refuse_lone_surrogates(data)
    except ValueError as error:
        raise BadPoint('"data" holds half of a surrogate pair.') from error
    text = write(data)
    if len(field_value(text)) > LONGEST_DATA:
        raise DataTooLarge(f'"data" has at most {LONGEST_DATA} bytes, with an escape of six for each character that is not ASCII.')
    return RecoveryPoint(label, text)


def field_value(data: str) -> bytes:
    """The data as the value of a header field: JSON in ASCII, with an escape for each other character, or two."""
    return "".join([letter if letter < "\x7f" else _escaped(letter) for letter in data]).encode("ascii")


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be")
    return "".join([f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])
