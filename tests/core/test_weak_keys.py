"""Which keys are worth a notice, and which are not."""

import base64
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.weak_keys import FEW, SHORT, Notice, notice


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("jane.doe@example.com", Notice.EMAIL),
        ("a@b.co", Notice.EMAIL),
        ("order:jane+tag@mail.example.org:2", Notice.EMAIL),
        ("jane@localhost-and-more", None),
        ("user@42", Notice.SHORT),
        ("4111111111111111", Notice.CARD),
        ("4111 1111 1111 1111", Notice.CARD),
        ("5500-0000-0000-0004", Notice.CARD),
        ("charge-378282246310005", Notice.CARD),
        ("3782 822463 10005", Notice.CARD),
        ("2223003122003222_1", Notice.CARD),
        ("4111111111111112", Notice.COUNTER),
        ("+4915112345678", Notice.PHONE),
        ("+1 (555) 010-9999", Notice.PHONE),
        ("tel:+49 170 1234567", Notice.PHONE),
        ("0", Notice.COUNTER),
        ("007", Notice.COUNTER),
        ("1732752000", Notice.COUNTER),
        ("1732752000123456789", Notice.COUNTER),
        ("2026-11-28", Notice.COUNTER),
        ("2026-11-28T02:10:00Z", Notice.COUNTER),
        ("20261128/42", Notice.COUNTER),
        ("order-1001", Notice.COUNTER),
        ("txn42", Notice.COUNTER),
        ("Invoice_000000000000123", Notice.COUNTER),
        ("payment:refund:000000017", Notice.COUNTER),
        ("a", Notice.SHORT),
        ("retry", Notice.SHORT),
        ("deadbeef", Notice.SHORT),
        ("aaaaaaaaaaaaaaaaaaaaaaaa", Notice.REPETITIVE),
        ("00000000-0000-0000-0000-000000000000", Notice.REPETITIVE),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", Notice.REPETITIVE),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", None),
        ("8E03978E-40D5-43DD-BC93-6894A57F9324", None),
        ("12345678-1234-4234-8234-123456789012", None),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", None),
        ("V1StGXR8_Z5jdHi6B-myT", None),
        ("aGVsbG8/d29ybGQ+MTIzNDU2Nzg5MA==", None),
        ("+1234567+89AbCdEfGhIjKl==", None),
        ("order-1001-8e03978e40d543dd", None),
        ("340282366920938463463374607431768211455", None),
    ],
)
def test_examples(key: str, want: Notice | None) -> None:
    """Personal data first, then what can be counted, then what can be guessed; random identifiers get no notice."""
    assert notice(key) is want


@given(st.uuids(version=4))
@example(uuid.UUID("12345678-9012-4345-8678-901234567890"))
def test_uuids(key: uuid.UUID) -> None:
    """UUIDs in their usual spellings get no notice, unless they are made of hardly any different digits."""
    for text in (str(key), str(key).upper(), f"order-{key}"):
        assert notice(text) in ({None} if len(set(key.hex)) > 6 else {None, Notice.REPETITIVE})


@given(st.binary(min_size=16, max_size=32))
def test_random_bytes(key: bytes) -> None:
    """Nor do 128 bits or more in hex or base64: such a text is no address, phone, card or counter, though it may repeat itself."""
    for text in (key.hex(), base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode().rstrip("=")):
        assert notice(text) in {None, Notice.REPETITIVE}


@given(st.integers(0, 2**63), st.sampled_from(["", "order-", "ORDER_", "Order:", "tx.pay#"]))
def test_counters(number: int, word: str) -> None:
    """A 64-bit number is a counter, by itself or after a word, or, with its check digit right, looks like a card."""
    assert notice(f"{word}{number}") in {Notice.COUNTER, Notice.CARD}


def _few(key: str) -> bool:
    return len(key) >= SHORT and len(set(key) - {"-"}) <= FEW


@given(st.text("abcde-", min_size=1, max_size=40))
@example("abcd-abcd-abcd-abcd-e")
def test_few_different_characters(key: str) -> None:
    """All of a key is looked at, hyphens aside."""
    assert (notice(key) is Notice.REPETITIVE) == _few(key)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40))
def test_every_key_has_a_verdict(key: str) -> None:
    """No key is an error, and no short one passes in silence."""
    found = notice(key)
    assert found is None or isinstance(found, Notice)
    assert found is not None or len(key) >= 16
