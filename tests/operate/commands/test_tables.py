"""Tables fit a terminal, and are whole where no person looks."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.operate.commands.tables import WIDTH, record_table, table

texts = st.text("abcdefghij", max_size=60)


def record(state: str, **changes: object) -> dict[str, object]:
    instant = "2026-11-28T04:21:59.000000Z"
    names = ("dead_lettered_at", "unknown_since", "completed_at", "created_at", "reconcile_after", "locked_until", "expires_at")
    return {
        "state": state,
        "route": "create-payment-intent",
        "key": "8e03978e-40d5-43dd-bc93-6894a57f9324",
        "attempt": 12,
        "reason": "upstream_disconnected",
        "short_id": "rec_uks2gxtai3",
        **dict.fromkeys(names, instant),
        **changes,
    }


def test_a_line_of_records_fits_a_terminal() -> None:
    """In every state, with a UUID for a key; the id is whole, and what is cut says so."""
    for state in ("in_progress", "completed", "failed_retryable", "unknown", "dead_letter"):
        for lines in (record_table([record(state)], width=WIDTH).splitlines(), record_table([record(state)] * 3, width=WIDTH).splitlines()):
            assert max(map(len, lines)) <= WIDTH
            assert all(line.endswith("  rec_uks2gxtai3") for line in lines[1:])
            assert "8e03" in lines[1]
            assert "…" in lines[1]
            assert "  11-28 04:21:59Z  " in lines[1]


def test_a_pipe_gets_everything() -> None:
    """Without a terminal nothing is cut."""
    (_, line) = record_table([record("unknown")]).splitlines()
    assert "8e03978e-40d5-43dd-bc93-6894a57f9324" in line
    assert "look 2026-11-28 04:21:59Z" in line


@given(rows=st.lists(st.tuples(texts, texts, texts), max_size=4), width=st.integers(40, 200))
def test_only_elastic_columns_are_cut_and_only_as_far_as_they_must_be(rows: list[tuple[str, str, str]], width: int) -> None:
    """Every line fits, or every elastic column is at its narrowest; the other column is always whole."""
    whole, cut = table(("A", "B", "C"), rows), table(("A", "B", "C"), rows, width=width, elastic=("A", "B"))
    if max(map(len, whole.splitlines())) <= width:
        assert cut == whole
    longest = max(itertools.chain(map(len, (row[2] for row in rows)), [1]))
    assert max(map(len, cut.splitlines())) <= max(width, 8 + 8 + 4 + longest)
    assert all(line.endswith(row[2]) for line, row in zip(cut.splitlines()[1:], rows, strict=True) if row[2])
