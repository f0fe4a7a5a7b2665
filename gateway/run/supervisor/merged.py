"""The metrics of all workers, dead ones included, as one exposition."""

import threading
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.observe.snapshot import Family, merge, metrics_of, read


class MergedMetrics(Collector):
    """What workers told when they were last asked. All methods may be called from different threads.

    `running` and `restarts` are the supervisor's own figures.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: dict[int, dict[str, Family]] = {}
        self._dead: dict[str, Family] = {}
        self.running = 0
        self.restarts = 0

    def welcome(self, pid: int) -> None:
        """A worker has begun: what it tells counts until it is buried."""
        with self._lock:
            self._alive.setdefault(pid, {})

    def told(self, packed: bytes) -> None:
        """A worker's figures of now, which take the place of those before. Of one that is buried they come too late."""
        pid, families = read(packed)
        with self._lock:
            if pid in self._alive:
                self._alive[pid] = families

    def bury(self, pid: int) -> None:
        """Keep a dead worker's last sums, which never go down, and forget its gauges."""
        with self._lock:
            merge(self._dead, self._alive.pop(pid, {}), lasting=True)

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("idempotency_workers", "Worker processes that run.", value=self.running)
        yield CounterMetricFamily("idempotency_worker_restarts", "Workers that ended and were started again.", value=self.restarts)
        merged: dict[str, Family] = {}
        with self._lock:
            for families in (self._dead, *self._alive.values()):
                merge(merged, families)
        yield from metrics_of(merged)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type of `/metrics`, in the format that `accept` asks for. Takes milliseconds per thousand series and worker."""
        registry = CollectorRegistry()
        registry.register(self)
        write, content_type = choose_encoder(accept)
        return write(registry), content_type
