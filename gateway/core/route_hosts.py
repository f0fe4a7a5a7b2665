"""Which routes a host may reach, where routes are for certain hosts.

A route's host is a name, or `*.` and a name: one or more labels more. Letter case, ports and one final dot mean nothing. A Host that some
upstream may read as another one (an escape, an empty label, characters that no host name has) reaches no route at all.
"""

import re
from collections.abc import Sequence

from gateway.core.host import split_port

MAX_HOST = 253
"""The longest name (RFC 1035 section 2.3.4). A longer one is none, and costs nothing."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_PATTERN = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(rb"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]|")


def parse_host(text: str) -> str:
    """A host of a route in its one spelling. Raises ValueError with a sentence that says what to change."""
    name = text.lower().removesuffix(".")
    if ":" in name or "/" in name:
        raise ValueError(f"{text[:70]!r}: a route's host is a name alone, as in shop.example; it stands for any port")
    if not name.isascii():
        raise ValueError(f"{text[:70]!r}: write the name as it is sent, in ASCII (xn--...)")
    if not _PATTERN.fullmatch(name) or len(name) > MAX_HOST:
        raise ValueError(f"{text[:70]!r} is not a host name such as shop.example, or *.example for every name below that one")
    return name


def covers(one: str, other: str) -> bool:
    """Whether every host that `other` names is named by `one`; both as `parse_host` spells them."""
    return one == other or (one.startswith("*.") and other.endswith(one[1:]) and other != one)


class HostIndex:
    """The hosts of a route map's routes, compiled."""

    def __init__(self, hosts: Sequence[tuple[str, ...]]) -> None:
        self._anywhere = 0
        self._exact: dict[bytes, int] = {}
        self._below: dict[bytes, int] = {}
        for at, patterns in enumerate(hosts):
            if not patterns:
                self._anywhere |= 1 << at
            for pattern in patterns:
                index, name = (self._below, pattern[2:]) if pattern.startswith("*.") else (self._exact, pattern)
                index[name.encode()] = index.get(name.encode(), 0) | 1 << at
        self.needed = bool(self._exact or self._below)

    def find(self, host: bytes) -> int | None:
        """The numbers of the routes that this effective host reaches, as bits; None for one that could be read in two ways. Linear."""
        if not self.needed:
            return self._anywhere
        if len(host) > MAX_HOST + len(".:65535"):
            return None
        name = split_port(host.strip(b" \t").lower())[0].removesuffix(b".")
        if not _NAME.fullmatch(name) or len(name) > MAX_HOST:
            return None
        found = self._anywhere | self._exact.get(name, 0)
        if self._below:
            labels = name.split(b".")
            for at in range(1, len(labels)):
                found |= self._below.get(b".".join(labels[at:]), 0)
        return found
