"""An observer without effect, for stores of commands."""

from collections.abc import Mapping


class NullObserver:
    """`gateway.ports.StoreObserver` without effect."""

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        pass

    def store_error(self, store: str, operation: str, reason: str) -> None:
        pass

    def store_batch(self, operation: str, size: int) -> None:
        pass

    def stale_write(self, operation: str) -> None:
        pass

    def redis_breaker(self, *, is_open: bool) -> None:
        pass

    def clock_stepped(self, seconds: float) -> None:
        pass

    def clock_disagrees(self, seconds: float) -> None:
        pass

    def clock_suspended(self, judgements: Mapping[str, bool]) -> None:
        pass
