"""Backoff, and the merging of what dead workers counted."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from gateway.supervisor import Backoff
from gateway.supervisor.merged import MergedMetrics
from tests.observe.support import parse, value


def count(folder: Path, pid: int, amount: float) -> None:
    """What a worker with this pid leaves after counting `amount`."""
    file = MmapedDict(str(folder / f"counter_{pid}.db"))  # type: ignore[no-untyped-call]  # the library leaves it untyped
    key = mmap_key("idempotency_reaped", "idempotency_reaped_total", [], [], "Expired records deleted.")
    file.write_value(key, amount, 0.0)  # type: ignore[no-untyped-call]  # as above
    file.close()  # type: ignore[no-untyped-call]  # as above


def reaped(metrics: MergedMetrics) -> float:
    return value(parse(metrics.exposition()[0]), "reaped_total")


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


def test_burying_keeps_the_sum_and_one_file(tmp_path: Path) -> None:
    """Each buried worker's counts stay in the sum, beside those of the living, in a single file."""
    metrics = MergedMetrics(tmp_path)
    for pid in range(1, 6):
        count(tmp_path, pid, pid)
    assert reaped(metrics) == 15
    for pid in range(1, 5):
        metrics.bury(pid)
        assert reaped(metrics) == 15
    assert {path.name for path in tmp_path.iterdir()} == {"counter_dead.db", "counter_5.db"}


def test_a_damaged_file_costs_only_its_own_counts(tmp_path: Path) -> None:
    """A file that a dying worker left unreadable is left out, and what others counted stays."""
    metrics = MergedMetrics(tmp_path)
    count(tmp_path, 1, 7)
    metrics.bury(1)
    (tmp_path / "counter_2.db").write_bytes(b"\xff\xff\x00\x00" * 8)
    metrics.bury(2)
    assert reaped(metrics) == 7


def test_the_first_dead_workers_file_may_be_damaged_too(tmp_path: Path) -> None:
    """An unreadable file never becomes the place where later counts are kept."""
    metrics = MergedMetrics(tmp_path)
    (tmp_path / "counter_1.db").write_bytes(b"")
    metrics.bury(1)
    count(tmp_path, 2, 7)
    metrics.bury(2)
    assert reaped(metrics) == 7


def test_burying_a_worker_that_left_nothing_does_nothing(tmp_path: Path) -> None:
    """A worker that died before it counted leaves no trace."""
    metrics = MergedMetrics(tmp_path)
    metrics.bury(1)
    assert list(tmp_path.iterdir()) == []
