"""Durations (`250ms 2s 5m 24h 7d`), sizes (`512B 8KiB 1MiB 512KB 10MB`) and rates (`50/s 100/min`), read and written."""

import re
from dataclasses import dataclass
from decimal import Decimal

_DURATION = re.compile(r"(?P<number>[0-9]{1,12}(?:\.[0-9]{1,3})?)(?P<unit>ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>[A-Za-z]*)", re.ASCII)
_RATE = re.compile(r"(?P<count>[0-9]{1,9})/(?P<unit>s|min|h|d)", re.ASCII)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?", re.ASCII)

_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_BYTES = {
    "GiB": 1024**3, "GB": 1000**3,
    "MiB": 1024**2, "MB": 1000**2,
    "KiB": 1024, "KB": 1000,
    "B": 1,
}  # fmt: skip
_PERIODS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so many seconds."""

    count: int
    seconds: int


def parse_duration(text: str) -> float:
    """Seconds. Whole milliseconds only. Raises ValueError with the remedy."""
    found = _DURATION.fullmatch(text)
    if found is None:
        if _NUMBER.fullmatch(text):
            raise ValueError(f"{text} has no unit; write {text.rstrip('.')}s for seconds (units: ms, s, m, h, d)")
        raise ValueError(f'"{text[:40]}" is not a duration; write for example 250ms, 2s, 5m, 24h or 7d')
    milliseconds = Decimal(found["number"]) * _MILLISECONDS[found["unit"]]
    if milliseconds != int(milliseconds):
        raise ValueError(f"{text} is finer than a millisecond")
    return int(milliseconds) / 1000


def format_duration(seconds: float) -> str:
    """One whole number in the largest unit that fits, but 24h rather than 1d. `parse_duration` gives it back, to the millisecond."""
    milliseconds = round(seconds * 1000)
    if milliseconds == 0:
        return "0s"
    unit = next(unit for unit, factor in _MILLISECONDS.items() if milliseconds % factor == 0 and (unit != "d" or milliseconds > factor))
    return f"{milliseconds // _MILLISECONDS[unit]}{unit}"


def parse_size(text: str) -> int:
    """Bytes. KiB, MiB, GiB are powers of 1024; KB, MB, GB powers of 1000; a plain number is bytes. Raises ValueError with the remedy."""
    found = _SIZE.fullmatch(text)
    if found is None or (found["unit"] or "B") not in _BYTES:
        raise ValueError(f'"{text[:40]}" is not a size; write for example 512B, 8KiB, 512KB, 1MiB or 10MB')
    return int(found["number"]) * _BYTES[found["unit"] or "B"]


def format_size(size: int) -> str:
    """One whole number in the largest unit that fits; `parse_size` gives the same size back."""
    if size == 0:
        return "0B"
    unit = next(unit for unit, factor in _BYTES.items() if size % factor == 0)
    return f"{size // _BYTES[unit]}{unit}"


def parse_rate(text: str) -> Rate:
    """Raises ValueError with the remedy."""
    found = _RATE.fullmatch(text)
    if found is None or not int(found["count"]):
        raise ValueError(f'"{text[:40]}" is not a rate; write for example 50/s, 100/min, 1000/h or 5000/d')
    return Rate(int(found["count"]), _PERIODS[found["unit"]])


def format_rate(rate: Rate) -> str:
    """`parse_rate` gives the same rate back."""
    return f"{rate.count}/{next(unit for unit, seconds in _PERIODS.items() if seconds == rate.seconds)}"
