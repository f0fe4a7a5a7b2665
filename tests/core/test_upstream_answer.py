"""What of an upstream's answer is for the client and for the record."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.field_names import FRAMING, HOP_BY_HOP, OURS, PER_EXCHANGE
from gateway.core.hints import Hint
from gateway.core.model import Headers
from gateway.core.policy import Expired, OnExpired, Policy
from gateway.core.reconcile.found import Built
from gateway.core.upstream_answer import answer_fields, built, kept_for, phrase, removed_fields
from gateway.ports import Retention

DATE = b"Fri, 27 Nov 2026 12:00:00 GMT"
NAMES = st.sampled_from([b"Date", b"Content-Type", b"X-Bank", b"ETag", b"Set-Cookie", b"Connection", b"Content-Length", b"Retry-After"])
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b"1", b"X-Bank", b"text/plain"])), max_size=6).map(tuple)
TRUSTING = Policy("payments", (), hints=(Hint("X-Bank", remove=True),), trust_retention=True)


@given(st.sampled_from(["POST", "HEAD"]), st.sampled_from([200, 204, 304]), HEADERS)
def test_fields_are_kept_as_the_first_attempt_would(method: str, status: int, headers: Headers) -> None:
    """Nothing of one hop or one exchange, in the order of the wire, and with a date."""
    kept = answer_fields(method, status, headers, removed_fields(Policy("payments", ())), DATE).to_store
    names = [name.lower() for name, _ in kept]
    assert not set(names) & (HOP_BY_HOP | PER_EXCHANGE | OURS)
    assert not set(names) & FRAMING or method == "HEAD" or status == 304
    assert b"date" in names
    own = [field for field in kept if field in headers]
    assert own == [field for field in headers if field in own]


@given(HEADERS)
def test_what_is_between_the_upstream_and_us_is_not_kept(headers: Headers) -> None:
    """Hints that the route removes, and the upstream's word on retention."""
    fields = (*headers, (b"Idempotency-Retention", b"60"))
    names = {name.lower() for name, _ in answer_fields("POST", 200, fields, removed_fields(TRUSTING), DATE).to_client}
    assert not names & {b"x-bank", b"idempotency-retention"}


@pytest.mark.parametrize(
    ("said", "seconds"), [(b"60", 60.0), (b"0", 0.0), (b"no-store", 0.0), (b"soon", TRUSTING.retention), (None, TRUSTING.retention)]
)
def test_the_upstreams_word_on_retention(said: bytes | None, seconds: float) -> None:
    """Counts where the route trusts it; 0 keeps no answer."""
    headers = () if said is None else ((b"Idempotency-Retention", said),)
    assert kept_for(headers, TRUSTING) == seconds
    assert kept_for(headers, Policy("payments", ())) is None


@given(st.integers(200, 599))
def test_a_phrase_is_that_of_the_status(status: int) -> None:
    """Or nothing, for one without a name; never anything that could break a status line."""
    assert phrase(201) == b"Created"
    assert phrase(599) == b""
    assert not set(b"\r\n") & set(phrase(status))


@given(st.floats(1, 1e6), st.sampled_from(OnExpired), st.sampled_from(Expired), st.none() | st.floats(1, 1e6))
def test_retention_is_the_routes(retention: float, on_expired: OnExpired, expired: Expired, seconds: float | None) -> None:
    """Unless the upstream says how long."""
    policy = Policy("payments", (), retention=retention, on_expired=on_expired, expired=expired)
    wanted = Retention(
        retention if seconds is None else seconds,
        policy.tombstone if on_expired is OnExpired.GONE else None,
        policy.keep_for if expired is Expired.KEEP else None,
    )
    assert Retention.of(policy, seconds) == wanted


@given(st.integers(200, 599), st.binary(max_size=64))
def test_a_built_answer_is_described_in_full(status: int, body: bytes) -> None:
    """With length, digest, and the status's own phrase if it has one."""
    answer = built(Built(status, ((b"X-Bank", b"1"),), body))
    assert (answer.status, answer.headers, answer.body) == (status, ((b"X-Bank", b"1"),), body)
    assert (answer.body_length, answer.body_digest) == (len(body), hashlib.sha256(body).digest())
    assert built(Built(201, (), b"")).reason == b"Created"
    assert built(Built(599, (), b"")).reason == b""
