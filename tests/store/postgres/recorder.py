"""An observer that keeps what a store tells."""

from dataclasses import dataclass, field

from gateway.store.null_observer import NullObserver


@dataclass
class Recorder(NullObserver):
    """Batches as (operation, size), errors as (operation, reason), stale writes and operations by name."""

    batches: list[tuple[str, int]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)

    def store_operation(self, store: str, operation: str, seconds: float) -> None:
        assert store == "postgres"
        assert seconds >= 0
        self.operations.append(operation)

    def store_error(self, store: str, operation: str, reason: str) -> None:
        assert store == "postgres"
        self.errors.append((operation, reason))

    def store_batch(self, operation: str, size: int) -> None:
        self.batches.append((operation, size))

    def stale_write(self, operation: str) -> None:
        self.stale.append(operation)

    def sizes(self, operation: str) -> list[int]:
        return [size for name, size in self.batches if name == operation]
