"""Ids, inputs, rules and JSON: the pure parts of the operator's service."""

import datetime as dt
import json
import re
from base64 import urlsafe_b64encode
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import RecordKey, Status, StoredResponse
from gateway.operate.operations import (
    By,
    Conflict,
    Done,
    NotFound,
    TooEarly,
    Wrong,
    audit_json,
    changed_json,
    listed_json,
    parse_record_id,
    record_id_text,
    shown_json,
)
from gateway.operate.operations.bodies import check_answer
from gateway.operate.operations.ids import parse_short_id, short_id_text
from gateway.operate.operations.rules import Change, obstacle
from gateway.ports.reconciliation import Audit, AuditLine, Entry, Listed, Remembered, Shown

NOW = dt.datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)
SOON = NOW + dt.timedelta(seconds=1)
BEFORE = NOW - dt.timedelta(seconds=1)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def listed(status: Status = Status.UNKNOWN, **settings: object) -> Listed:
    blank = Listed(
        key=RecordKey("payments:none", "k"),
        record_id=UUID(int=7),
        version=3,
        status=status,
        route_id="charge",
        request_id="r-1",
        method="POST",
        attempt=1,
        observed=False,
        reason=None,
        created_at=BEFORE,
        locked_until=None,
        unknown_since=None,
        doubtful_until=None,
        reconcile_after=None,
        looks=0,
        dead_lettered_at=None,
        completed_at=None,
        expires_at=None,
        response_status=None,
        response_length=None,
    )
    return replace(blank, **settings)  # type: ignore[arg-type]  # fields of a test's choice


def shown(status: Status = Status.UNKNOWN, *, evidence: bool = False, **settings: object) -> Shown:
    return Shown(listed(status, **settings), b"/v1/\xff", {"order": "A-1"}, 1, b"f" * 32, None, [], NOW, evidence)


# ---- ids


@given(scope=texts.filter(bool), key=texts)
def test_an_id_names_its_record(scope: str, key: str) -> None:
    """Whatever the key holds, the id is one word that needs no escaping anywhere, and leads back."""
    text = record_id_text(RecordKey(scope, key))
    assert text.startswith("rec_")
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    assert parse_record_id(text) == RecordKey(scope, key)


def encoded(text: bytes) -> str:
    return "rec_" + urlsafe_b64encode(text).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rec_",
        "k",
        "rec_%",
        "rec_é",
        "rec_AA==",
        encoded(b"scope"),
        encoded(b"\0key"),
        encoded(b"a\0b\0c"),
        encoded(b"a\0\xff"),
        encoded(b"a\0b") + " ",
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    """One error for all of it, with a sentence that says where ids come from."""
    with pytest.raises(ValueError, match="no record id"):
        parse_record_id(text)


@given(text=st.text(max_size=40) | st.text("abcAB01_-=", max_size=12).map("rec_".__add__))
def test_an_id_has_one_spelling(text: str) -> None:
    """Any text is refused, or is exactly what the id's record would be called."""
    try:
        key = parse_record_id(text)
    except ValueError:
        return
    assert record_id_text(key) == text


@given(scope=st.from_regex(r"[a-z][a-z0-9.-]{0,9}:(none|header[.][A-Za-z0-9_-]{43})", fullmatch=True), key=texts.filter(bool))
def test_a_short_id_is_ten_letters_of_a_records_digest(scope: str, key: str) -> None:
    """It says between which digests to look, and no record's long id looks like one."""
    record = RecordKey(scope, key)
    text = short_id_text(record)
    assert len(text) == 14
    bounds = parse_short_id(text)
    assert bounds is not None
    low, high = bounds
    assert low <= record.lookup_digest()[:7] <= high
    assert int.from_bytes(high, "big") - int.from_bytes(low, "big") == 63
    assert parse_short_id(record_id_text(record)) is None


