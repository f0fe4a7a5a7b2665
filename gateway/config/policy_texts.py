"""Texts of a route's policy that have a form. As in `texts`: each function returns the value or raises ValueError with the remedy."""

import importlib
import ipaddress
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from gateway.config.kinds import did_you_mean
from gateway.config.texts import header_name, parse_url, pointer, upstream_url
from gateway.core.fingerprint_head import DROPPABLE

MAX_EXPRESSION = 1000

MAX_WAYS = 2**23
"""A matcher tries as many in a fifth of a second."""

_LONGEST_RUN = 140
"""How often something is counted as repeated at most. Three repetitions share a key of 255 characters in 140 ** 3 ways."""

_PARSER: Any = importlib.import_module("re._parser")
"""The only way to see a pattern's shape. It has no types, and whether type checkers know it depends on what else they read."""

_PATH = re.compile(r"/[\x21\x22\x24-\x7e]*")
_VALUE = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_URL = re.compile(r"[\x21-\x7e]+")


def parameter(text: str) -> str:
    """A query parameter's name, decoded."""
    if not 1 <= len(text) <= 128 or not text.isprintable():
        raise ValueError("a query parameter has a name of 1 to 128 printable characters, as in request_id; write it decoded")
    return text


def droppable(text: str) -> str:
    """A field that the fingerprint covers without being asked to, in lower case."""
    name = header_name(text).lower()
    if name not in DROPPABLE:
        remedy = did_you_mean(name, DROPPABLE) or "; remove it"
        raise ValueError(f'"{text[:70]}" does not count by itself{remedy}')
    return name


def member_pointer(text: str) -> str:
    """RFC 6901, to a member: the whole document is no place for a key."""
    if not text:
        raise ValueError("the empty pointer means the whole body; name a member, as in /idempotency_key")
    return pointer(text)


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

    Alternatives add up, what stands in a row multiplies, and what is repeated multiplies as often. A possessive repetition and an atomic
    group are left in one way.
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
    """Whether a parsed pattern holds a repetition of variable length within another one: what can backtrack without end."""
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


def claim(text: str) -> str:
    if not text:
        raise ValueError("a claim has a name, such as sub")
    return text


def secret(text: str) -> str | None:
    return text or None


def issuer(text: str) -> str | None:
    return text or None


def audience(text: str) -> str:
    if not text:
        raise ValueError("an audience is a text that is not empty, as in https://api.example.com")
    return text


def jwks_url(text: str) -> str | None:
    """`https://` or `http://`, with a path and a query if need be."""
    if not text:
        return None
    url = parse_url(text)
    if url is None or url.scheme not in {"http", "https"} or not _URL.fullmatch(text):
        raise ValueError("the address of public keys looks like https://login.example.com/.well-known/jwks.json")
    if url.username is not None or url.password is not None or "#" in text:
        raise ValueError("the address of public keys holds no credentials and no #fragment")
    try:
        upstream_url(f"{url.scheme}://{url.netloc}")
    except ValueError:
        raise ValueError(f'"{url.netloc[:70]}" is not a host, or a host and a port') from None
    return text


def exposed(url: str) -> bool:
    """Whether keys from this address may be read and changed on their way here."""
    parts = parse_url(url)
    assert parts is not None
    if parts.scheme == "https":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname != "localhost"


def target_path(text: str) -> str:
    """The target of a request of our own: a path, perhaps with a query."""
    if not _PATH.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not a path; it starts with / and is ASCII without spaces and #, as in /auth/check')
    return text


def field_value(text: str) -> str:
    """One value of a header field, compared without regard to letter case."""
    if not _VALUE.fullmatch(text) or len(text) > 256:
        raise ValueError("a header value is visible ASCII with single spaces inside, 256 characters at most")
    return text
