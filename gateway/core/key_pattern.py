"""Regular expressions that a key must match besides its grammar: what could make a matcher try for ever is refused."""

import importlib
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

MAX_EXPRESSION = 1000

MAX_WAYS = 2**23
"""A matcher tries as many in a fifth of a second."""

_LONGEST_RUN = 140
"""How often something is counted as repeated at most. Three repetitions share a key of 255 characters in 140 ** 3 ways.
"""

_PARSER: Any = importlib.import_module("re._parser")
"""The only way to see a pattern's shape. It has no types, and whether type checkers know it depends on what else they
read.
"""


def expression(text: str) -> str | None:
    """A regular expression of Python. What will change its meaning in a later Python is refused now."""
    if len(text) > MAX_EXPRESSION:
        raise ValueError(f"has {len(text)} characters; {MAX_EXPRESSION} are the most")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)
            parsed = _PARSER.parse(text)
            nested, ways = _repeats(parsed, within=False), _ways(parsed)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {str(error)[:100]}") from None
    if nested:
        raise ValueError("repeats what repeats already, as in (a+)+, which some keys could make take for ever; write it without")
    if ways > MAX_WAYS:
        remedy = "write fixed lengths, fewer alternatives, or repetitions that give nothing back, as in [a-z]++-"
        raise ValueError(f"can match in too many ways, of which some keys could make it try all; {remedy}")
    return text or None


def _ways(pattern: Iterable[Any]) -> int:
    """How many ways a backtracking matcher may have to try, at most; more than `MAX_WAYS` if there are more.

    Alternatives add up, what stands in a row multiplies, and what is repeated multiplies as often. A possessive
    repetition and an atomic group are left in one way.
    """
    ways = 1
    for operation, argument in pattern:
        match str(operation):
            case "BRANCH":
                ways *= sum(map(_ways, argument[1]))
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, repeated = argument
                inner, times = _ways(repeated), min(most, _LONGEST_RUN)
                ways *= max(1, times - min(least, times) + 1) if inner == 1 else inner**times
            case "POSSESSIVE_REPEAT" | "ATOMIC_GROUP":
                ways *= 1 if all(_ways(part) <= MAX_WAYS for part in _parts(argument)) else MAX_WAYS + 1
            case _:
                ways *= math.prod(map(_ways, _parts(argument)))
        ways = min(ways, MAX_WAYS + 1)
    return ways


def _repeats(pattern: Iterable[Any], *, within: bool) -> bool:
    """Whether a parsed pattern holds a repetition of variable length within another one: what can backtrack without
    end.
    """
    for operation, argument in pattern:
        if str(operation) in {"POSSESSIVE_REPEAT", "ATOMIC_GROUP"}:
            continue  # gives nothing back; for what is within it see `_ways`
        inner = within
        if isinstance(argument, tuple) and len(argument) == 3 and isinstance(argument[0], int) and isinstance(argument[1], int):
            variable = argument[0] != argument[1] and argument[1] > 1
            if within and variable:
                return True
            inner = within or variable
        if any(_repeats(part, within=inner) for part in _parts(argument)):
            return True
    return False


def _parts(argument: Any) -> Iterator[Iterable[Any]]:
    """The patterns within the argument of an operation, however deep."""
    if isinstance(argument, _PARSER.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for one in argument:
            yield from _parts(one)
