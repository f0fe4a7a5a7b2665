"""Backoff, and the merging of what dead workers counted."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe import MetricsObserver
from gateway.run.supervisor import Backoff
from gateway.run.supervisor.merged import MergedMetrics
from tests.observe.support import parse, value


def as_of(observer: MetricsObserver, pid: int) -> bytes:
    """What a process with this id would tell."""
    document = orjson.loads(observer.snapshot())
    return orjson.dumps({**document, "pid": pid})


def worker(pid: int, amount: int) -> bytes:
    """What a worker tells that has reaped and holds this much."""
    observer = MetricsObserver([], access_log_fd=None)
    observer.reaped(amount)
    observer.memory_held(amount)
    return as_of(observer, pid)


def reaped(metrics: MergedMetrics) -> float:
    return value(parse(metrics.exposition()[0]), "reaped_total")


def held(metrics: MergedMetrics) -> float:
    return value(parse(metrics.exposition()[0]), "memory_held_bytes")


def test_pauses_double_up_to_the_longest() -> None:
    """100 ms, 200 ms, … and never more than 10 s."""
    backoff = Backoff()
    assert [backoff.pause(failures) for failures in range(5)] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert backoff.pause(7) == 10.0


@given(failures=st.integers(0, 10**6), first=st.floats(0.001, 10), longest=st.floats(0.001, 100))
def test_pauses_stay_in_bounds_and_never_shrink(failures: int, first: float, longest: float) -> None:
    """However often a worker fails, the pause neither overflows nor exceeds its bound nor gets shorter."""
    backoff = Backoff(first, longest)
    assert 0 < backoff.pause(failures) <= longest
    assert backoff.pause(failures) <= backoff.pause(failures + 1)


def test_burying_keeps_the_sum() -> None:
    """Each buried worker's counts stay in the sum, beside those of the living; its gauges do not."""
    metrics = MergedMetrics()
    for pid in range(1, 6):
        metrics.welcome(pid)
        metrics.told(worker(pid, pid))
    assert (reaped(metrics), held(metrics)) == (15, 15)
    for pid in range(1, 5):
        metrics.bury(pid)
        assert (reaped(metrics), held(metrics)) == (15, sum(range(pid + 1, 6)))


def test_what_a_worker_tells_takes_the_place_of_what_it_told() -> None:
    """It is all of its figures, not what came on top; and of one that is buried it comes too late."""
    metrics = MergedMetrics()
    metrics.welcome(1)
    metrics.told(worker(1, 3))
    metrics.told(worker(1, 5))
    assert reaped(metrics) == 5
    metrics.bury(1)
    metrics.told(worker(1, 7))
    assert reaped(metrics) == 5
    metrics.bury(2)
    assert reaped(metrics) == 5


def test_each_gauge_merges_in_its_way() -> None:
    """Sums, the highest and the lowest of those that live; histograms add up bucket by bucket."""
    metrics = MergedMetrics()
    for pid, (held_bytes, open_breaker, successful) in enumerate([(1, False, True), (2, True, False)], start=1):
        observer = MetricsObserver([], access_log_fd=None)
        observer.memory_held(held_bytes)
        observer.redis_breaker(is_open=open_breaker)
        observer.reloaded(successful=successful)
        observer.store_operation("postgres", "reserve", 0.002)
        metrics.welcome(pid)
        metrics.told(as_of(observer, pid))
    series = parse(metrics.exposition()[0])
    assert value(series, "memory_held_bytes") == 3
    assert value(series, "redis_breaker_open") == 1
    assert value(series, "config_last_reload_successful") == 0
    assert value(series, "store_duration_seconds_bucket", store="postgres", operation="reserve", le="0.0025") == 2
    assert value(series, "store_duration_seconds_bucket", store="postgres", operation="reserve", le="0.001") == 0
    metrics.bury(2)
    series = parse(metrics.exposition()[0])
    assert value(series, "config_last_reload_successful") == 1
    assert value(series, "store_duration_seconds_count", store="postgres", operation="reserve") == 2
