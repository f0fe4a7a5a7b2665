"""The metrics of all workers, dead ones included, as one exposition."""

import logging
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

_DEAD = "dead"
_TRIES = 3

_log = logging.getLogger(__name__)


class MergedMetrics(Collector):
    """Reads what workers write into `directory`. `bury` and `exposition` may be called from different threads.

    `running` and `restarts` are the supervisor's own figures.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self.running = 0
        self.restarts = 0

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("idempotency_workers", "Worker processes that run.", value=self.running)
        yield CounterMetricFamily("idempotency_worker_restarts", "Workers that ended and were started again.", value=self.restarts)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type of `/metrics`, in the format that `accept` asks for. Takes milliseconds per thousand series and worker."""
        with self._lock:
            for left in reversed(range(_TRIES)):
                try:
                    return self._exposition(accept)
                except (struct.error, RuntimeError):
                    # A worker is just making its files.
                    if left == 0:
                        raise
                    time.sleep(0.02)
        raise AssertionError("unreachable")

    def bury(self, pid: int) -> None:
        """Take in what a dead worker counted, so that counters never go down, and forget its gauges.

        Its files become part of one file, so that restarts do not pile files up.
        """
        with self._lock:
            mark_process_dead(pid, str(self._directory))  # type: ignore[no-untyped-call]  # the library leaves it untyped
            for kind in ("counter", "histogram"):
                dead = self._directory / f"{kind}_{pid}.db"
                if dead.exists():
                    self._absorb(dead, self._directory / f"{kind}_{_DEAD}.db")

    def _exposition(self, accept: str) -> tuple[bytes, str]:
        registry = CollectorRegistry()
        registry.register(self)
        MultiProcessCollector(registry, str(self._directory))  # type: ignore[no-untyped-call]  # as above
        write, content_type = choose_encoder(accept)
        return write(registry), content_type

    def _absorb(self, dead: Path, archive: Path) -> None:
        try:
            totals = _read(dead)
        except (struct.error, RuntimeError, UnicodeDecodeError):
            _log.exception("The metrics of a dead worker cannot be read and are left out")
        else:
            if archive.exists():
                for key, value in _read(archive).items():
                    totals[key] = totals.get(key, 0.0) + value
            _write(archive, totals)
        dead.unlink()


def _read(path: Path) -> dict[str, float]:
    values = MmapedDict.read_all_values_from_file(str(path))  # type: ignore[no-untyped-call]  # as above
    return {key: value for key, value, _, _ in values}


def _write(archive: Path, totals: dict[str, float]) -> None:
    """Replaces the file as a whole, so that a reader finds the old one or the new one."""
    fresh = archive.with_suffix(".tmp")
    fresh.unlink(missing_ok=True)
    file = MmapedDict(str(fresh))  # type: ignore[no-untyped-call]  # as above
    for key, value in totals.items():
        file.write_value(key, value, 0.0)  # type: ignore[no-untyped-call]  # as above
    file.close()  # type: ignore[no-untyped-call]  # as above
    fresh.replace(archive)
