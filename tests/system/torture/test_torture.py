"""Some seconds of faults at random, and the judge of such runs. `scripts/torture --minutes 30` does the same for longer."""

from collections.abc import Sequence

import pytest

from tests.system.torture.run import torture
from tests.system.torture.story import Event, Executed, Fault, Operation, Story, Told, violations

ADA, BOB = Operation("ada", "k1", 100), Operation("bob", "k1", 200)
DONE = Executed(1.0, ADA, 7)


def answer(number: int, operation: Operation = ADA) -> bytes:
    return b'{"number":%d,"caller":"%b","amount":%d}' % (number, operation.caller.encode(), operation.amount)


def told(at: float, body: bytes, operation: Operation = ADA, status: int = 201, problem: str | None = None) -> Told:
    return Told(at - 0.1, at, operation, status, body, problem, replayed=False, by="one")


def refused(at: float, problem: str, status: int = 409) -> Told:
    return told(at, b"{}", status=status, problem=problem)


def found(*events: Event, ended: Sequence[Operation] = ()) -> list[str]:
    return [what for _, what in violations(Story(list(events)), ended=ended)]


def test_a_run_in_which_all_is_well_has_no_violation() -> None:
    events = (
        refused(0.5, "request-in-progress"),
        DONE,
        refused(1.2, "outcome-unknown"),
        told(2.0, answer(7)),
        refused(2.5, "store-unavailable", 503),
        told(3.0, answer(7)),
        told(3.1, b'{"busy":true}', BOB, 429),
    )
    assert found(*events, ended=[ADA]) == []


BROKEN: dict[str, list[Event]] = {
    "executed 2 times": [DONE, Executed(2.0, ADA, 8)],
    "executed 2 times under one key": [DONE, Executed(2.0, ADA.other(), 8)],
    "another caller's": [DONE, Executed(1.0, BOB, 8), told(2.0, answer(8, BOB))],
    "another execution's": [DONE, told(2.0, answer(6))],
    "bytes that the upstream never sent": [DONE, told(2.0, b"{")],
    "an answer that nobody made": [DONE, told(2.0, b"oops", status=500)],
    "told otherwise": [DONE, told(2.0, answer(7)), refused(3.0, "outcome-unknown")],
    "told otherwise after its answer": [DONE, told(2.0, answer(7)), refused(3.0, "request-in-progress")],
    "other bytes": [DONE, told(2.0, answer(7)), told(3.0, answer(7) + b" ")],
    "a defect was told": [DONE, refused(2.0, "internal-error", 500)],
    "is stuck": [DONE, refused(3.0, "outcome-unknown")],
    "never executed": [refused(3.0, "request-in-progress")],
}


@pytest.mark.parametrize("words", BROKEN)
def test_each_broken_promise_is_seen(words: str) -> None:
    ended = [ADA] if words in {"is stuck", "never executed"} else []
    assert any(words in what for what in found(*BROKEN[words], ended=ended))


def test_an_answer_that_may_be_uncommitted_binds_nobody() -> None:
    """Within seconds of a fault of Postgres an answer may go out whose record is not there yet."""
    stalled = Fault(1.5, "Postgres stalls", unsettling=True)
    assert found(DONE, stalled, told(2.0, answer(7)), refused(3.0, "outcome-unknown")) == []


@pytest.mark.timeout(200)
async def test_a_few_seconds_of_torture_break_no_promise() -> None:
    """Always the same faults are tried; what the machine makes of them differs."""
    outcome = await torture(20261128, 6.0)
    assert not outcome.broken, "\n\n".join(outcome.broken)
    assert outcome.operations > 5
    assert outcome.faults > 3
