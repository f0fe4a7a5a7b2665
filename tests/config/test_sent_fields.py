"""Fields that a route sets or removes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import settings_table
from gateway.core.sent_fields import Sending, SentFields
from tests.config.support import HEAD, ROUTES, mistakes, read

OTHERS = "says how the message is sent, what its body is, or is the gateway's to write; name another field"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("{set: {X-A: a}, remove: [X-B]}", None),
        ("{set: {connection: close}}", f"connection {OTHERS}"),
        ("{remove: [Content-Length]}", f"Content-Length {OTHERS}"),
        ("{remove: [transfer_encoding]}", f"transfer_encoding {OTHERS}"),
        ("{set: {Host: a}}", f"Host {OTHERS}"),
        ("{set: {X-Forwarded-For: a}}", f"X-Forwarded-For {OTHERS}"),
        ("{set: {Idempotency-Token: a}}", f"Idempotency-Token {OTHERS}"),
        ("{set: {X-A: a}, remove: [x_a]}", "X-A and x_a are one field; keep one of them"),
        ("{set: {X-A: 'a\u00fc'}}", "a header value is visible ASCII, with spaces inside if need be, and not empty"),
    ],
)
def test_changes_are_judged(tmp_path: Path, changes: str, expected: str | None) -> None:
    """Names that are not the route's to change, and what is said twice."""
    found = mistakes(tmp_path, HEAD + ROUTES.replace("    idempotency:", f"    request_headers: {changes}\n    idempotency:"))
    assert [one.rpartition(": ")[2] for one in found] == ([] if expected is None else [expected])


ANSWERS = "says how the answer is sent, what it means, or is the gateway's to write; name another field"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("{set: {Cache-Control: no-store}, remove: [Server, Set-Cookie]}", None),
        ("{set: {Content-Type: a}}", f"Content-Type {ANSWERS}"),
        ("{remove: [location]}", f"location {ANSWERS}"),
        ("{remove: [Idempotent-Replayed]}", f"Idempotent-Replayed {ANSWERS}"),
        ("{set: {X-A: a}, remove: [x-a]}", "X-A and x-a are one field; keep one of them"),
    ],
)
def test_changes_of_answers_are_judged(tmp_path: Path, changes: str, expected: str | None) -> None:
    """Names that are not the route's to change, and what is said twice."""
    found = mistakes(tmp_path, HEAD + ROUTES.replace("    idempotency:", f"    answer_headers: {changes}\n    idempotency:"))
    assert [one.rpartition(": ")[2] for one in found] == ([] if expected is None else [expected])


def test_check_shows_what_routes_change(tmp_path: Path) -> None:
    """But for the values that an upstream gets, which may be secrets."""
    changes = "    request_headers: {set: {X-Edge: hidden}, remove: [X-B]}\n    answer_headers: {set: {X-A: shown}, remove: [Server]}\n"
    table = settings_table(read(tmp_path, HEAD + ROUTES.replace("    idempotency:", f"{changes}    idempotency:")))
    rows = [line.split(maxsplit=1) for line in table.splitlines()]
    assert ["routes.charge.answer_headers.set", "X-A: shown"] in rows
    assert ["routes.charge.answer_headers.remove", "Server"] in rows
    assert ["routes.charge.request_headers.remove", "X-B"] in rows
    assert "hidden" not in table


def test_the_keys_field_is_not_changed(tmp_path: Path) -> None:
    """`forward_key` is for that."""
    text = HEAD + ROUTES.replace("    idempotency:", "    request_headers: {remove: [x_key]}\n    idempotency:\n      key: {header: X-Key}")
    assert [one.rpartition(": ")[2] for one in mistakes(tmp_path, text)] == [
        "x_key holds the key; `forward_key` says what the upstream sees of it"
    ]


NAMES = st.sampled_from([b"X-A", b"x_a", b"X-B", b"x-b", b"X-C"])


@given(st.lists(st.tuples(NAMES, st.just(b"1"))).map(tuple))
def test_what_is_set_stands_once_and_the_rest_stays_in_order(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Whatever came."""
    changed = Sending(SentFields((("X-A", "2"),), ("X-B",))).apply(headers)
    assert changed == (*[line for line in headers if line[0] == b"X-C"], (b"X-A", b"2"))
