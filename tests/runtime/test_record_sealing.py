"""What is sealed of a record: it opens as it was, under its own record and a configured key alone, and shows nothing."""

import hashlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import SEALED, RecordKey, StoredResponse
from gateway.core.packing import packed, unpack
from gateway.ports.reconciliation import Unsealable
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.runtime.sealing import AesSealer
from tests.store.contract.harness import intent as new_intent

KEY, RECORD = RecordKey("pay:alice", "k-1"), UUID(int=7)
OTHERS = [(RecordKey("pay:bob", "k-1"), RECORD), (RecordKey("pay:alice", "k-2"), RECORD), (KEY, UUID(int=8))]
SEALER = RecordSealer(AesSealer((b"present",)), seals=True)
NAMES = st.binary(max_size=12)
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=40)), max_size=6).map(tuple)


@st.composite
def answers(draw: st.DrawFn) -> StoredResponse:
    body = draw(st.binary(max_size=300)) * draw(st.sampled_from([1, 1, 50]))
    plain = StoredResponse(
        draw(st.integers(200, 599)), draw(st.binary(max_size=20)), draw(FIELDS), body, len(body), hashlib.sha256(body).digest()
    )
    return draw(st.sampled_from([plain, plain.without_body()]))


@given(answers())
def test_an_answer_opens_as_it_was(answer: StoredResponse) -> None:
    """Under its own record alone; twice sealed it has other bytes and the same digest."""
    sealed, again = SEALER.seal_answer(KEY, RECORD, answer), SEALER.seal_answer(KEY, RECORD, answer)
    assert SEALER.open_answer(KEY, RECORD, sealed) == answer
    assert (sealed.status, sealed.headers, sealed.encoding) == (0, (), SEALED)
    assert sealed.reason != again.reason
    assert sealed.body_digest == again.body_digest != answer.body_digest
    for key, record_id in OTHERS:
        with pytest.raises(Unsealable):
            SEALER.open_answer(key, record_id, sealed)


@given(answers())
def test_a_store_that_leaves_the_body_out_leaves_the_rest(answer: StoredResponse) -> None:
    """What a store cannot hold whole opens as an answer without its body."""
    sealed = SEALER.seal_answer(KEY, RECORD, answer)
    kept = sealed.without_body()
    assert kept.body == b""
    assert SEALER.open_answer(KEY, RECORD, kept) == (answer if sealed.body == b"\0" else answer.without_body())


@given(answers())
def test_a_sealed_answer_that_does_not_open_has_no_body_to_replay(answer: StoredResponse) -> None:
    """Nor passes for one that was kept without its body."""
    sealed = SEALER.seal_answer(KEY, RECORD, answer)
    with pytest.raises(Unsealable):
        NOTHING_OPENS.open_answer(KEY, RECORD, sealed)
    assert sealed.body is not None
    with pytest.raises(ValueError, match="no configured key"):
        unpack(sealed.encoding, sealed.body, sealed.body_length)


def test_a_former_key_opens_and_the_present_one_seals() -> None:
    """And a sealer that is off opens, seals nothing, and leaves what is sealed as it is."""
    answer = packed(StoredResponse(201, b"Created", ((b"X", b"1"),), b"{}" * 5000, 10000, b"d" * 32))
    sealed = SEALER.seal_answer(KEY, RECORD, answer)
    rotated = RecordSealer(AesSealer((b"next", b"present")), seals=False)
    assert rotated.open_answer(KEY, RECORD, sealed) == answer
    assert rotated.seal_answer(KEY, RECORD, answer) is answer
    assert SEALER.seal_answer(KEY, RECORD, sealed) is sealed
    with pytest.raises(Unsealable):
        RecordSealer(AesSealer((b"next",)), seals=True).open_answer(KEY, RECORD, sealed)


@given(
    st.binary(min_size=1, max_size=60).filter(lambda target: not target.startswith(b"\0")), st.dictionaries(st.text(min_size=1), st.text())
)
def test_a_request_opens_as_it_was(target: bytes, captured: dict[str, str]) -> None:
    """Its target and captured values; what is sealed already is not sealed again."""
    intent = new_intent(KEY, target=target, captured=captured, correlation="order-1")
    sealed = SEALER.seal_intent(intent)
    assert SEALER.open_target(KEY, sealed.target) == target
    assert SEALER.open_captured(KEY, sealed.captured or {}) == captured
    assert sealed.correlation in SEALER.correlations("pay", "order-1")
    assert SEALER.seal_intent(sealed) == sealed
    with pytest.raises(Unsealable):
        SEALER.open_target(OTHERS[0][0], sealed.target)


def test_a_correlation_is_found_after_a_rotation() -> None:
    """Among what a record may hold are the digests under former keys, and the value in clear."""
    held = SEALER.seal_intent(new_intent(KEY, correlation="order-1")).correlation
    rotated = RecordSealer(AesSealer((b"next", b"present")), seals=True)
    assert held in rotated.correlations("pay", "order-1")
    assert held not in rotated.correlations("pay", "order-2")
    assert rotated.correlations("pay", "order-1")[0] == "order-1"
