"""Quotas: how much one caller may begin."""

from typing import Protocol

from gateway.core.model import Intent
from gateway.core.quota import Exceeded


class OverQuota(Exception):
    """A request that would execute exceeds its caller's quota. Nothing was written for it."""

    def __init__(self, exceeded: Exceeded) -> None:
        super().__init__(exceeded.limit.value)
        self.exceeded = exceeded


class Quotas(Protocol):
    """What callers have taken of their quotas. Stores count it, where a reserve or a claim has a quota in its terms."""

    def regain(self, intent: Intent) -> None:
        """An attempt of this intent runs although its reserve or claim failed, and its share was given back: its reply was lost, and a
        later write has confirmed it. It holds a place again, also where callers who came meanwhile have taken the last; its new key stays
        uncounted. Without a limit of places, nothing. Never waits and raises nothing.
        """
        ...

    def give_back(self, owner: bytes) -> None:
        """What was to be accepted under this owner token was refused all the same: it has taken neither a place nor a new key. Never waits
        and raises nothing.
        """
        ...

    def leave(self, owner: bytes) -> None:
        """The attempt under this owner token has ended, or there will be none. Idempotent. Never waits and raises nothing."""
        ...
