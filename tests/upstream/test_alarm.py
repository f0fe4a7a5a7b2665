import asyncio

from gateway.alarm import Alarm


class Bell:
    """An alarm, and the instants at which it rang."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rang: list[float] = []
        self.alarm = Alarm(self.loop, lambda: self.rang.append(self.loop.time()))
        self.start = self.loop.time()

    def set(self, seconds: float) -> float:
        due = self.loop.time() + seconds
        self.alarm.set(due)
        return due


async def test_it_rings_once_at_its_time() -> None:
    """Not before, and not again."""
    bell = Bell()
    due = bell.set(0.02)
    await asyncio.sleep(0.1)
    assert len(bell.rang) == 1
    assert bell.rang[0] >= due - 0.002  # the loops round to milliseconds


async def test_moved_later_it_rings_later() -> None:
    """The loop's timer fires early, and is put to the new instant."""
    bell = Bell()
    bell.set(0.01)
    due = bell.set(0.1)
    await asyncio.sleep(0.2)
    assert len(bell.rang) == 1
    assert bell.rang[0] >= due - 0.002


async def test_moved_sooner_it_rings_sooner() -> None:
    """Well before the first instant, which then is silent."""
    bell = Bell()
    bell.set(60)
    bell.set(0.01)
    await asyncio.sleep(0.1)
    assert len(bell.rang) == 1


async def test_silenced_it_does_not_ring_until_set_again() -> None:
    """Also when the loop's timer was still on its way."""
    bell = Bell()
    bell.set(0.01)
    bell.alarm.set(None)
    await asyncio.sleep(0.05)
    assert bell.rang == []
    bell.set(0.01)
    await asyncio.sleep(0.1)
    assert len(bell.rang) == 1


async def test_stopped_it_never_rings_again() -> None:
    """Setting it has no effect any more."""
    bell = Bell()
    bell.set(0.01)
    bell.alarm.stop()
    bell.set(0.01)
    await asyncio.sleep(0.05)
    assert bell.rang == []
