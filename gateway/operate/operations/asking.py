"""The port of a trial look: the upstream is asked, and the record stays as it is."""

from typing import Protocol

from gateway.background.probe import Finding
from gateway.ports.reconciliation import Shown


class Asker(Protocol):
    """Asks upstreams, by the `lookup` of a record's route."""

    def asks(self, route_id: str) -> bool:
        """Whether the route has a lookup."""
        ...

    async def ask(self, shown: Shown) -> Finding | None:
        """Look once. None: its route has no lookup."""
        ...
