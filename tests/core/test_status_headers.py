"""Status, expiry and exposure: what answers tell clients about their keys."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cors import expose
from gateway.core.decision import Label
from gateway.core.dialect_model import Dialect
from gateway.core.key_policy import BodyKey, HeaderKey, KeyPolicy
from gateway.core.model import Headers
from gateway.core.policy import Policy
from gateway.core.status_headers import MARKS, Mark, expires, exposed, mark

STATUSES = {
    Label.EXECUTE: "new",
    Label.EXECUTE_RETRY: "new",
    Label.REEXECUTE: "new",
    Label.REPLAY: "replayed",
    Label.REPLAY_WITHOUT_BODY: "replayed",
    Label.IN_PROGRESS: "in-progress",
    Label.ACCEPTED: "in-progress",
    Label.KEY_MISUSE: "mismatch",
    Label.UNKNOWN: "unknown",
    Label.GONE: "expired",
    Label.UNPROTECTED: "unprotected",
    Label.BYPASS: "unprotected",
}


@pytest.mark.parametrize("label", Label)
def test_mark(label: Label) -> None:
    """Each decision about a key has its word; a refusal before any decision has none."""
    assert mark(label) == STATUSES.get(label)
    assert mark(label, doubtful=True) == ("unknown" if STATUSES.get(label) == "new" else STATUSES.get(label))


def test_every_mark_is_used() -> None:
    """No word of the contract is without a decision."""
    assert {mark(label) for label in Label} - {None} == set(Mark)


def microseconds(at: datetime) -> int:
    return round(at.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("at", "want"),
    [
        (0, b"Thu, 01 Jan 1970 00:00:00 GMT"),
        (784_111_777_000_000, b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (784_111_777_999_999, b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (1_709_164_800_000_000, b"Thu, 29 Feb 2024 00:00:00 GMT"),
        (-1, b"Thu, 01 Jan 1970 00:00:00 GMT"),
        (10**30, b"Fri, 31 Dec 9999 23:59:59 GMT"),
    ],
)
def test_expires(at: int, want: bytes) -> None:
    """An instant is written as an HTTP-date, rounded down and kept within four-digit years."""
    assert expires(at) == want


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001 - bounds are naive by Hypothesis' rules
def test_expires_is_read_back(at: datetime) -> None:
    """Any mail library reads the date as the instant that it was made from, whatever the locale."""
    whole = at.replace(microsecond=0)
    assert parsedate_to_datetime(expires(int(whole.timestamp()) * 1_000_000 + at.microsecond).decode()) == whole


OURS = (b"Idempotent-Replayed", b"Retry-After")
EXPOSE = b"Access-Control-Expose-Headers"


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        ((), ((EXPOSE, b"Idempotent-Replayed, Retry-After"),)),
        (((b"A", b"1"),), ((b"A", b"1"), (EXPOSE, b"Idempotent-Replayed, Retry-After"))),
        (((EXPOSE, b"ETag"),), ((EXPOSE, b"ETag, Idempotent-Replayed, Retry-After"),)),
        (((EXPOSE.lower(), b"ETag,retry-after"),), ((EXPOSE.lower(), b"ETag,retry-after, Idempotent-Replayed"),)),
        (((EXPOSE, b""),), ((EXPOSE, b"Idempotent-Replayed, Retry-After"),)),
        (((EXPOSE, b"A"), (b"B", b"1"), (EXPOSE, b"C")), ((EXPOSE, b"A"), (b"B", b"1"), (EXPOSE, b"C, Idempotent-Replayed, Retry-After"))),
        (((EXPOSE, b"idempotent-replayed, RETRY-AFTER"),), ((EXPOSE, b"idempotent-replayed, RETRY-AFTER"),)),
        (((EXPOSE, b"*"),), ((EXPOSE, b"*"),)),
        (((EXPOSE, b"ETag, *"),), ((EXPOSE, b"ETag, *"),)),
        (
            ((EXPOSE, b"*"), (b"Access-Control-Allow-Credentials", b"true")),
            ((EXPOSE, b"*, Idempotent-Replayed, Retry-After"), (b"Access-Control-Allow-Credentials", b"true")),
        ),
        (
            ((EXPOSE, b"*"), (b"Access-Control-Allow-Credentials", b"false")),
            ((EXPOSE, b"*"), (b"Access-Control-Allow-Credentials", b"false")),
        ),
    ],
)
def test_expose(headers: Headers, want: Headers) -> None:
    """Names are added to what the upstream exposes, once; `*` stays alone unless credentials make it an ordinary name."""
    assert expose(headers, OURS) == want


tokens = st.sampled_from([b"ETag", b"X", b"idempotent-replayed", b"Retry-After", b"*", b""])
lines = st.tuples(
    st.sampled_from([EXPOSE, EXPOSE.lower(), b"A", b"access-control-allow-credentials"]), tokens | st.just(b"true") | st.just(b"ETag, X")
)


@given(st.lists(lines, max_size=5).map(tuple))
def test_expose_adds_and_keeps(headers: Headers) -> None:
    """Doing it twice is doing it once; what was listed stays listed first, in order; every name is listed, or `*` stands for it."""
    once = expose(headers, OURS)
    assert expose(once, OURS) == once
    before, after = (_listed(fields) for fields in (headers, once))
    assert after[: len(before)] == before
    assert len(after) <= len(before) + len(OURS)
    assert b"*" in after or {name.lower() for name in OURS} <= set(after)
    assert [field for field in once if field[0].lower() != EXPOSE.lower()] == [
        field for field in headers if field[0].lower() != EXPOSE.lower()
    ]


def _listed(headers: Headers) -> list[bytes]:
    return [
        token.strip().lower() for name, value in headers if name.lower() == EXPOSE.lower() for token in value.split(b",") if token.strip()
    ]


def test_exposed_names() -> None:
    """Exposed are the fields that the route's answers can carry, each once, the key's own among them."""
    assert exposed(Policy("s", ())) == (b"Idempotency-Key", b"Idempotent-Replayed", b"Original-Request", b"Retry-After", b"X-Request-Id")
    own = Dialect(first_headers=(("Repeatability-Result", "accepted"),), replay_headers=(("repeatability-result", "accepted"),))
    policy = Policy("s", (), KeyPolicy(HeaderKey("K")), dialect=own, status_fields=True, duplicates=60.0, mark_duplicates=True)
    assert exposed(policy) == (
        *(b"K", b"repeatability-result", b"Idempotency-Status", b"Idempotency-Expires", b"Idempotency-Retry"),
        b"Idempotency-Duplicate",
        *(b"Retry-After", b"X-Request-Id"),
    )
    assert {name.lower() for name in exposed(policy)} >= MARKS
    assert exposed(Policy("s", (), KeyPolicy(BodyKey("/key"))))[0] == b"Idempotent-Replayed"
