"""How much one caller may begin: no more than the rate and one burst in any span of time, and no less."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.kinds import RateWord
from gateway.core.quota import Exceeded, Limit, NewKeys, Quota, give_back, rate_limit_fields, take
from gateway.core.units import Rate, format_rate, parse_rate

NOW = 1_790_000_000_000_000.0
RATES = st.builds(NewKeys, st.builds(Rate, st.integers(1, 5000), st.sampled_from([1, 60, 3600, 86_400])), st.integers(1, 300))
PAUSES = st.lists(st.one_of(st.just(0), st.integers(0, 2_000_000), st.integers(0, 10**11)), min_size=1, max_size=120)


def admitted(keys: NewKeys, pauses: list[int]) -> list[float]:
    """The instants at which a caller was let in who asked after each of these pauses."""
    tat, now, let_in = 0.0, NOW, []
    for pause in pauses:
        now += pause
        tat, wait = take(tat, now, keys.interval, keys.at_once)
        if not wait:
            let_in.append(now)
    return let_in


@given(RATES, PAUSES)
def test_no_span_of_time_lets_in_more_than_one_burst_and_what_is_earned(keys: NewKeys, pauses: list[int]) -> None:
    """Wherever the span begins: there is no window, hence no edge of one."""
    let_in, interval = admitted(keys, pauses), Fraction(keys.interval)
    for first, begun in enumerate(let_in):
        for number, instant in enumerate(let_in[first:], 1):
            assert number <= keys.at_once + (Fraction(instant) - Fraction(begun)) / interval


@given(RATES, st.integers(1, 60))
def test_who_asks_all_the_time_gets_one_burst_and_all_that_is_earned(keys: NewKeys, more: int) -> None:
    """Waiting as told is enough, each time, and a moment less is not."""
    tat, now = 0.0, NOW
    for _ in range(keys.at_once):
        tat, wait = take(tat, now, keys.interval, keys.at_once)
        assert not wait
    begun = now
    for number in range(1, more + 1):
        same, wait = take(tat, now, keys.interval, keys.at_once)
        assert (same, wait > 0) == (tat, True)
        assert take(tat, now + wait - 1, keys.interval, keys.at_once)[1] > 0
        now += wait
        tat, wait = take(tat, now, keys.interval, keys.at_once)
        assert not wait
        assert number * keys.interval <= now - begun <= number * (keys.interval + 1)


@given(RATES, PAUSES)
def test_what_is_given_back_was_not_taken(keys: NewKeys, pauses: list[int]) -> None:
    """Whatever was taken before, as much is left as without it."""
    tat, now = 0.0, NOW
    for pause in pauses:
        now += pause
        tat = take(tat, now, keys.interval, keys.at_once)[0]
    after, wait = take(tat, now, keys.interval, keys.at_once)
    if not wait:
        assert give_back(after, now, keys.interval) == max(tat, now)


@given(RATES, st.integers(1, 10**13))
def test_a_clock_that_is_turned_back_costs_no_more_than_one_burst(keys: NewKeys, back: int) -> None:
    """Nobody waits until the clock has come as far again."""
    tat = take(NOW, NOW, keys.interval, keys.at_once)[0]
    _, wait = take(tat, NOW - back, keys.interval, keys.at_once)
    assert wait <= keys.interval + 1


@given(st.integers(1, 10_000), st.sampled_from([1, 60, 3600, 86_400]))
def test_what_is_earned_is_what_the_rate_says(count: int, seconds: int) -> None:
    """Within a quarter of a percent at the fastest rate there is, and much nearer below."""
    earned = NewKeys(Rate(count, seconds)).interval * count / (seconds * 1e6)
    assert abs(earned - 1) <= 0.25 * count / (seconds * 1e6) <= 0.0025


@given(st.builds(Rate, st.integers(1, 10**9 - 1), st.sampled_from([1, 60, 3600, 86_400])))
def test_rates_are_read_as_they_are_written(rate: Rate) -> None:
    assert parse_rate(format_rate(rate)) == rate


@pytest.mark.parametrize("text", ["50", "50/m", "0/s", "1.5/s", "50 / s", "-1/s", "/s", "50/sec", "5000000000/s"])
def test_what_is_no_rate_is_told_with_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 50/s"):
        parse_rate(text)


def test_a_rate_has_its_bounds_in_any_unit() -> None:
    kind = RateWord("10000/s")
    assert kind.parse("600000/min") == Rate(600_000, 60)
    with pytest.raises(ValueError, match="at most 10000/s, found 600001/min"):
        kind.parse("600001/min")


def test_a_refused_client_is_told_of_its_quotas() -> None:
    """In the form of draft-ietf-httpapi-ratelimit-headers-10; never to come again before it is worth it, and within a minute."""
    quota = Quota(100, NewKeys(Rate(50, 1), 200))
    assert rate_limit_fields(quota, Exceeded(Limit.NEW_KEYS, 19_000)) == (
        (b"RateLimit-Policy", b'"new-keys";q=200;w=4, "in-flight";q=100;qu="concurrent-requests"'),
        (b"RateLimit", b'"new-keys";r=0;t=1'),
    )
    assert rate_limit_fields(Quota(new_keys=NewKeys(Rate(2, 86_400))), Exceeded(Limit.NEW_KEYS, 43_200_000_000)) == (
        (b"RateLimit-Policy", b'"new-keys";q=2;w=86400'),
        (b"RateLimit", b'"new-keys";r=0;t=60'),
    )
    assert Exceeded(Limit.NEW_KEYS, 1_000_001).retry_after == 2
