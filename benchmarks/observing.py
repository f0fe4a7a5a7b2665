"""What it costs to count a request and to write its line in the access log: CPU in µs, for the events of one new key.

python -m benchmarks.observing [--rounds 7]
"""

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import uvloop

from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.policy import Policy, Route
from gateway.core.principal_source import HeaderPrincipal
from gateway.core.scope import Scope
from gateway.core.trace_context import Trace
from gateway.observe import MetricsObserver
from gateway.observe.accesslog import access_line

REQUESTS = 10_000
ROUTE = Route("create-charge", "/v1/charges", "payments", frozenset({"POST"}), Policy("charges", (HeaderPrincipal("Authorization"),)))


class Exchange(NamedTuple):
    """`FinishedRequest` as a value."""

    request_id: str
    route: str
    mode: str
    decision: Label
    method: str
    status: int
    total_seconds: float
    store_seconds: float = 0.0
    upstream_seconds: float | None = None
    upstream_status: int | None = None
    settlement: str | None = None
    reason: str | None = None
    key_digest: str | None = None
    attempt: int | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    client_gone: bool = False
    client_address: str | None = None
    scope: Scope | None = None
    fields: Fields = Fields(())
    started: float = 0.0
    upstream_started: float | None = None
    original: str | None = None
    trace: Trace | None = None
    trace_id: str | None = None


def exchanges() -> list[Exchange]:
    """Requests that differ in what differs between requests."""
    common = Exchange("", "create-charge", "enforce", Label.EXECUTE, "POST", 201, 0.0, settlement="complete", reason="responded", attempt=1)
    return [
        common._replace(
            request_id=f"{number:032x}",
            total_seconds=0.0100001 + number / 1e6,
            store_seconds=0.004 + number / 3e6,
            upstream_seconds=0.002 + number / 7e6,
            upstream_status=201,
            key_digest=f"{number:016x}",
            request_bytes=200 + number % 50,
            response_bytes=400 + number % 50,
            client_address="127.0.0.1",
            scope=Scope("charges:header.rn4Hlcce9Os_5GhUzcTOylSE0nlKTnVpVYS0uOmZL0M"),
            trace_id=f"{number + 1:032x}",
        )
        for number in range(REQUESTS)
    ]


def count_one(observer: MetricsObserver, exchange: Exchange) -> None:
    """All that the observer is told of one new key, whose batches it has for itself."""
    observer.request_started("create-charge")
    observer.store_operation("redis", "acquire", 0.0004)
    observer.store_batch("redis", 1)
    observer.store_operation("postgres", "reserve", 0.002)
    observer.store_batch("reserve", 1)
    observer.upstream_answered("create-charge", 201, 0.002)
    observer.store_operation("postgres", "complete", 0.002)
    observer.store_batch("complete", 1)
    observer.settled("create-charge", "complete", "responded")
    observer.store_operation("redis", "complete", 0.0004)
    observer.request_ended(exchange)


def timed(work: Callable[[Exchange], object], given: list[Exchange]) -> float:
    """µs of CPU for each."""
    started = time.process_time()
    for exchange in given:
        work(exchange)
    return (time.process_time() - started) / len(given) * 1e6


async def logged(observer: MetricsObserver, given: list[Exchange], together: int) -> float:
    """µs of CPU for each, counting, line and writing, with so many requests that end in one turn of the loop."""
    started = time.process_time()
    for first in range(0, len(given), together):
        for exchange in given[first : first + together]:
            observer.request_ended(exchange)
        await asyncio.sleep(0)
    return (time.process_time() - started) / len(given) * 1e6


async def run(rounds: int) -> None:
    given, null = exchanges(), os.open("/dev/null", os.O_WRONLY)
    silent, loud = MetricsObserver([ROUTE], access_log_fd=None), MetricsObserver([ROUTE], access_log_fd=null)
    figures: dict[str, list[float]] = {}
    for _ in range(rounds):
        figures.setdefault("all events of a new key, no access log", []).append(timed(lambda one: count_one(silent, one), given))
        figures.setdefault("the end of a request, no access log", []).append(timed(silent.request_ended, given))
        figures.setdefault("the line of a request", []).append(timed(access_line, given))
        for together in (1, 8):
            name = f"the end of a request, line and writing, {together} at a time"
            figures.setdefault(name, []).append(await logged(loud, given, together))
    for name, found in figures.items():
        print(f"{name:64} {min(found):6.2f} us at best of {rounds}, {sorted(found)[rounds // 2]:6.2f} in the middle")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    uvloop.run(run(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
