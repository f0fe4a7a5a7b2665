"""Plain counters, and the metric families that they make up.

An event loop's thread counts, without a lock or a check of labels; any thread may read. What is read of one tally was true at some
instant; two tallies need not be of the same one, as ever with Prometheus.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

GaugeMode: TypeAlias = Literal["livesum", "livemax", "livemin"]
"""How the gauges of several workers merge: dead workers do not count in any of these."""

Sample: TypeAlias = tuple[str, tuple[tuple[str, str], ...], float]
"""What comes after the family's name, labels besides those of the series, and the value."""


class Count:
    """A sum that never goes down, or a gauge. Where every request counts, `value` is raised in place."""

    __slots__ = ("suffix", "value")

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.value: float = 0

    def inc(self, by: float = 1) -> None:
        self.value += by

    def set(self, value: float) -> None:
        self.value = float(value)

    def samples(self) -> Iterable[Sample]:
        return ((self.suffix, (), self.value),)


class Distribution:
    """How many values lay at or below each bound and above the one before it, the last of them without a bound; and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self) -> Iterable[Sample]:
        total, below, counts = self.sum, 0, self.counts[:]
        for bound, count in zip((*self.bounds, float("inf")), counts, strict=True):
            below += count
            yield "_bucket", (("le", _bound_text(bound)),), below
        yield "_count", (), below
        yield "_sum", (), total


def _bound_text(bound: float) -> str:
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]  # the library leaves it untyped
    return text


class Tally(Protocol):
    """What one series counts with."""

    def samples(self) -> Iterable[Sample]: ...


T = TypeVar("T", bound=Tally)


@dataclass(slots=True)
class Family(Generic[T]):
    """The series of one name, by the values of its labels. `mode` is that of gauges, None else."""

    name: str
    kind: str
    text: str
    mode: GaugeMode | None
    label_names: tuple[str, ...]
    make: Callable[[], T]
    series: dict[tuple[str, ...], T] = field(default_factory=dict)

    def labels(self, *values: str) -> T:
        """The series with these labels; it is there from now on."""
        found = self.series.get(values)
        if found is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}")
            found = self.series[values] = self.make()
        return found

    def remove(self, *values: str) -> None:
        """Forget a series, if it is there."""
        self.series.pop(values, None)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """All values: names, labels, figures. Safe to call from any thread."""
        for values, tally in self.series.copy().items():
            labels = tuple(zip(self.label_names, values, strict=True))
            for suffix, more, value in tally.samples():
                yield self.name + suffix, dict((*labels, *more)), value


class FamilyCollector(Collector):
    """Families as the library's encoders take them, in the order in which they were added."""

    def __init__(self) -> None:
        self.families: list[Family[Count] | Family[Distribution]] = []

    def collect(self) -> Iterable[Metric]:
        for family in self.families:
            metric = Metric(family.name, family.text, family.kind)
            for name, labels, value in family.samples():
                metric.add_sample(name, labels, value)
            yield metric
