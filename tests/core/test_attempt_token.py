"""The token of an attempt."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.attempt_token import AttemptToken, read_token, write_token
from gateway.core.model import RecordKey

texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=100)
tokens = st.builds(AttemptToken, st.builds(RecordKey, texts, texts), st.binary(min_size=16, max_size=16))


@given(tokens)
def test_read_back(token: AttemptToken) -> None:
    """It is a token of HTTP, and means what it was made of."""
    text = write_token(token)
    assert read_token(text) == token
    assert text.isascii()
    assert all(letter.isalnum() or letter in "-_" for letter in text)


@given(tokens, tokens)
def test_injective(one: AttemptToken, other: AttemptToken) -> None:
    """Two attempts never have one token, however scope and key are split."""
    assert (write_token(one) == write_token(other)) == (one == other)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: urlsafe_b64encode(raw).decode().rstrip("=")))
def test_what_is_no_token(text: str) -> None:
    """Anything else is none, and does no harm."""
    token = read_token(text)
    assert token is None or write_token(token) == text


@pytest.mark.parametrize("text", ["", "AQ", "x" * 9000, "AQ==", "a b", write_token(AttemptToken(RecordKey("s", "k"), b"o" * 16)) + "="])
def test_bad_texts(text: str) -> None:
    assert read_token(text) is None


@pytest.mark.parametrize(("scope", "key"), [("s", "\0"), ("s\0", "k"), ("s", "é"), ("s\n", "k"), ("s", "\x7f")])
def test_what_names_no_record(scope: str, key: str) -> None:
    """Postgres refuses a NUL in a text: a stranger's token would count as an error of the store."""
    assert read_token(write_token(AttemptToken(RecordKey(scope, key), b"o" * 16))) is None


def test_a_known_one() -> None:
    """The form is fixed: SQL reads it, too."""
    assert write_token(AttemptToken(RecordKey("rides:none", "k-1"), bytes(range(16)))) == "AQABAgMEBQYHCAkKCwwNDg8ACnJpZGVzOm5vbmVrLTE"
