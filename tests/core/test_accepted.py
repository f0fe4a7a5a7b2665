"""Accepted work: the next try, what clients prefer, names of operations, and the table of changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.accepted import (
    BACKOFF_LONGEST,
    RETRY_AFTER_LONGEST,
    TRIES,
    Abandon,
    Park,
    Preference,
    after,
    asked_to_wait,
    backoff,
    operation_id,
    parse_operation_id,
    preference_of,
    seconds_left,
    wants_acceptance,
)
from gateway.core.decision import Complete, Doubt, Release
from gateway.core.model import Status
from gateway.core.policy import Execution
from gateway.core.transitions import CAN_EXPIRE, CHANGES

jitters = st.floats(0.0, 1.0)


@given(st.integers(1, 10**6), st.none() | st.floats(0.0, 1e9), jitters)
def test_the_next_try_comes_later_and_later_within_bounds(attempt: int, asked: float | None, jitter: float) -> None:
    """At least half a second, at most a minute, unless the upstream asks for more; what it asks is kept to, up to an hour."""
    pause = backoff(attempt, asked, jitter)
    assert 0.5 <= pause <= max(BACKOFF_LONGEST, RETRY_AFTER_LONGEST)
    assert asked is None or pause >= min(asked, RETRY_AFTER_LONGEST)
    assert asked is not None or pause <= BACKOFF_LONGEST
    assert backoff(attempt + 1, asked, jitter) >= pause


@given(st.sampled_from([Complete(), Doubt("x")]), st.integers(1, 200), st.floats(-10, 1e6), jitters)
def test_only_what_was_not_executed_is_tried_again(known: Complete | Doubt, attempt: int, left: float, jitter: float) -> None:
    assert after(known, attempt, left, None, jitter) is known


@given(st.integers(1, 200), st.floats(-10, 1e6), st.none() | st.floats(0, 1e4), jitters)
def test_it_is_tried_again_while_tries_and_time_last(attempt: int, left: float, asked: float | None, jitter: float) -> None:
    ended = after(Release("connect"), attempt, left, asked, jitter)
    delay = backoff(attempt, asked, jitter)
    assert ended == (Park("connect", delay) if attempt < TRIES and delay < left else Abandon("connect"))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"7", 7.0),
        (b" 7\t", 7.0),
        (b"0", 0.0),
        (None, None),
        (b"", None),
        (b"-1", None),
        (b"1.5", None),
        (b"Sat, 28 Nov 2026 20:00:00 GMT", None),
    ],
)
def test_a_wait_is_a_whole_number(value: bytes | None, seconds: float | None) -> None:
    assert asked_to_wait(value) == seconds


@pytest.mark.parametrize(
    ("lines", "preference"),
    [
        ([], Preference()),
        ([b"respond-async"], Preference(respond_async=True)),
        ([b"Respond-Async, wait=10"], Preference(respond_async=True, wait=10)),
        ([b"respond-async;x=1;y, wait = 5"], Preference(respond_async=True, wait=5)),
        ([b'wait="7"'], Preference(wait=7)),
        ([b"handling=lenient", b"wait=3, respond-async"], Preference(respond_async=True, wait=3)),
        ([b"wait=3", b"wait=9"], Preference(wait=3)),
        ([b'return="a, respond-async"'], Preference()),
        ([b"@, respond-async"], Preference(respond_async=True)),
        ([b"wait=soon"], Preference()),
        ([b"wait=-1"], Preference()),
        ([b"wait"], Preference()),
        ([b'"respond-async"'], Preference()),
        ([b",,respond-async,"], Preference(respond_async=True)),
        ([b'a;x="y, wait=3"; z', b"wait=4"], Preference(wait=4)),
        ([b'a="\\", wait=3", wait=4'], Preference(wait=4)),
        ([b'wait=3, a="b', b"respond-async"], Preference(wait=3)),
    ],
)
def test_preferences(lines: list[bytes], preference: Preference) -> None:
    """RFC 7240 section 2: the first of a name counts, letter case does not, parameters and what cannot be read are left out."""
    assert preference_of(lines) == preference


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_any_bytes_are_some_preference(lines: list[bytes]) -> None:
    """A server may ignore any preference, and never fails over one."""
    wait = preference_of(lines).wait
    assert wait is None or wait >= 0


def test_who_is_answered_before() -> None:
    asked, not_asked = Preference(respond_async=True), Preference(wait=3)
    assert [wants_acceptance(execution, asked) for execution in Execution] == [False, True, True]
    assert [wants_acceptance(execution, not_asked) for execution in Execution] == [False, True, False]


scopes = st.text(st.characters(codec="ascii", categories=("Ll", "Nd")), min_size=1, max_size=64)
keys = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255)


@given(scopes, keys)
def test_a_name_names_one_operation(scope: str, key: str) -> None:
    assert parse_operation_id(operation_id(scope, key)) == (scope, key)


@pytest.mark.parametrize("key", ["\0", "a\0b", "\n", "\x7f", "\x80", "é", "\ud7ff", "\U0001f600"])
def test_what_is_no_key_names_no_operation(key: str) -> None:
    """Postgres refuses a NUL in a text: a stranger's name for an operation would count as an error of the store."""
    assert parse_operation_id(operation_id("pay", key)) is None


@given(st.text(max_size=40))
def test_nothing_else_is_a_name(text: str) -> None:
    """Each operation has one spelling."""
    named = parse_operation_id(text)
    assert named is None or operation_id(*named) == text


@pytest.mark.parametrize(("left", "seconds"), [(None, 1), (0.0, 1), (0.2, 1), (1.2, 2), (59.5, 60), (1e9, 60)])
def test_clients_are_told_from_1_to_60(left: float | None, seconds: int) -> None:
    assert seconds_left(left) == seconds


def test_the_changes_are_those_of_the_states() -> None:
    """Every state is reached and left; what ends by itself is what was executed or surely was not."""
    assert {change.target for change in CHANGES} == {change.source for change in CHANGES} == {None, *Status}
    assert {Status.COMPLETED, Status.FAILED_RETRYABLE} == CAN_EXPIRE
    assert {change.source for change in CHANGES if change.target is Status.PENDING} == {Status.IN_PROGRESS, Status.UNKNOWN}
    assert all(change.accepted for change in CHANGES if Status.PENDING in {change.source, change.target})
