"""The run of `scripts/failover`, short: the fault in which most of the others are."""

import pytest

from tests.support.client import Answer
from tests.support.upstream import CountingUpstream
from tests.system.failover.run import fail_over, stage
from tests.system.failover.traffic import Traffic, double_runs


@pytest.mark.timeout(240)
async def test_nothing_runs_twice_and_no_answer_is_lost() -> None:
    """The primary is killed, the standby promoted, the former primary started again beside it; a gateway starts that knows neither."""
    async with stage() as staged:
        row = await fail_over(staged, "the former primary is started again", clients=4, before=0.3, after=0.3)
    assert (row.double_runs, row.lost) == ([], [])
    assert set(row.errors) <= {"503 store-unavailable", "409 request-in-progress", "ConnectionRefusedError", "ConnectionResetError"}
    assert row.requests > 20


def test_it_would_tell() -> None:
    """A second run, another answer, and how long there was none."""
    upstream, traffic = CountingUpstream(), Traffic(list)
    upstream.runs[None, b"a"], upstream.runs[None, b"b"] = 2, 1
    assert double_runs(upstream) == ["b'a' ran 2 times"]
    for body in (b"1", b"1", b"2"):
        traffic._heard(b"a", Answer(201, b"", (), body, b""))
    assert traffic.lost == ["b'a': b'1', and later b'2'"]
    traffic.firsts += [1.0, 2.0, 5.0, 5.5]
    assert (traffic.longest_silence(1.5), traffic.longest_silence(6.0)) == (3.0, 0.0)
