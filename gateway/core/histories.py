"""Which of two Postgres servers is the former primary. Pure.

Each promotion begins a new timeline, and its number is higher. So of two servers of one cluster that both take writes the one with the
lower number has been replaced, whatever it says. Another cluster, as a restored dump makes one, has a history of its own.
"""

from typing import NamedTuple


class History(NamedTuple):
    """Of which cluster a server is, and on which timeline it writes; 0 if it is a standby."""

    system: int
    timeline: int


class Histories:
    """The latest timeline that was seen of each cluster."""

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}

    def former(self, history: History) -> str | None:
        """Why the server must not be used, in words; None if it is no former primary as far as is known."""
        latest = self._latest.get(history.system, 0)
        if not 0 < history.timeline < latest:
            return None
        return f"it is a former primary: it writes on timeline {history.timeline}, and {latest} has begun"

    def seen(self, history: History) -> bool:
        """Remember a server that is used now. True if it was promoted since the last one of its cluster."""
        latest = self._latest.get(history.system, 0)
        self._latest[history.system] = max(latest, history.timeline)
        return 0 < latest < history.timeline
