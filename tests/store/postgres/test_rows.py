import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.timeline import DRIFT
from gateway.store.null_observer import NullObserver
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.queries import QUERIES, ROWS
from gateway.store.postgres.rows import Unreadable, decode_headers, encode_headers

HEADERS = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=300))).map(tuple)


@given(HEADERS)
def test_headers_come_back_as_they_were(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Any field lines survive, whatever their octets."""
    assert decode_headers(encode_headers(headers)) == headers


@given(HEADERS.filter(bool), st.data())
def test_cut_headers_are_noticed(headers: tuple[tuple[bytes, bytes], ...], data: st.DataObject) -> None:
    """A prefix decodes to a prefix of the lines, or is refused; never to something else."""
    stored = encode_headers(headers)
    cut = stored[: data.draw(st.integers(0, len(stored) - 1))]
    try:
        decoded = decode_headers(cut)
    except Unreadable:
        return
    assert decoded == headers[: len(decoded)]
    assert encode_headers(decoded) == cut


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(stored: bytes) -> None:
    """What decodes is exactly what encodes to it."""
    with contextlib.suppress(Unreadable):
        assert encode_headers(decode_headers(stored)) == stored


def test_no_headers_are_no_bytes() -> None:
    """The encoding adds nothing for nothing."""
    assert encode_headers(()) == b""


def test_every_statement_names_itself() -> None:
    """A DBA sees in the server's activity whose statement it is."""
    for name, sql in {**QUERIES, **{name: statement.sized(2, shared=True) for name, statement in ROWS.items()}}.items():
        assert sql.startswith(f"/* idempotency-gateway: {name} */\n")
        assert "--" not in sql
        assert ";" not in sql.replace("|| ';'", "")


def test_a_reserve_that_does_not_ask_pays_nothing_for_tombstones() -> None:
    """It is the same statement without them, which a batch gets in which nobody asks."""
    plain, asking = ROWS["reserve"], ROWS["reserve_or_gone"]
    assert "tombstone" not in plain.sized(1, shared=True)
    lines = iter(asking.after.splitlines())
    assert all(line in lines for line in plain.after.splitlines())
    assert [*plain.columns, ("digest", "bytea")] == [*asking.columns]
    assert (plain.terms, plain.fixed) == (asking.terms, asking.fixed)


def test_the_database_clock_is_never_underestimated() -> None:
    """The estimate starts from the reading, adds all time since before the statement was sent, and follows a clock that was set back."""
    now = [100.0]
    clock = DatabaseClock(lambda: now[0], lambda: 5.0, NullObserver())
    assert clock.now_us() is None
    clock.read(5_000_000, 99.0)
    assert clock.now_us() == pytest.approx(6_000_001, abs=2)
    now[0] = 200.0
    assert clock.now_us() == pytest.approx(106_000_001 + 100 * DRIFT * 1e6, abs=2)
    clock.read(1_000, 200.0)
    assert clock.now_us() == pytest.approx(1_001, abs=2)
