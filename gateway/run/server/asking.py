"""Trial looks for people: a client of its own for each, which ends with it. So it works the same in a process that serves traffic
and in a supervisor, which has no upstreams.
"""

from collections.abc import Callable

from gateway.background.probe import Finding, Way, ask
from gateway.config import Config
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.policy import Lookup
from gateway.ports import Clock
from gateway.ports.reconciliation import Doubtful, Fence, Shown
from gateway.run.server.finding_out import host_of, make_probe, probed


class UpstreamAsker:
    """`gateway.operate.operations.Asker`, by the configuration in force."""

    def __init__(self, config: Callable[[], Config], clock: Clock) -> None:
        self._config = config
        self._clock = clock

    def asks(self, route_id: str) -> bool:
        """As `Asker.asks`."""
        return self._route(route_id) is not None

    async def ask(self, shown: Shown) -> Finding | None:
        """As `Asker.ask`."""
        found = self._route(shown.listed.route_id)
        if found is None:
            return None
        config, (route, policy) = self._config(), found
        name = probed(route) or route.upstream
        client = make_probe(config, name, policy.reconcile.pace)
        seconds = policy.reconcile.pace.timeout
        until = self._clock.boottime() + seconds
        try:
            way = Way(client, host_of(config, name), lambda: self._clock.boottime() < until, seconds, self._clock.http_date())
            return await ask(_doubt(shown), policy, way, None)
        finally:
            await client.close()

    def _route(self, route_id: str) -> tuple[Route, Policy] | None:
        """The route, if it is one whose probe changes nothing."""
        route = next((route for route in self._config().routes if route.id == route_id), None)
        policy = None if route is None else route.policy
        if route is None or policy is None or not isinstance(policy.reconcile.probe, Lookup):
            return None
        return route, policy


def _doubt(shown: Shown) -> Doubtful:
    """The record as a look sees it, which counts for nothing."""
    listed = shown.listed
    return Doubtful(
        fence=Fence(listed.key, listed.record_id, listed.version),
        owner=b"",
        route_id=listed.route_id,
        request_id=listed.request_id,
        method=listed.method,
        target=shown.target,
        attempt=listed.attempt,
        reason=listed.reason or "",
        look=listed.looks + 1,
        agreed=0,
        agreed_ago=None,
        over=listed.doubtful_until is not None and listed.doubtful_until <= shown.at,
        age=0.0,
        born_ago=0.0,
        captured=shown.captured,
    )
