"""When a verdict needs a second person."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.reconcile.capture import capture
from gateway.core.second_approval import Above, SecondApproval, amount_of, needs_second

RULE = SecondApproval(above=Above(capture="amount", value=10_000), not_executed_within_max_execution=True)


@given(st.integers(-(10**30), 10**30))
def test_a_large_amount_needs_one(amount: int) -> None:
    """More than the limit, and no less; a record without the value is another kind of operation."""
    assert needs_second(RULE, {"amount": str(amount)}, too_early=False) is (amount > 10_000)
    assert not needs_second(RULE, {"order": str(amount)}, too_early=False)


@given(st.text(min_size=1))
def test_what_is_no_number_counts_as_large(text: str) -> None:
    """Nobody spells an amount so that it passes for a small one. What Python reads as a number is one."""
    amount = amount_of(text)
    assert needs_second(RULE, {"amount": text}, too_early=False) is (amount is None or amount > 10_000)
    assert amount is None or amount.is_finite()


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "sNaN", "", "1,000", "0x10", "ten"])
def test_these_are_no_numbers(text: str) -> None:
    """Infinity is no amount either."""
    assert amount_of(text) is None


def test_these_are_numbers() -> None:
    """As JSON texts and whole numbers are captured."""
    assert [amount_of(text) for text in ("10000", "1e4", "10000.01")] == [Decimal(10000), Decimal(10000), Decimal("10000.01")]


def test_sealed_values_that_nothing_opens_count_as_large() -> None:
    """A lost key makes no verdict easier."""
    assert needs_second(RULE, {"": "sealed"}, too_early=False)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"amount": 1000000.50}', b"application/json"),
        (b'{"amount": 1e6}', b"application/json"),
        (b'{"amount": 100000000000000000000}', b"application/json"),
        (b'{"amount": "1000000.' + b"0" * 255 + b'"}', b"application/json"),
        (b'{"amount": "1000000\\u0000"}', b"application/json"),
        (b'{"amount": [1000000]}', b"application/json"),
        (b'{"amount": 1000000, "amount": 1000000}', b"application/json"),
        (b'\xef\xbb\xbf{"amount": 1000000}', b"application/json"),
        (b'{"Amount": 1000000}', b"application/json"),
        (b'{"amount": 5, "AMOUNT": 1000000}', b"application/json"),
        (b'{"amount": 1000000}', b"text/plain"),
        (b'{"amount": 1000000}', None),
        (b"amount=1000000", b"application/x-www-form-urlencoded"),
        (None, b"application/json"),
    ],
)
def test_an_amount_that_cannot_be_captured_counts_as_large(body: bytes | None, content_type: bytes | None) -> None:
    """A client does not choose by a spelling, nor by a body that is too large to look into, that one person is enough."""
    assert needs_second(RULE, capture(body, content_type, [("amount", "/amount")]), too_early=False)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"amount": null}', b'{"amount": ""}', b'{"other": 1.5}'])
def test_a_request_without_an_amount_needs_none(body: bytes) -> None:
    """It is another kind of operation; what else it has does not matter."""
    assert not needs_second(RULE, capture(body, b"application/json", [("amount", "/amount"), ("other", "/other")]), too_early=False)


def test_each_half_of_the_rule_may_be_missing() -> None:
    """And then asks for nothing."""
    early = SecondApproval(not_executed_within_max_execution=True)
    assert needs_second(early, {}, too_early=True)
    assert not needs_second(early, {"amount": "10001"}, too_early=False)
    assert not needs_second(SecondApproval(above=RULE.above), {"amount": "10001"}, too_early=True)
    assert not needs_second(None, {"amount": "10001"}, too_early=True)