@given(text=st.text(max_size=16) | st.text("abyz127189", min_size=9, max_size=11).map("rec_".__add__))
def test_what_is_no_short_id_is_none(text: str) -> None:
    """Anything else is no short id: nothing is looked for."""
    found = parse_short_id(text)
    assert (found is None) == (re.fullmatch("rec_[a-z2-7]{10}", text) is None)


# ---- inputs


@pytest.mark.parametrize(
    ("actor", "reason", "field"), [("", "r", "actor"), (" ", "r", "actor"), ("a\n", "r", "actor"), ("a" * 256, "r", "actor")]
)
def test_an_actor_is_one_line(actor: str, reason: str, field: str) -> None:
    """Somebody's name, short and visible."""
    with pytest.raises(Wrong) as caught:
        By(actor, reason)
    assert caught.value.field == field


@pytest.mark.parametrize("reason", ["", "\n", "a\0", "a\x1b[0m", "a\ud800", "a" * 2001])
def test_a_reason_is_text(reason: str) -> None:
    """It may have lines, but nothing that a terminal would obey or the database refuse."""
    with pytest.raises(Wrong) as caught:
        By("ada", reason)
    assert caught.value.field == "reason"
    By("ada", "first line\nsecond\tline: é ✓")


@pytest.mark.parametrize(
    ("status", "headers", "body", "field"),
    [
        (100, (), b"", "status"),
        (600, (), b"", "status"),
        (204, (), b"x", "body"),
        (200, ((b"A B", b""),), b"", "headers"),
        (200, ((b"", b"x"),), b"", "headers"),
        (200, ((b"A", b"x\r\nB: y"),), b"", "headers"),
        (200, ((b"A", b" x"),), b"", "headers"),
        (200, ((b"A", b"x" * 70_000),), b"", "headers"),
    ],
)
def test_an_answer_must_be_sendable(status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes, field: str) -> None:
    """What no upstream could have sent is refused before it is stored."""
    with pytest.raises(Wrong) as caught:
        check_answer(status, headers, body)
    assert caught.value.field == field


# ---- rules

ALLOWED = {
    Change.EXECUTED: {"lapsed", "failed", "unknown", "early", "dead", "proved"},
    Change.NOT_EXECUTED: {"unknown", "dead"},
    Change.RELEASE: {"lapsed", "unknown", "dead"},
    Change.DELETE: {"completed", "failed", "gone", "observed completed"},
    Change.REQUEUE: {"dead", "dead early"},
    Change.LOOK_NOW: {"unknown", "early", "proved"},
}
TOO_EARLY = {
    Change.NOT_EXECUTED: {"early", "dead early"},
    Change.RELEASE: {"early", "dead early", "lapsed early"},
}
RECORDS = {
    "running": shown(Status.IN_PROGRESS, locked_until=SOON, doubtful_until=SOON),
    "lapsed": shown(Status.IN_PROGRESS, locked_until=BEFORE, doubtful_until=NOW),
    "lapsed early": shown(Status.IN_PROGRESS, locked_until=BEFORE, doubtful_until=SOON),
    "completed": shown(Status.COMPLETED, expires_at=SOON),
    "failed": shown(Status.FAILED_RETRYABLE, expires_at=SOON),
    "gone": shown(Status.FAILED_RETRYABLE, expires_at=NOW),
    "unknown": shown(doubtful_until=NOW),
    "early": shown(doubtful_until=SOON),
    "proved": shown(doubtful_until=BEFORE, evidence=True),
    "dead": shown(doubtful_until=BEFORE, dead_lettered_at=BEFORE),
    "dead early": shown(doubtful_until=SOON, dead_lettered_at=BEFORE),
    "observed": shown(doubtful_until=BEFORE, observed=True),
    "observed completed": shown(Status.COMPLETED, observed=True),
}


