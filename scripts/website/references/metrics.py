"""Every metric, by its declaration (`gateway.observe.metrics`), and the values that its labels may have."""

from collections.abc import Iterable, Iterator

from gateway.core.decision import Label
from gateway.core.weak_keys import Notice
from gateway.observe import sets
from gateway.observe.metrics import Families
from gateway.observe.tallies import Distribution
from gateway.run.supervisor.merged import MergedMetrics
from scripts.website.references.markdown import code, prose, table
from scripts.website.references.markdown import page as whole

_INTRODUCTION = """
What `/metrics` on the admin listener shows, in Prometheus' text format or as OpenMetrics. Series of what is rare appear
when it first happens; what the alerts compare is there from the start. [observability.md](../observability.md) says how
to load alerts and the dashboard, [incident.md](../incident.md) what to do about each alert.
"""
_LABELS = """
Label values come from the route map and from closed sets, so that no series grows with what a client sends; what is in
none of them counts as `other`. `route` is a route's id, or `unmatched`.
"""
_MERGED = {"livesum": "the sum", "livemax": "the highest", "livemin": "the lowest"}


def page() -> str:
    """The page."""
    families = Families()
    declared = (
        (f.name, f.kind, f.label_names, f.text, "the sum" if f.mode is None else _MERGED[f.mode], f) for f in families.collector.families
    )
    rows = [
        (code(_shown(name, kind)), kind, ", ".join(map(code, labels)), f"{text}{_buckets(family)}", merged)
        for name, kind, labels, text, merged, family in declared
    ]
    of_supervisor = [(code(_shown(m.name, m.type)), m.type, "", m.documentation, "its own figure") for m in MergedMetrics().collect()]
    return whole(
        "Metrics",
        prose(_INTRODUCTION),
        "## The metrics",
        table(("metric", "type", "labels", "what it tells", "of several workers"), [*rows, *of_supervisor]),
        prose("Besides these a single process shows `process_…` of Prometheus' client library: CPU, memory, open files, start."),
        "## The labels",
        prose(_LABELS),
        table(("label", "of", "values"), _values()),
    )


def _shown(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def _buckets(family: object) -> str:
    made = getattr(family, "make")()  # noqa: B009 - each family makes what its series count with
    if not isinstance(made, Distribution):
        return ""
    return f" Buckets: {', '.join(f'{bound:g}' for bound in made.bounds)}."


def _values() -> Iterator[tuple[str, str, str]]:
    yield "`decision`", "requests", _listed(label.value for label in Label)
    yield "`mode`", "requests", _listed(sorted(sets.MODES))
    for settlement, reasons in sets.SETTLEMENTS.items():
        text = f"{_listed(reasons)}; by an answer, `status_…` of the route's lists, or `{sets.STATUS_OTHER}`"
        yield "`reason`", f"settlements, `{settlement}`", _listed(reasons) if settlement == "complete" else f"{text}; `{sets.HINTED}`"
    yield "`code_class`", "responses, exchanges", _listed(sets.CODE_CLASSES)
    for store, operations in sets.STORE_OPERATIONS.items():
        yield "`operation`", f"store `{store}`", _listed(operations)
    yield "`operation`", "batches", _listed(sets.BATCHED)
    yield "`operation`", "stale writes", _listed(sets.FENCED)
    yield "`reason`", "store errors", f"{_listed(sets.STORE_REASONS)}; of Redis, {_listed(sets.REDIS_REFUSALS)}"
    yield "`reason`", "refused connections", _listed(sets.REFUSALS)
    yield "`result`", "looks", _listed(sets.RECONCILED)
    yield "`result`", "webhooks", _listed(sets.WEBHOOK_RESULTS)
    yield "`task`", "background", f"{_listed(sets.TASKS)}; rounds: {_listed(sets.ROUNDS)}"
    yield "`kind`", "keys", _listed(sorted(notice.value for notice in Notice))
    yield "`direction`", "clock", _listed(sets.CLOCK_DIRECTIONS)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(map(code, words))
