"""Quotas: how much one caller may begin."""

from typing import Protocol

from gateway.core.quota import Exceeded


class OverQuota(Exception):
    """A request that would execute exceeds its caller's quota. Nothing was written for it."""

    def __init__(self, exceeded: Exceeded) -> None:
        super().__init__(exceeded.limit.value)
        self.exceeded = exceeded


class Quotas(Protocol):
    """What callers have taken of their quotas. Stores count it, where a reserve or a claim has a quota in its terms."""

    def leave(self, owner: bytes) -> None:
        """The attempt under this owner token has ended, or there will be none. Idempotent. Never waits and raises nothing."""
        ...
