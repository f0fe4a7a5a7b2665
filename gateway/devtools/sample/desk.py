"""Where the sample executes: now or later, once or each time, whether its client is still there or not."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from gateway.devtools.sample.events import Events
from gateway.devtools.sample.ledger import Charge, Ledger, OperationRefused, Outcome, Refund
from gateway.devtools.sample.responses import error_body
from gateway.devtools.sample.variants import Variant

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Order:
    """Something to execute: `book` does it, or raises `OperationRefused`, an outcome like any other. `kind` is charge or refund."""

    kind: str
    key: str | None
    reference: str | None
    book: Callable[[], Charge | Refund]


class Desk:
    """What stands between requests and books. `deduplicate` holds for requests that do not say otherwise themselves."""

    def __init__(self, ledger: Ledger, events: Events, *, deduplicate: bool = False) -> None:
        self.ledger = ledger
        self._events = events
        self._deduplicate = deduplicate
        self._arrivals = 0
        self._cancelled: dict[str, int] = {}
        self._running: Counter[str] = Counter()
        self._met: set[str] = set()
        self._hidden: dict[str, int] = {}
        self._lookups_down = self._all_down = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- executing

    def arrived(self, key: str | None, variant: Variant) -> tuple[Outcome | None, bool]:
        """The outcome with which a deduplicating request is answered instead of being executed, and whether one came before under its key.

        Raises OperationRefused (409) while that one still runs.
        """
        if variant.down:
            self.go_down(variant.down, everything=False)
        if key is None or not (self._deduplicate if variant.deduplicate is None else variant.deduplicate):
            return None, False
        if self._running[key]:
            raise OperationRefused(409, "in_progress", "a request with this key is being executed")
        met = key in self._met
        self._met.add(key)
        return self.ledger.outcomes.get(key), met

    def start(self, order: Order, variant: Variant) -> asyncio.Task[Outcome]:
        """Execute in a task of the desk's own, which no client's going away ends."""
        self._arrivals += 1
        if order.key is not None:
            self._running[order.key] += 1
        return self._own(self._execute(order, variant, self._arrivals))

    async def _execute(self, order: Order, variant: Variant, arrival: int) -> Outcome:
        try:
            await asyncio.sleep(variant.execute_after)
            if order.key is not None and (arrival <= self._cancelled.get(order.key, 0) or order.key in self.ledger.cancelled):
                return Outcome(409, error_body("cancelled", "this operation was cancelled before it was executed"))
            outcome = self._book(order)
            if order.key is not None and variant.hide:
                self._hidden[order.key] = variant.hide
            if variant.webhook is not None:
                word = "succeeded" if outcome.status < 400 else "failed"
                data = {"idempotency_key": order.key, "reference": order.reference, "status": outcome.status, "object": outcome.body}
                self._events.send(f"{order.kind}.{word}", data, variant.webhook)
            await asyncio.sleep(variant.delay)
            return outcome
        finally:
            if order.key is not None:
                self._running[order.key] -= 1

    def _book(self, order: Order) -> Outcome:
        """What the books do not allow was executed too: its answer is final."""
        try:
            outcome = Outcome(201, {**asdict(order.book()), "status": "succeeded"})
        except OperationRefused as refused:
            outcome = Outcome(refused.status, error_body(refused.code, refused.message))
        if order.key is not None:
            self.ledger.note(order.key, outcome)
        return outcome

    def cancel(self, key: str, *, for_good: bool) -> Outcome | None:
        """The outcome of what was executed under `key`; None: nothing was, and what has arrived never will be. `for_good`: nor will what
        arrives later.
        """
        if (done := self.ledger.outcomes.get(key)) is not None:
            return done
        self._cancelled[key] = self._arrivals
        if for_good:
            self.ledger.cancel(key)
        return None

    # ---- looking

    def look(self, key: str) -> tuple[int, Outcome | None]:
        """What a lookup is told of a key: how often it was executed and the first outcome; of a hidden one nothing, as often as was asked.

        The running are not told of: they are not executed yet.
        """
        if (left := self._hidden.get(key, 0)) > 0:
            self._hidden[key] = left - 1
            return 0, None
        return self.ledger.executions[key], self.ledger.outcomes.get(key)

    def go_down(self, seconds: float, *, everything: bool) -> None:
        """Be away from now on: for lookups, or for all. 0 ends it."""
        until = asyncio.get_running_loop().time() + seconds
        if everything:
            self._all_down = until
        else:
            self._lookups_down = until

    def require_up(self, *, lookup: bool) -> None:
        """Raises OperationRefused (503) while the sample is away."""
        if asyncio.get_running_loop().time() < max(self._all_down, self._lookups_down if lookup else 0.0):
            raise OperationRefused(503, "down", "the sample was asked to be away for a while")

    # ---- tasks

    def _own(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """What has not been executed yet never will be."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._events.close()
