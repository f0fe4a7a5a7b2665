"""What upstreams tell of how far they have come."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.recovery_point import LONGEST_DATA, BadPoint, DataTooLarge, RecoveryPoint, field_value, read_point

texts = st.text(st.characters(codec="utf-8"), max_size=30)
objects = st.dictionaries(texts, st.recursive(st.none() | st.booleans() | st.integers() | texts, st.lists, max_leaves=5), max_size=5)
labels = st.from_regex(r"[a-z0-9_.-]{1,50}", fullmatch=True)


@given(labels, objects | st.none())
def test_read_back(label: str, data: object) -> None:
    """What was told is kept by its meaning, in compact JSON, and goes on as ASCII."""
    body = {"recovery_point": label} | ({} if data is None else {"data": data})
    point = read_point(json.dumps(body).encode())
    assert point.label == label
    assert (None if point.data is None else json.loads(point.data)) == data
    if point.data is not None:
        value = field_value(point.data)
        assert json.loads(value) == data
        assert all(0x20 <= byte < 0x7F for byte in value)
    assert read_point(json.dumps(body, indent=1, ensure_ascii=False).encode()) == point


def test_compact() -> None:
    """Numbers stay as they were written; characters beyond the first plane are two escapes."""
    point = read_point('{"data": {"a": 1.10, "é": "\U0001f511"}, "recovery_point": "x"}'.encode())
    assert point == RecoveryPoint("x", '{"a":1.10,"é":"\U0001f511"}')
    assert field_value(point.data or "") == b'{"a":1.10,"\\u00e9":"\\ud83d\\udd11"}'


@pytest.mark.parametrize(("letter", "each"), [("a", 1), ("é", 6), ("\U0001f511", 12), ("\x7f", 6)])
def test_the_limit_is_that_of_the_field(letter: str, each: int) -> None:
    """An upstream that takes fields of 8 KiB can always be told where to go on."""
    most = (LONGEST_DATA - len('{"x":""}')) // each

    def told(count: int) -> RecoveryPoint:
        return read_point(json.dumps({"recovery_point": "a", "data": {"x": letter * count}}).encode())

    assert len(field_value(told(most).data or "")) <= LONGEST_DATA
    with pytest.raises(DataTooLarge):
        told(most + 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'"a"',
        b'{"recovery_point": ""}',
        b'{"recovery_point": "A"}',
        b'{"recovery_point": "a b"}',
        b'{"recovery_point": 1}',
        b'{"recovery_point": null}',
        b'{"recovery_point": "' + b"a" * 51 + b'"}',
        b'{"recovery_point": "a\\n"}',
        b'{"recovery_point": "a", "recovery_point": "b"}',
        b'{"recovery_point": "a", "more": 1}',
        b'{"recovery_point": "a", "data": 1}',
        b'{"recovery_point": "a", "data": []}',
        b'{"recovery_point": "a", "data": {"x": "\\ud800"}}',
        b'{"recovery_point": "a", "data": {"x": NaN}}',
        b'{"data": {}}',
        b'\xff{"recovery_point": "a"}',
    ],
)
def test_what_is_no_point(body: bytes) -> None:
    with pytest.raises(BadPoint):
        read_point(body)


def test_how_much_data() -> None:
    """The limit is on what is kept, not on how it was written."""
    fits = {"x": "a" * (LONGEST_DATA - len('{"x":""}'))}
    assert len(read_point(json.dumps({"recovery_point": "a", "data": fits}, indent=4).encode()).data or "") == LONGEST_DATA
    fits["x"] += "a"
    with pytest.raises(DataTooLarge):
        read_point(json.dumps({"recovery_point": "a", "data": fits}).encode())


def test_no_data_is_none() -> None:
    assert read_point(b'{"recovery_point": "a", "data": null}') == RecoveryPoint("a")
    assert read_point(b'{"recovery_point": "a", "data": {}}') == RecoveryPoint("a", "{}")
