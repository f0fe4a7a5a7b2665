"""What `mode: observe` has seen: by route, what enforcing would have prevented, and which requests it would have
refused. Read from the metrics.
"""

import http.client
import socket
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from gateway.config import Listener, UnixListener
from gateway.core.decision import Label

EXECUTED = frozenset({Label.EXECUTE, Label.EXECUTE_RETRY, Label.REEXECUTE})
PREVENTED: Mapping[str, frozenset[Label]] = {
    "duplicates": frozenset({Label.REPLAY, Label.REPLAY_WITHOUT_BODY}),
    "races": frozenset({Label.IN_PROGRESS}),
    "mismatches": frozenset({Label.KEY_MISUSE}),
    "doubtful": frozenset({Label.UNKNOWN}),
    "expired": frozenset({Label.GONE}),
}
"""What would have been answered from the record instead of running again."""

REFUSED: Mapping[str, frozenset[Label]] = {
    "no key": frozenset({Label.KEY_MISSING}),
    "bad key": frozenset({Label.KEY_INVALID}),
    "no principal": frozenset({Label.PRINCIPAL_MISSING}),
    "too large": frozenset({Label.BODY_TOO_LARGE}),
}
"""Requests that enforcing would have refused, since they are not what the route asks for."""

TIMEOUT = 10.0
_UNDECIDED = "undecided"
HEADINGS = ("route", "requests", "first runs", *PREVENTED, *REFUSED, _UNDECIDED)


def fetch(url: str | None, listener: Listener) -> str:
    """The page of metrics at `url`, or at the admin listener of a configuration. Raises OSError."""
    if url is None and isinstance(listener, UnixListener):
        return _fetch_unix(listener.path)
    place = url or f"http://{listener}/metrics"
    if not place.startswith(("http://", "https://")):
        raise ValueError(f"{place} is no http:// or https:// address")
    with urllib.request.urlopen(place, timeout=TIMEOUT) as response:  # noqa: S310 - the scheme was judged above
        page: bytes = response.read()
    return page.decode()


def _fetch_unix(path: str) -> str:
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(TIMEOUT)
    try:
        connection.sock.connect(path)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def observed(exposition: str) -> dict[str, Counter[Label]]:
    """The decisions about observed requests, by route, from a page of metrics. Raises ValueError if it is none."""
    found: dict[str, Counter[Label]] = defaultdict(Counter)
    for family in text_string_to_metric_families(exposition):
        if family.name != "idempotency_requests":
            continue
        for sample in family.samples:
            if sample.name.endswith("_total") and sample.labels.get("mode") == "observe":
                found[sample.labels["route"]][Label(sample.labels["decision"])] += int(sample.value)
    return dict(found)


def rows(decisions: Mapping[str, Counter[Label]]) -> list[tuple[str | int, ...]]:
    """One row a route, in the order of `HEADINGS`."""
    return [_row(route, counts) for route, counts in sorted(decisions.items())]


def _row(route: str, counts: Counter[Label]) -> tuple[str | int, ...]:
    groups = [EXECUTED, *PREVENTED.values(), *REFUSED.values()]
    sums = [sum(counts[label] for label in group) for group in groups]
    total = counts.total()
    return (route, total, *sums, total - sum(sums))


def table(lines: Iterable[tuple[str | int, ...]]) -> str:
    """A table for people; an empty one says so."""
    texts = [tuple(map(str, HEADINGS)), *(tuple(map(str, line)) for line in lines)]
    if len(texts) == 1:
        return "no route is in `mode: observe`, or none of this process' metrics speak of one"
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if not index else text.rjust(width) for index, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in texts
    )