@pytest.mark.parametrize("change", Change)
@pytest.mark.parametrize("name", RECORDS)
def test_each_change_is_for_some_records_alone(change: Change, name: str) -> None:
    """The rules of the store, told in words before anything is sent."""
    record = RECORDS[name]
    found = obstacle(change, record)
    allowed = ALLOWED[change] | ({"lapsed early", "dead early"} if change is Change.EXECUTED else set())
    if name in allowed:
        assert found is None
    elif name in TOO_EARLY.get(change, set()):
        assert found == TooEarly(SOON, record.listed)
    else:
        assert isinstance(found, Conflict)
        assert found.now == record.listed
        assert found.why.endswith(".")


# ---- JSON


def test_a_record_in_json() -> None:
    """Instants in UTC with one width, digests in hex, octets that are no UTF-8 still there; all of it is JSON."""
    east = NOW.astimezone(dt.timezone(dt.timedelta(hours=5)))
    response = StoredResponse(201, b"Created", ((b"X-Name", b"caf\xe9"),), b"\x00\xff", 2, b"d" * 32)
    history = [Remembered(east, Entry("operator", "requeued", {"status": 404}, "ada", "why"))]
    whole = replace(shown(Status.COMPLETED, completed_at=east, dead_lettered_at=None), response=response, history=history)
    document = json.loads(json.dumps(shown_json(whole)))
    assert document["completed_at"] == "2030-01-02T03:04:05.000678Z"
    assert (document["id"], document["state"], document["scope"], document["key"]) == (
        record_id_text(RecordKey("payments:none", "k")),
        "completed",
        "payments",
        "k",
    )
    assert document["target"] == "/v1/ÿ"
    assert document["fingerprint"] == {"version": 1, "digest": "66" * 32}
    assert document["response"] == {
        "status": 201,
        "reason": "Created",
        "headers": [["X-Name", "café"]],
        "body_length": 2,
        "body_sha256": "64" * 32,
        "body_base64": "AP8=",
    }
    assert document["history"] == [
        {
            "at": "2030-01-02T03:04:05.000678Z",
            "source": "operator",
            "what": "requeued",
            "actor": "ada",
            "reason": "why",
            "detail": {"status": 404},
        }
    ]
    assert "body_base64" not in json.dumps(shown_json(replace(whole, response=response.without_body())))
    assert listed_json(listed(dead_lettered_at=NOW))["state"] == "dead_letter"


def test_outcomes_in_json() -> None:
    """Each says what it is, and what the record is now."""
    now = listed()
    record = listed_json(now)
    assert changed_json(Done(now)) == {"result": "done", "record": record, "redis": None, "memory": None}
    assert changed_json(Done(None, 0.0)) == {
        "result": "done",
        "record": None,
        "redis": {"acknowledged": True, "wait_seconds": 0.0},
        "memory": None,
    }
    assert changed_json(Done(None, 0.0, 3.0))["memory"] == {"wait_seconds": 3.0}
    assert changed_json(Done(None, 905.0))["redis"] == {"acknowledged": False, "wait_seconds": 905.0}
    assert changed_json(NotFound()) == {"result": "not_found", "record": None}
    assert changed_json(Conflict(now, "No.")) == {"result": "conflict", "why": "No.", "record": record}
    assert changed_json(TooEarly(SOON, now)) == {"result": "too_early", "until": "2030-01-02T03:04:06.000678Z", "record": record}


def test_an_audit_line_in_json() -> None:
    """What concerned no record names none."""
    audit = Audit("ada", "export", "for the bank", {"bodies": False})
    document = audit_json(AuditLine(5, NOW, audit, RecordKey("", ""), UUID(int=0)))
    assert document == {
        "line": 5,
        "at": "2030-01-02T03:04:05.000678Z",
        "actor": "ada",
        "action": "export",
        "reason": "for the bank",
        "id": None,
        "short_id": None,
        "key": None,
        "record_id": None,
        "detail": {"bodies": False},
    }
    named = audit_json(AuditLine(5, NOW, audit, RecordKey("payments:none", "k"), UUID(int=7)))
    assert (named["key"], named["record_id"]) == ("k", str(UUID(int=7)))
