"""What happened in a run, in order, and what must be true of it. Pure: instants come in as arguments, in seconds since the run began.

The promises, as they show from outside (design of the gateway: "Promises"):

* **once**: an operation is executed at most once;
* **same answer**: whoever gets an answer of an operation gets that of its one execution, and who got it once never hears later that
  it is in progress, in doubt, or another one;
* **no swallowing**: another operation under a used key never gets the first one's answer;
* **no leak**: no answer holds what belongs to another caller;
* **not stuck**: in the end every operation that a client insists on has an answer.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CALM = 6.0
"""Seconds after a fault of Postgres, or a freeze, in which an answer may go out whose record is not committed: its settle took longer
than `settle_timeout`, as the answer's log line says. What its client is told later may then be that it is in doubt, until it is found out.
"""


PASSED_ON = {429: b'{"busy":true}', 503: b'{"proxy":"no answer"}'}
"""Answers of the upstream that are no operation's answer, and go to the client as they are."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a caller wants done once."""

    caller: str
    key: str
    amount: int

    @property
    def body(self) -> bytes:
        return json.dumps({"caller": self.caller, "amount": self.amount}).encode()

    def other(self) -> "Operation":
        """Another operation that a client sends under the same key by mistake."""
        return Operation(self.caller, self.key, self.amount + 1)


@dataclass(frozen=True, slots=True)
class Executed:
    """The upstream ran an operation; `number` is its own, and goes into the answer."""

    at: float
    operation: Operation
    number: int


@dataclass(frozen=True, slots=True)
class Told:
    """A client asked at `asked` and heard this at `at`. `problem` is the last word of a problem document's type."""

    asked: float
    at: float
    operation: Operation
    status: int
    body: bytes
    problem: str | None
    replayed: bool
    by: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was broken or mended. `unsettling`: an answer may go out uncommitted for a while."""

    at: float
    what: str
    unsettling: bool = False


Event = Executed | Told | Fault


@dataclass(slots=True)
class Story:
    """All events of a run."""

    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        self.events.append(event)

    def of(self, key: str) -> list[str]:
        """The lines about one key, among them every fault: what a person reads to find out why."""
        return [line(event) for event in self.events if isinstance(event, Fault) or event.operation.key == key]


def line(event: Event) -> str:
    match event:
        case Executed(at, operation, number):
            return f"{at:8.3f}  executed {operation} as {number}"
        case Told(asked, at, operation, status, body, problem, replayed, by):
            what = problem or body.decode("latin-1")
            return f"{at:8.3f}  {by} told {operation} (asked {asked:.3f}): {status} {what}{' (replayed)' if replayed else ''}"
        case Fault(at, what):
            return f"{at:8.3f}  ## {what}"


def violations(story: Story, *, ended: Sequence[Operation]) -> Iterator[tuple[str, str]]:
    """(key, what is wrong) for each broken promise. `ended` are the operations that their clients insisted on to the end."""
    executed: dict[Operation, list[Executed]] = defaultdict(list)
    told: dict[Operation, list[Told]] = defaultdict(list)
    unsettled = [event.at for event in story.events if isinstance(event, Fault) and event.unsettling]
    for event in story.events:
        if isinstance(event, Executed):
            executed[event.operation].append(event)
        elif isinstance(event, Told):
            told[event.operation].append(event)
    yield from _once(executed)
    for operation, answers in told.items():
        yield from _answers(operation, answers, executed)
        yield from _stays_true(operation, answers, unsettled)
    for operation in ended:
        if not any(one.status == 201 for one in told[operation]):
            yield operation.key, f"{operation} is stuck: nobody was ever told its answer"
        if not executed[operation]:
            yield operation.key, f"{operation} was never executed"


def _once(executed: Mapping[Operation, Sequence[Executed]]) -> Iterator[tuple[str, str]]:
    by_key: dict[tuple[str, str], list[Executed]] = defaultdict(list)
    for operation, runs in executed.items():
        by_key[operation.caller, operation.key] += runs
    for (_, key), runs in by_key.items():
        if len(runs) > 1:
            yield key, f"executed {len(runs)} times under one key: {[one.number for one in runs]}"


def _answers(operation: Operation, answers: Sequence[Told], executed: Mapping[Operation, Sequence[Executed]]) -> Iterator[tuple[str, str]]:
    numbers = {one.number for one in executed.get(operation, ())}
    for one in answers:
        if one.status != 201:
            if one.problem == "internal-error":
                yield operation.key, f"a defect was told: {line(one)}"
            if one.problem is None and one.body != PASSED_ON.get(one.status):
                yield operation.key, f"an answer that nobody made: {line(one)}"
            continue
        try:
            document = json.loads(one.body)
        except ValueError:
            yield operation.key, f"bytes that the upstream never sent: {line(one)}"
            continue
        if document.get("caller") != operation.caller:
            yield operation.key, f"an answer of another caller's: {line(one)}"
        elif document.get("number") not in numbers or document.get("amount") != operation.amount:
            yield operation.key, f"an answer of another execution's: {line(one)}"


def _stays_true(operation: Operation, answers: Sequence[Told], unsettled: Sequence[float]) -> Iterator[tuple[str, str]]:
    """What was asked after an answer was heard hears that answer, or that the store is away."""
    sure = [one for one in answers if one.status == 201 and not any(one.asked - CALM <= at <= one.at for at in unsettled)]
    first = min(sure, key=lambda one: one.at, default=None)
    if first is None:
        return
    for one in answers:
        if one.asked > first.at and one.status != 201 and one.problem not in _NO_WORD:
            yield operation.key, f"told otherwise after its answer was told ({line(first).strip()}): {line(one)}"
        if one.asked > first.at and one.status == 201 and one.body != first.body:
            yield operation.key, f"other bytes after its answer was told ({line(first).strip()}): {line(one)}"


_NO_WORD = frozenset({"store-unavailable", "overloaded", "too-many-connections"})
"""Refusals that say nothing of the operation."""
