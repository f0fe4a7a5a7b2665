"""Plain tallies show what prometheus-client's own counters would."""

import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, enable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from gateway.observe.tallies import Count, Distribution, Family, FamilyCollector

BOUNDS = (0.001, 0.005, 1.0, 10.0)
LABELS = st.sampled_from(["a", 'quo"ted', "line\nbreak", "back\\slash", "ünï", ""])
VALUES = st.sampled_from([*BOUNDS, 0.0, 1e-9, 0.0010000001, 9.999, 11.0, 1e300]) | st.floats(0, 100)


@given(events=st.lists(st.tuples(st.sampled_from(["count", "observe", "set"]), LABELS, LABELS, VALUES), max_size=40))
def test_they_show_what_the_library_shows(events: list[tuple[str, str, str, float]]) -> None:
    """After any counts, observations and settings, in both formats."""
    counts = Family("one", "counter", "Help \\ of\none.", None, ("x", "y"), partial(Count, "_total"))
    spread = Family("two", "histogram", "Help.", None, ("x", "y"), partial(Distribution, BOUNDS))
    levels = Family("three", "gauge", "Help.", "livemax", ("x", "y"), partial(Count, ""))
    collector = FamilyCollector()
    collector.families = [counts, spread, levels]
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    ours.register(collector)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped
    counter = Counter("one", "Help \\ of\none.", ["x", "y"], registry=theirs)
    histogram = Histogram("two", "Help.", ["x", "y"], registry=theirs, buckets=BOUNDS)
    gauge = Gauge("three", "Help.", ["x", "y"], registry=theirs)
    for kind, x, y, value in events:
        match kind:
            case "count":
                counts.labels(x, y).inc(value)
                counter.labels(x, y).inc(value)
            case "observe":
                spread.labels(x, y).observe(value)
                histogram.labels(x, y).observe(value)
            case _:
                levels.labels(x, y).set(value)
                gauge.labels(x, y).set(value)
    assert generate_latest(ours) == generate_latest(theirs)
    assert openmetrics(ours) == openmetrics(theirs)  # type: ignore[no-untyped-call]  # as above
    enable_created_metrics()  # type: ignore[no-untyped-call]  # as above


def test_a_series_has_all_labels_of_its_family() -> None:
    """One value too few is a mistake of the code, and told at once."""
    family = Family("one", "counter", "Help.", None, ("x", "y"), partial(Count, "_total"))
    with pytest.raises(ValueError, match="has the labels"):
        family.labels("only")


def test_a_scrape_from_another_thread_does_not_mind_new_series() -> None:
    """Series appear while a thread reads: it shows those that were there, and each distribution's count is that of its last bucket."""
    family = Family("one", "histogram", "Help.", None, ("x",), partial(Distribution, BOUNDS))
    scraped: list[int] = []
    stop = threading.Event()

    def scrape() -> None:
        while not stop.is_set():
            figures: dict[tuple[str, str], dict[str, float]] = {}
            for name, labels, value in family.samples():
                figures.setdefault((name, labels["x"]), {})[labels.get("le", "")] = value
            for (name, x), values in figures.items():
                assert name != "one_count" or values[""] == figures["one_bucket", x]["+Inf"]
            scraped.append(len(figures))

    thread = threading.Thread(target=scrape)
    thread.start()
    for number in range(20_000):
        family.labels(str(number % 3000)).observe(number % 7)
    stop.set()
    thread.join(30)
    assert scraped
    assert max(scraped) <= 9000
