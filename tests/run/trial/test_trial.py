"""What a trial run has seen, as a table."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import Label
from gateway.trial import HEADINGS, observed, rows, table

PAGE = """# HELP idempotency_requests_total Finished requests.
# TYPE idempotency_requests_total counter
idempotency_requests_total{route="pay",mode="observe",decision="execute"} 90.0
idempotency_requests_total{route="pay",mode="observe",decision="replay"} 7.0
idempotency_requests_total{route="pay",mode="observe",decision="in_progress"} 2.0
idempotency_requests_total{route="pay",mode="observe",decision="key_misuse"} 1.0
idempotency_requests_total{route="pay",mode="observe",decision="key_missing"} 40.0
idempotency_requests_total{route="pay",mode="off",decision="refused_target"} 5.0
idempotency_requests_total{route="other",mode="enforce",decision="execute"} 3.0
# HELP idempotency_zombies_total Leases.
# TYPE idempotency_zombies_total counter
idempotency_zombies_total{route="pay"} 0.0
"""


def test_a_page_of_metrics_becomes_a_row_for_each_observed_route() -> None:
    """Duplicates, races and mismatches that enforcing prevents; requests it refuses; other modes do not count."""
    (row,) = rows(observed(PAGE))
    told = dict(zip(HEADINGS, row, strict=True))
    assert (told["route"], told["requests"], told["first runs"]) == ("pay", 140, 90)
    assert (told["duplicates"], told["races"], told["mismatches"], told["no key"], told["undecided"]) == (7, 2, 1, 40, 0)


def test_the_table_is_for_people() -> None:
    """Headings and one line a route; nothing observed is said in words."""
    lines = table(rows(observed(PAGE))).splitlines()
    assert lines[0].split()[0] == "route"
    assert len(lines) == 2
    assert "observe" in table([])


def test_what_is_no_page_of_metrics_is_refused() -> None:
    """An error page of some proxy is not zero duplicates."""
    with pytest.raises(ValueError, match=r".+"):
        observed("<html>502</html> {")


@given(st.dictionaries(st.sampled_from(list(Label)), st.integers(0, 10**6)))
def test_every_request_is_in_one_column(counts: dict[Label, int]) -> None:
    """The columns add up to the number of requests, whatever was decided."""
    (row,) = rows({"pay": Counter(counts)})
    numbers = [number for number in row[2:] if isinstance(number, int)]
    assert row[1] == sum(numbers) == sum(counts.values())
