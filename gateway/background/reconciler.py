"""The reconciler of one process takes due records, a few at a time, and looks at each.

There is no leader. One statement takes a record and hides it from all other processes for `hold` seconds; if the
process dies, another one takes the record then. A process takes only as many records as it has free places for looks,
so that memory is flat whatever the backlog. It counts the places for each upstream, so that a slow upstream holds up no
other. Nor do looks hold up requests: with a backlog, rounds are `BUSY` seconds apart, the looks of a round are spread
over that time, and an upstream that does not answer gets one look at a time.

One statement asks the store which of all routes have a record that is due.

No process looks at a record whose route has left every gateway's map, or was renamed. Once such a record has been due
for `ORPHANED` seconds, it becomes a dead letter, so that a person learns of it.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence

from gateway.background.look import DEAD_LETTERED, Find, Look, Looked, LookTools
from gateway.background.probe import Way
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.policy import Cancel, Lookup, Manual, Pace, Resend
from gateway.core.sent_fields import AnswerFields
from gateway.ports import Clock, Observer, Randomness, StoreUnavailable, Upstream
from gateway.ports.reconciliation import Entry, Reconciliation, Sealer

IDLE = 1.0
BUSY = 0.2

GRACE = 5.0
"""Seconds after a (re)connection in which owners who outlived an outage can settle first. After the first one, too: a
process that starts cannot know whether an outage has just ended, and five seconds are nothing to an outcome that is
looked for until it is found.
"""

MARGIN = 20.0
"""Seconds beyond a look's timeout for which the process holds a record: time to write its verdict."""

LEAVE = 2.0
"""The process tries nothing more in the last so many seconds of a hold."""

NO_UPSTREAM = ""
"""Stands for an upstream's name where looks ask no upstream."""

ORPHANED = 86400.0
"""A record of a route that this process does not have must have been due for so many seconds before the process
concludes that no gateway has the route.
"""

ORPHANS_FIRST, ORPHANS_EVERY = 60.0, 3600.0
"""Seconds, give or take a half, from the start to the first search, and between two: a fleet may restart daily, and at
once. What is found has been due for so long that it does not matter who else has just begun, too.
"""

ORPHANS_AT_ONCE = 100

TASK = "reconcile"


