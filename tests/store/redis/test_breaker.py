"""When Redis counts as away."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.store.redis.breaker import Breaker


def test_the_pause_doubles_up_to_its_limit() -> None:
    """The pauses between probes grow from 250 ms to 5 s."""
    breaker = Breaker(lambda: 0.5)
    assert [breaker.trip() for _ in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_it_starts_open_and_closes_after_a_probe() -> None:
    """Nothing is asked before a probe has been answered, nor after a failure."""
    breaker = Breaker(lambda: 0.5)
    assert breaker.open
    breaker.close()
    assert not breaker.open
    breaker.trip()
    assert breaker.open


def test_only_served_commands_reset_the_schedule() -> None:
    """A server that answers probes but no commands is probed ever more rarely; one that serves is forgiven."""
    breaker = Breaker(lambda: 0.5)
    breaker.trip()
    breaker.close()
    assert breaker.trip() == 0.5
    breaker.close()
    breaker.served()
    assert breaker.trip() == 0.25


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_jitter_stays_within_a_quarter(jitters: list[float]) -> None:
    """Whatever the jitter, each pause is within a quarter of the schedule."""
    remaining = iter(jitters)
    breaker = Breaker(lambda: next(remaining))
    for number in range(len(jitters)):
        nominal = min(5.0, 0.25 * 2**number)
        assert 0.75 * nominal <= breaker.trip() <= 1.25 * nominal
