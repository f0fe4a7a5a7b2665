"""An upstream's own word on its execution, and on how long its answer is kept."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.hints import LONGEST_READ, Hint, HintedOutcome, reads_body, removed, retention_of, signal_of
from gateway.core.model import Headers
from gateway.core.reconcile.policy import Condition
from gateway.core.reconcile.policy import Test as By
from gateway.core.retention import MAX_RETENTION

DONE, NOT, UNKNOWN = HintedOutcome.COMPLETED, HintedOutcome.NOT_EXECUTED, HintedOutcome.UNKNOWN
SHOULD_RETRY = Hint("Stripe-Should-Retry", "true", outcome=NOT)
SHOULD_NOT = Hint("Stripe-Should-Retry", "false", outcome=DONE)
BUSY = Hint("Retry-After", statuses=frozenset({503}), outcome=NOT)
TRANSIENT = Hint("Transient-Error", "true", outcome=NOT)
OWN = Hint("Idempotency-Outcome", remove=True)
HINTS = (SHOULD_RETRY, SHOULD_NOT, BUSY, TRANSIENT, OWN)


def hinted(status: int, headers: Headers, hints: Sequence[Hint], body: bytes | None = None) -> HintedOutcome | None:
    signal = signal_of(status, headers, hints, body)
    return None if signal is None else signal.outcome


THROTTLED = Hint(None, outcome=NOT, statuses=frozenset({200}), when=(Condition("/errors/0/extensions/code", values=("THROTTLED",)),))
BOTH = Hint("X-Outcome", outcome=DONE, when=(Condition("/done", values=(True,)),))


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome"),
    [
        (200, (), b'{"errors":[{"extensions":{"code":"THROTTLED"}}]}', NOT),
        (503, (), b'{"errors":[{"extensions":{"code":"THROTTLED"}}]}', None),
        (200, (), b'{"data":{},"errors":[{"extensions":{"code":"OTHER"}}]}', None),
        (200, (), b'{"data":{}}', None),
        (200, (), b'{"errors":[{"extensions":{"code":"THROTTLED"}}]', None),
        (200, (), b'{"errors":[],"errors":[{"extensions":{"code":"THROTTLED"}}]}', None),
        (200, (), b"", None),
        (200, (), None, None),
        (200, ((b"X-Outcome", b"1"),), b'{"done":true}', DONE),
        (200, (), b'{"done":true}', None),
        (200, ((b"X-Outcome", b"1"),), b'{"done":1}', None),
        (200, ((b"X-Outcome", b"1"),), None, None),
    ],
)
def test_hints_of_the_body(status: int, headers: Headers, body: bytes | None, outcome: HintedOutcome | None) -> None:
    """An error inside a 200: all conditions must be met, by strict JSON; a body that nobody can read says nothing."""
    assert hinted(status, headers, (THROTTLED, BOTH), body) == outcome


def test_no_error_frees_no_key() -> None:
    """`"errors": null` beside the data of an operation that ran is no error."""
    failed = Hint(None, outcome=NOT, statuses=frozenset({200}), when=(Condition("/errors", By.EXISTS),))
    assert hinted(200, (), (failed,), b'{"data":{"pay":1},"errors":null}') is None
    assert hinted(200, (), (failed,), b'{"data":null,"errors":[{"message":"throttled"}]}') is NOT


def test_a_body_is_only_read_where_a_hint_asks() -> None:
    """By status; on other routes it costs nothing."""
    assert reads_body(200, (THROTTLED,))
    assert not reads_body(201, (THROTTLED,))
    assert not reads_body(200, HINTS)
    assert LONGEST_READ == 2**20


@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        (500, (), None),
        (500, ((b"Other", b"true"),), None),
        (500, ((b"Stripe-Should-Retry", b"true"),), NOT),
        (500, ((b"STRIPE-should-retry", b" TRUE\t"),), NOT),
        (500, ((b"Stripe-Should-Retry", b"false"),), DONE),
        (500, ((b"Stripe-Should-Retry", b"maybe"),), None),
        (500, ((b"Stripe-Should-Retry", b""),), None),
        (503, ((b"Retry-After", b"3"),), NOT),
        (503, ((b"Retry-After", b"3"), (b"Retry-After", b"4")), NOT),
        (429, ((b"Retry-After", b"3"),), None),
        (422, ((b"transient-error", b"true"),), NOT),
        (200, ((b"Idempotency-Outcome", b"completed"),), DONE),
        (502, ((b"Idempotency-Outcome", b"Not-Executed"),), NOT),
        (200, ((b"Idempotency-Outcome", b"unknown"),), UNKNOWN),
        # what is said, but not clearly, is a doubt
        (429, ((b"Idempotency-Outcome", b"complete"),), UNKNOWN),
        (429, ((b"Idempotency-Outcome", b""),), UNKNOWN),
        (429, ((b"Idempotency-Outcome", b"not-executed, not-executed"),), UNKNOWN),
        (429, ((b"Idempotency-Outcome", b"not-executed"), (b"Idempotency-Outcome", b"completed")), UNKNOWN),
        (429, ((b"Idempotency-Outcome", b"not-executed"), (b"Idempotency-Outcome", b"NOT-executed ")), NOT),
        (500, ((b"Stripe-Should-Retry", b"true"), (b"Stripe-Should-Retry", b"false")), UNKNOWN),
        # the order is that of the hints, not of the fields
        (503, ((b"Idempotency-Outcome", b"completed"), (b"Retry-After", b"1")), NOT),
        (503, ((b"Retry-After", b"1"), (b"Stripe-Should-Retry", b"false")), DONE),
    ],
)
def test_hinted(status: int, headers: Headers, outcome: HintedOutcome | None) -> None:
    """The first hint whose field, value and status are there decides; unclear signals are doubts, absent ones decide nothing."""
    assert hinted(status, headers, HINTS) == outcome


def test_removed_fields() -> None:
    """A field that a hint removes goes whether the hint applies or not; without hints nothing goes."""
    hints = (Hint("A", "x", frozenset({500}), DONE, remove=True), Hint("B", outcome=NOT), Hint("C-d", outcome=UNKNOWN, remove=True))
    assert removed(hints) == {b"a", b"c-d"}
    assert removed(()) == frozenset()
    assert hinted(500, ((b"Idempotency-Outcome", b"completed"),), ()) is None


def test_an_unread_field_does_not_stop_a_later_hint() -> None:
    """A hint that does not apply leaves the word to the next one."""
    hints = (Hint("A", "yes", outcome=DONE), Hint("A", outcome=NOT))
    assert hinted(200, ((b"A", b"no"),), hints) is NOT
    assert hinted(200, ((b"A", b"yes"),), hints) is DONE


names = st.sampled_from(["Stripe-Should-Retry", "Idempotency-Outcome", "Retry-After", "X"])
said = st.sampled_from(["true", "false", "completed", "not-executed", "unknown", "1", ""])


@given(
    status=st.sampled_from([200, 429, 500, 503]),
    headers=st.lists(st.tuples(names.map(str.encode), said.map(str.encode)), max_size=4).map(tuple),
    hints=st.lists(
        st.builds(
            Hint,
            names,
            st.none() | said,
            st.frozensets(st.sampled_from([200, 500, 503]), max_size=2),
            st.none() | st.sampled_from(HintedOutcome),
        ),
        max_size=4,
    ),
)
def test_no_release_without_its_signal(status: int, headers: Headers, hints: list[Hint]) -> None:
    """ "Not executed" is only ever read off a hint that applies to the status, from a field that nothing in the response contradicts."""
    if hinted(status, headers, hints) is not NOT:
        return
    lines = [(name.decode(), value.decode()) for name, value in headers]
    assert any(
        (not hint.statuses or status in hint.statuses)
        and hint.outcome in {NOT, None}
        and (values := {value for name, value in lines if name == hint.header})
        and (
            (hint.value is None and (hint.outcome is NOT or values == {"not-executed"}))
            or (values == {hint.value} and (hint.outcome is NOT or hint.value == "not-executed"))
        )
        for hint in hints
    )


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        ([], 60.0),
        ([b"3600"], 3600.0),
        ([b" 3600\t"], 3600.0),
        ([b"1"], 1.0),
        ([b"0"], None),
        ([b"000"], None),
        ([b"no-store"], None),
        ([b"No-Store"], None),
        ([b"3600", b"7200"], 3600.0),
        ([b"3600", b"no-store"], None),
        ([b"99999999999999999999999999"], MAX_RETENTION),
        ([b"315360001"], MAX_RETENTION),
        ([b""], 60.0),
        ([b"-1"], 60.0),
        ([b"+5"], 60.0),
        ([b"1.5"], 60.0),
        ([b"1h"], 60.0),
        ([b"forever"], 60.0),
        ([b"3600, 7200"], 60.0),
        ([b"\xd9\xa1"], 60.0),
        ([b"3600", b"never"], 60.0),
    ],
)
def test_retention(lines: list[bytes], want: float | None) -> None:
    """Whole seconds count, up to the limit; `no-store` and 0 keep no answer; what cannot be read changes nothing."""
    headers = ((b"Content-Type", b"text/plain"), *[(b"Idempotency-Retention", value) for value in lines])
    assert retention_of(headers, 60.0) == want


@given(st.lists(st.binary(max_size=30), max_size=3))
def test_any_retention(lines: list[bytes]) -> None:
    """Whatever an upstream sends, the result is None or a time that a store can keep."""
    found = retention_of(tuple([(b"idempotency-RETENTION", value) for value in lines]), 60.0)
    assert found is None or 0 < found <= MAX_RETENTION