class Reconciler:
    """Looks after the unknown records of all routes.

    `upstreams` are clients of its own, so that looks take no connection from traffic; `hosts` gives the Host line of a
    request that no client has made. `find` is the authority's. `connected_since` gives CLOCK_BOOTTIME of the last
    (re)connection to it, None while it is away. `routes` and `upstreams` are asked anew in each round, and may change
    between two.
    """

    def __init__(
        self,
        reconciliation: Reconciliation,
        upstreams: Callable[[], Mapping[str, Upstream]],
        clock: Clock,
        randomness: Randomness,
        observer: Observer,
        *,
        sealer: Sealer | None,
        routes: Callable[[], Sequence[Route]],
        connected_since: Callable[[], float | None],
        find: Find,
        hosts: Callable[[str], bytes],
        looked: Looked | None = None,
    ) -> None:
        self._tools = LookTools(reconciliation, find, clock, randomness, observer, sealer, looked)
        self._upstreams = upstreams
        self._routes = routes
        self._connected_since = connected_since
        self._hosts = hosts
        self._looks: dict[asyncio.Task[None], str] = {}
        self._silent: set[str] = set()
        self._rested: dict[str, float] = {}
        self._rounds = 0
        self._orphans_at = clock.boottime() + self._about(ORPHANS_FIRST)
        self._longest = 0.0
        self._closing = False

    async def run(self) -> None:
        """Rounds for ever. Looks outlive its cancellation: see `close`."""
        tools, more = self._tools, False
        while not self._closing:
            await tools.clock.sleep((BUSY if more else IDLE) * (0.5 + tools.randomness.jitter()))
            try:
                more = await self.round()
            except StoreUnavailable:
                more = False
            except Exception as error:  # background work must outlive whatever one round meets
                more = False
                tools.observer.background_failed(TASK, error)

    async def round(self) -> bool:
        """Take what is due and there is place for, and begin to look. Returns whether there may be more. Raises
        `StoreUnavailable`.
        """
        since, now = self._connected_since(), self._tools.clock.boottime()
        if since is None or now < since + GRACE or self._closing:
            return False
        if now >= self._orphans_at:
            self._orphans_at = now + self._about(ORPHANS_EVERY)  # whatever becomes of it: it must not hold up looks
            with contextlib.suppress(StoreUnavailable):
                await self._find_orphans(now)
        wanted = self._wanted(now)
        if not wanted:
            self._tools.observer.background_ran(TASK)
            return bool(self._looks)
        ids = await self._tools.reconciliation.due_routes([route.id for route, _ in wanted])
        self._tools.observer.background_ran(TASK)
        due = [(route, policy) for route, policy in wanted if route.id in ids]
        self._rounds += 1
        first = self._rounds % len(due) if due else 0
        more = False
        for route, policy in due[first:] + due[:first]:  # in turn: routes may share an upstream
            more |= await self._take(route, policy)
        return more

    @property
    def looking(self) -> int:
        """Looks under way."""
        return len(self._looks)

    async def close(self, patience: float = math.inf) -> None:
        """Begin no more looks, and wait for those under way, at most their timeout and at most `patience` seconds.
        Another process takes a record whose look was cut, when its hold is over.
        """
        self._closing = True
        if self._looks:
            await asyncio.wait(set(self._looks), timeout=min(self._longest, patience))
        left = list(self._looks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _about(self, seconds: float) -> float:
        return seconds * (0.5 + self._tools.randomness.jitter())

    async def _find_orphans(self, now: float) -> None:
        """Make dead letters of records that no process looks at. After a full batch the next one follows soon."""
        ours = [route.id for route in self._routes() if route.policy is not None]
        why = Entry("manual", DEAD_LETTERED, {"after": "no_route", "why": "no gateway has its route any more"})
        found = await self._tools.reconciliation.abandon(ours, ORPHANED, ORPHANS_AT_ONCE, why)
        for route_id in found:
            self._tools.observer.reconciled(route_id, DEAD_LETTERED)
        if len(found) == ORPHANS_AT_ONCE:
            self._orphans_at = now + IDLE

    # ---- taking

    def _wanted(self, now: float) -> list[tuple[Route, Policy]]:
        """Routes with a free place for a look."""
        upstreams = self._upstreams()
        wanted: list[tuple[Route, Policy]] = []
        for route in self._routes():
            policy = route.policy
            if policy is None:
                continue
            name = _upstream_of(route, policy)
            known = name == NO_UPSTREAM or name in upstreams
            if known and self._rested.get(name, now) <= now and self._free(name, policy.reconcile.pace) > 0:
                wanted.append((route, policy))
        return wanted

    async def _take(self, route: Route, policy: Policy) -> bool:
        """Take what there is place for, and begin to look. Returns whether there may be more, for an upstream that
        answers.
        """
        name, reconcile, tools = _upstream_of(route, policy), policy.reconcile, self._tools
        upstream, free = self._upstreams().get(name), self._free(name, reconcile.pace)
        if free <= 0 or (upstream is None and name != NO_UPSTREAM):
            return free <= 0
        hold, started = reconcile.pace.timeout + MARGIN, tools.clock.boottime()
        owners = [tools.randomness.token() for _ in range(free)] if reconcile.acts else []
        taken = await tools.reconciliation.take_due(route.id, free, hold, owners)
        for n, doubt in enumerate(() if self._closing else taken):
            wait = n * BUSY / free  # all at once they would stand in the way of the requests of that moment
            way = None if upstream is None else self._way(route, upstream, started + wait + reconcile.pace.timeout, reconcile.pace)
            self._begin(Look(tools, route, policy, doubt, way, started + hold - LEAVE), name, wait)
        self._longest = max(self._longest, reconcile.pace.timeout)
        if name in self._silent:
            self._rested[name] = started + IDLE
            return False
        return bool(taken)

    def _free(self, name: str, pace: Pace) -> int:
        """Places for looks at an upstream. One that did not answer gets one look after the other, until it does."""
        places = 1 if name in self._silent else pace.concurrency
        return places - sum(1 for other in self._looks.values() if other == name)

    def _way(self, route: Route, upstream: Upstream, sends_until: float, pace: Pace) -> Way:
        """A look that was held up on its way (a stopped process) sends nothing any more: its record may be another
        attempt's by then.
        """
        clock, changes = self._tools.clock, route.answer_headers or AnswerFields()
        host = self._hosts(route.upstream if route.policy is None else _upstream_of(route, route.policy))
        return Way(upstream, host, lambda: clock.boottime() < sends_until, pace.timeout, clock.http_date(), changes.gone, changes.lines)

    # ---- looking

    def _begin(self, look: Look, name: str, wait: float) -> None:
        task = asyncio.get_running_loop().create_task(self._run(look, name, wait), name="look")
        self._looks[task] = name
        task.add_done_callback(self._looks.pop)

    async def _run(self, look: Look, name: str, wait: float) -> None:
        """One look, `wait` seconds from now."""
        answered: bool | None = None
        try:
            if wait > 0:
                await self._tools.clock.sleep(wait)
                if self._closing:
                    return  # not begun: another process takes the record when its hold is over
            answered = await look.run()
        except Exception as error:  # one look's defect is not the others'; its record is taken again when its hold is over
            self._tools.observer.background_failed(TASK, error)
        if answered is True:
            self._silent.discard(name)
            self._rested.pop(name, None)
        elif answered is False:
            self._silent.add(name)


def _upstream_of(route: Route, policy: Policy) -> str:
    """The name of the upstream that the route's probe asks; `NO_UPSTREAM` for none."""
    match policy.reconcile.probe:
        case Lookup(upstream=other) | Cancel(upstream=other):
            return other or route.upstream
        case Resend():
            return route.upstream
        case Manual():
            return NO_UPSTREAM
