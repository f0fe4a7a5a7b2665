"""When Redis counts as away, and when to look for it again."""

from collections.abc import Callable


class Breaker:
    """Open while Redis is away. The link closes it after a probe has succeeded and trips it when its connection fails.

    Starts open: nothing has answered yet. `jitter` returns a number in [0, 1).
    """

    def __init__(self, jitter: Callable[[], float], *, first: float = 0.25, limit: float = 5.0) -> None:
        self.open = True
        self._jitter = jitter
        self._first = first
        self._limit = limit
        self._pause = first

    def trip(self) -> float:
        """Open, and return the seconds until the next probe: `first`, doubled at each further trip up to `limit`, within a quarter."""
        self.open = True
        pause = self._pause
        self._pause = min(self._limit, pause * 2)
        return pause * (0.75 + self._jitter() / 2)

    def close(self) -> None:
        """A probe was answered: commands may go out. The schedule starts anew only once one of them `served`."""
        self.open = False

    def served(self) -> None:
        """Commands were answered in time. A server that answers probes and nothing else is thus asked ever more rarely."""
        self._pause = self._first
