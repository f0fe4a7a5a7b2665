"""What a worker counts, as its supervisor asks for it, and the figures of several workers as one.

A worker's metrics live in its own memory. They share no file: one on a full disk kills each process that touches it
(SIGBUS), and a supervisor must outlive its workers. What a worker counted after it was last asked is gone with it if it
is killed, as with any process that Prometheus scrapes.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import orjson
from prometheus_client.metrics_core import Metric

from gateway.observe import tallies

Series: TypeAlias = tuple[str, tuple[str, ...]]
"""A sample's name, and its labels: names and values in turn."""


@dataclass(slots=True)
class Family:
    """One metric family's samples. `mode` says how gauges of several workers merge; None: sums that never go down."""

    kind: str
    text: str
    mode: str | None
    samples: dict[Series, float] = field(default_factory=dict)

    def add(self, series: Series, value: float) -> None:
        """Merge another worker's sample in."""
        before = self.samples.get(series)
        if before is None:
            self.samples[series] = value
        elif self.mode == "livemax":
            self.samples[series] = max(before, value)
        elif self.mode == "livemin":
            self.samples[series] = min(before, value)
        else:
            self.samples[series] = before + value


def take(families: Iterable[tallies.Family[tallies.Count] | tallies.Family[tallies.Distribution]]) -> bytes:
    """The figures of the process, packed. Only our own families: figures of a process (`process_*`) make no sense for
    several.
    """
    packed = [
        [
            family.name,
            family.kind,
            family.text,
            family.mode,
            [[name, [text for pair in labels.items() for text in pair], value] for name, labels, value in family.samples()],
        ]
        for family in families
    ]
    return orjson.dumps({"pid": os.getpid(), "families": packed})


def read(packed: bytes) -> tuple[int, dict[str, Family]]:
    """The process's id and its families, by name."""
    document = orjson.loads(packed)
    families = {
        name: Family(kind, text, mode, {(sample, tuple(labels)): value for sample, labels, value in samples})
        for name, kind, text, mode, samples in document["families"]
    }
    return document["pid"], families


def merge(into: dict[str, Family], families: Mapping[str, Family], *, lasting: bool = False) -> None:
    """Add a worker's families. `lasting`: of one that is gone, so only what never goes down."""
    for name, family in families.items():
        if lasting and family.mode is not None:
            continue
        target = into.get(name)
        if target is None:
            target = into[name] = Family(family.kind, family.text, family.mode)
        for series, value in family.samples.items():
            target.add(series, value)


def metrics_of(families: Mapping[str, Family]) -> Iterable[Metric]:
    """As the library's encoders take them."""
    for name, family in families.items():
        metric = Metric(name, family.text, family.kind)
        for (sample, labels), value in family.samples.items():
            metric.add_sample(sample, dict(zip(labels[::2], labels[1::2], strict=True)), value)
        yield metric
