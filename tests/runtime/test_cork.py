"""What is held back leaves once, in order, whatever the others of its turn meet."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gateway.runtime.cork import ROOM, SMALL, Cork


class Held:
    """Notes its turn, and raises then if it is to."""

    def __init__(self, number: int, left: list[int], error: BaseException | None) -> None:
        self._number = number
        self._left = left
        self._error = error

    def turn_ended(self) -> None:
        self._left.append(self._number)
        if self._error is not None:
            raise self._error


ERRORS = st.sampled_from([None, ZeroDivisionError(), asyncio.CancelledError()])


@given(st.lists(st.tuples(ERRORS, st.integers(0, SMALL)), max_size=200))
def test_each_leaves_once_and_in_order(given_errors: list[tuple[BaseException | None, int]]) -> None:
    async def run() -> tuple[list[int], int]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        cork, left, size = Cork(), list[int](), 0
        cork.begin()
        for number, (error, bytes_held) in enumerate(given_errors):
            if cork.takes(bytes_held):
                cork.hold(Held(number, left, error), bytes_held)
                size += bytes_held
            else:
                left.append(-1)
        assert [number for number in left if number >= 0] == []
        for _ in range(len(given_errors) + 2):
            await asyncio.sleep(0)
        assert not cork.turn
        return left, size

    left, size = asyncio.run(run())
    told = [number for number in left if number >= 0]
    assert told == sorted(set(told))
    assert len(left) == len(given_errors)
    assert size <= ROOM


def test_nothing_is_held_beyond_its_room() -> None:
    async def run() -> None:
        cork = Cork()
        assert not cork.turn
        cork.begin()
        assert cork.turn
        assert not cork.takes(SMALL + 1)
        for number in range(ROOM // SMALL):
            assert cork.takes(SMALL)
            cork.hold(Held(number, [], None), SMALL)
        assert cork.takes(0)
        assert not cork.takes(1)
        cork.count(1)
        assert not cork.takes(0)
        await asyncio.sleep(0)
        assert not cork.turn
        assert cork.takes(SMALL)

    asyncio.run(run())
