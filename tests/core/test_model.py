"""The values: where records live, and that nothing can be changed behind a holder's back."""

import hashlib
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.model import Intent, Lease, RecordKey, Status, StoredResponse, Terms
from tests.core.records import FINGERPRINT, RESPONSE, record

texts = st.text("ab:%{}*0123456789\0,é", max_size=6)


@given(texts, texts, texts, texts)
@example("a:b", "c", "a", "b:c")
@example("a", "bc", "ab", "c")
@example("1:a", "b", "1", ":ab")
@example("", "11:a", "1", "1:a")
@example("a", "a%3Ab", "a", "a:b")
@example("é", "", "", "é")
def test_lookup_digests_are_injective(scope: str, key: str, other_scope: str, other_key: str) -> None:
    """Two records share a lookup digest only if scope and key are equal, however they run together when joined."""
    one, other = RecordKey(scope, key), RecordKey(other_scope, other_key)
    assert (one.lookup_digest() == other.lookup_digest()) == (one == other)


def test_lookup_digest_is_pinned() -> None:
    """The digest names entries in Redis that other releases read too."""
    want = hashlib.sha256(b"idempotency-gateway/lookup/1\x0012:charges:nonek-1").digest()
    assert RecordKey("charges:none", "k-1").lookup_digest() == want


def test_a_response_without_its_body() -> None:
    """What is left when a body was not kept: everything else, its length and digest included."""
    bare = RESPONSE.without_body()
    assert bare.body is None
    for field in fields(StoredResponse):
        assert field.name == "body" or getattr(bare, field.name) == getattr(RESPONSE, field.name)
    assert bare.without_body() == bare


def test_a_response_without_its_body_has_no_encoding() -> None:
    """Nothing is left that could be packed."""
    packed = replace(RESPONSE, encoding=1)
    assert packed != RESPONSE
    assert packed.without_body() == RESPONSE.without_body()
    assert packed.without_body().encoding == 0


def test_states() -> None:
    """The five states, as SQL, metrics and docs spell them."""
    assert [status.value for status in Status] == ["pending", "in_progress", "completed", "failed_retryable", "unknown"]


LEASE = Lease(RecordKey("s", "k"), UUID(int=1), b"o" * 16, 1, 0.0, 30.0)
TERMS = Terms("route", 30.0, 120.0)
INTENT = Intent(RecordKey("s", "k"), FINGERPRINT, b"o" * 16, TERMS, "request", "POST", b"/")


@pytest.mark.parametrize("value", [RecordKey("s", "k"), FINGERPRINT, RESPONSE, record(Status.UNKNOWN), LEASE, TERMS, INTENT], ids=type)
def test_values_grow_no_attributes(value: Any) -> None:
    """Values are shared between tasks."""
    assert not hasattr(value, "__dict__")
    with pytest.raises((AttributeError, TypeError)):
        value.another = None


def test_terms_are_frozen() -> None:
    """Made once for a route, and shared by all its requests. Of the other values the type checker says so (`gateway.core.value`)."""
    for field in fields(TERMS):
        with pytest.raises(FrozenInstanceError):
            setattr(TERMS, field.name, None)
