"""Clients that defeat their keys: one caller's equal requests under different keys, close together. Noticed, never
deduplicated.

A library that makes a fresh key for every attempt gets no protection from any gateway. But a client may well mean two
equal requests. So this module only counts what one process has seen lately. With several processes the counts are lower
bounds.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

CAPACITY = 4096
"""How many different requests are remembered for a route: less than 2 MiB."""

_PURGED = 2
"""How many outdated entries each look-up may drop. More than one, so that they go faster than new ones come."""


@dataclass(slots=True)
class _Seen:
    """The last two different keys of one request, the newer one first: the latest key that is not a given one is always
    among them.
    """

    key: bytes
    at: float
    other: bytes | None = None
    other_at: float = 0.0

    def note(self, key: bytes, now: float) -> None:
        if key != self.key:
            self.other, self.other_at = self.key, self.at
        self.key, self.at = key, now


class Duplicates:
    """A sliding window over one route's requests, for one event loop. Time comes as an argument, in seconds of any
    clock that never goes back. Beyond `capacity` what was seen longest ago is forgotten first.
    """

    def __init__(self, window: float, capacity: int = CAPACITY) -> None:
        if window <= 0 or capacity < 1:
            raise ValueError("a window has a length, and room for one request at least")
        self.window = window
        self._capacity = capacity
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()

    def __len__(self) -> int:
        """How many different requests are remembered: at most `capacity`."""
        return len(self._seen)

    def seen(self, principal_scope: str, fingerprint: bytes, key_digest: bytes, now: float) -> bool:
        """Take note of a request. True when the same caller's equal request was seen under another key within the
        window.

        `principal_scope` is the scope id, which holds the principal. To count an operation once, ask only when a
        request is to execute.
        """
        self._purge(now)
        request = _digest(principal_scope, fingerprint)
        found = self._seen.get(request)
        if found is None:
            self._seen[request] = _Seen(key_digest, now)
            if len(self._seen) > self._capacity:
                self._seen.popitem(last=False)
            return False
        found.note(key_digest, now)
        self._seen.move_to_end(request)
        return found.other is not None and now - found.other_at <= self.window

    def _purge(self, now: float) -> None:
        for _ in range(_PURGED):
            oldest = next(iter(self._seen.values()), None)
            if oldest is None or now - oldest.at <= self.window:
                return
            self._seen.popitem(last=False)


def _digest(principal_scope: str, fingerprint: bytes) -> bytes:
    """A name of fixed length: long scopes must not use up the memory. Injective before it is hashed, since the scope is
    length-prefixed.
    """
    scope = principal_scope.encode()
    return hashlib.blake2b(b"%d:%b" % (len(scope), scope) + fingerprint, digest_size=16).digest()
