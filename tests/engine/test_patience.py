"""One timer for all who wait for a settle: each is called in its time, and not once it has called it off."""

from functools import partial
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.patience import Patience
from tests.system.simulation.loop import SimulatedLoop

WAITS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.none() | st.integers(0, 30)), max_size=12)


@given(WAITS, st.integers(0, 7))
def test_each_is_called_in_its_time(waits: list[tuple[int, int, int | None]], order: int) -> None:
    """Each begins at an instant, waits so long, and is called off some time later, or never."""
    loop, called = SimulatedLoop(Random(order)), list[tuple[int, float]]()
    patience = Patience()

    async def play() -> None:
        for who, (begins, seconds, _) in enumerate(waits):
            loop.call_at(begins, patience.wait, who, float(seconds), partial(note, who))
        for who, (begins, _, after) in enumerate(waits):
            if after is not None:
                loop.call_at(begins + after + 0.5, patience.end, who)
        done = loop.create_future()
        loop.call_at(100.0, done.set_result, None)
        await done

    def note(who: int) -> None:
        called.append((who, loop.time()))

    try:
        loop.run_until_complete(play())
        assert loop.errors == []
    finally:
        loop.dispose()
    expected = [
        (who, float(begins + seconds)) for who, (begins, seconds, after) in enumerate(waits) if after is None or after + 0.5 > seconds
    ]
    assert sorted(called) == expected


def test_a_defect_in_one_call_is_not_the_others() -> None:
    loop, called = SimulatedLoop(Random(0)), list[str]()
    patience = Patience()

    def fails() -> None:
        raise ZeroDivisionError

    async def play() -> None:
        patience.wait("one", 1.0, fails)
        patience.wait("other", 1.0, partial(called.append, "other"))
        done = loop.create_future()
        loop.call_at(3.0, done.set_result, None)
        await done

    try:
        loop.run_until_complete(play())
        assert [type(error["exception"]) for error in loop.errors] == [ZeroDivisionError]
        assert called == ["other"]
    finally:
        loop.dispose()


def test_the_last_wait_counts() -> None:
    loop, called = SimulatedLoop(Random(0)), list[tuple[str, float]]()
    patience = Patience()

    async def play() -> None:
        patience.wait("who", 5.0, lambda: called.append(("first", loop.time())))
        patience.wait("who", 2.0, lambda: called.append(("second", loop.time())))
        done = loop.create_future()
        loop.call_at(9.0, done.set_result, None)
        await done

    try:
        loop.run_until_complete(play())
        assert called == [("second", 2.0)]
    finally:
        loop.dispose()
