"""Several targets of one upstream, tried in turn as long as nothing was sent.

A call goes to the next target only after a proof that nothing of it was written: no connection, or no slot for one.
From the first byte on there is no second try, ever: InDoubt goes to the caller, as does a lapsed lease, which the
fence, asked again before the first byte on each connection, reports. A target that keeps failing is left alone for a
while, see `gateway.upstream.health`.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from gateway.ports import NotSent, NotSentReason, Receiver, UpstreamRequest
from gateway.upstream.client import HttpUpstream
from gateway.upstream.exchange import Exchange
from gateway.upstream.health import Health, Success

OnHealth = Callable[[str, bool], None]

_UNREACHED = {NotSentReason.DNS, NotSentReason.CONNECT_REFUSED, NotSentReason.CONNECT_TIMEOUT, NotSentReason.TLS}


class Balancer:
    """Implements `gateway.ports.Upstream` over one target or more: round robin among those that their health admits.

    Failures are those to connect and those of an exchange (a lost connection, an invalid response, silence); neither a
    status, a cancelled call, our own stop nor a full connection pool is one. A response is a success once its head is
    there; if its body fails, that is taken back and counts as one failure. `on_health(target, healthy)` is told each
    change at once; it must be cheap and not raise. Without `circuit` no call is ever refused: targets that are away are
    asked last, like others that fail.

    Targets with a free slot come before those without; if none has one, the call waits `slot_wait` at one of them and
    then asks the others once. Raises ValueError if there are no targets.
    """

    def __init__(
        self, targets: Sequence[tuple[str, HttpUpstream, Health]], on_health: OnHealth | None = None, *, circuit: bool = True
    ) -> None:
        if not targets:
            raise ValueError("an upstream needs a target")
        self._circuit = circuit
        self._targets = tuple(_Target(place, *target, on_health) for place, target in enumerate(targets))
        self._next = 0

    @property
    def open(self) -> int:
        """Connections in use or idle, and attempts to connect, over all targets."""
        return sum(target.upstream.open for target in self._targets)

    @property
    def idle(self) -> int:
        """Connections that wait for their next exchange, over all targets."""
        return sum(target.upstream.idle for target in self._targets)

    def begin(self, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver | None = None) -> Exchange | None:
        """See the port. The target whose turn it is takes the request, if it is healthy and has an idle connection."""
        targets = self._targets
        target = targets[self._next % len(targets)]
        if target.health.open:
            return None
        exchange = target.upstream.begin(request, fence, receiver, failed=target.fail, answered=target.answer)
        if exchange is not None:
            self._next = target.place + 1
        return exchange

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> Exchange:
        """See the port, and `HttpUpstream.send`. Each target is tried once at most, all within the call's own `total`.

        Raises NotSent(CIRCUIT_OPEN) if every target is away, with the seconds until the soonest is tried (0: when its
        trial has ended); else what the last target that could not be connected met, or NO_SLOT if that was all there
        was.
        """
        exchange = self.begin(request, fence)
        if exchange is None:
            return await self._send_in_turn(request, fence)
        await exchange.head()
        return exchange

    async def _send_in_turn(self, request: UpstreamRequest, fence: Callable[[], bool]) -> Exchange:
        """The long way: of targets that have no idle connection or are to be left alone, and of streamed bodies."""
        loop = asyncio.get_running_loop()
        now = started = loop.time()
        unreached: NotSent | None = None
        full: NotSent | None = None
        last: list[_Target] = []
        for target in chain(self._in_turn(), last):
            health = target.health
            failed: Callable[..., None] = target.fail
            answered = target.answer
            trial: _Trial | None = None
            if now > started and target.out_of_time(started, now):
                continue
            if target in last:
                answered = target.proved
            elif health.open:
                trial = self._trial(target, now, last)
                if trial is None:
                    continue
                failed, answered = trial.failed, trial.succeeded
            self._next = target.place + 1
            try:
                return await target.upstream.send(request, fence, started=started, patient=full is None, failed=failed, answered=answered)
            except NotSent as error:
                if error.reason in _UNREACHED:
                    failed(reached=False)
                    unreached = error
                elif error.reason is NotSentReason.NO_SLOT:
                    full = error
                else:
                    raise
                now = loop.time()
            finally:
                if trial is not None:
                    trial.abandoned()
        raise unreached or full or NotSent(NotSentReason.CIRCUIT_OPEN, self._reopens_in(now))

    async def close(self) -> None:
        """Close the idle connections and refuse new calls; exchanges that are under way go on to their end."""
        for target in self._targets:
            await target.upstream.close()

    def _in_turn(self) -> Sequence["_Target"]:
        targets = self._targets
        if len(targets) == 1:
            return targets
        turn = self._next % len(targets)
        return sorted(targets[turn:] + targets[:turn], key=_is_full)

    def _trial(self, target: "_Target", now: float, last: list["_Target"]) -> "_Trial | None":
        """A trial of a target that is to be left alone. None: not now; it is put to the last if it may be asked at all."""
        if target.health.admits(now):
            return _Trial(target)
        if not (self._circuit and target.health.away):
            last.append(target)
        return None

    def _reopens_in(self, now: float) -> float:
        return min(target.health.reopens_in(now) for target in self._targets)


class _Target:
    """One target, and the telling of its changes."""

    __slots__ = ("_name", "_on_health", "answer", "fail", "health", "place", "total", "upstream")

    def __init__(self, place: int, name: str, upstream: HttpUpstream, health: Health, on_health: OnHealth | None) -> None:
        self.place = place
        self.upstream = upstream
        self.health = health
        self.total = upstream.settings.total
        self.fail, self.answer = self.failed, self.answered  # bound once, not once a call
        self._name = name
        self._on_health = on_health

    def out_of_time(self, started: float, now: float) -> bool:
        return self.total is not None and now - started >= self.total

    def answered(self, exchange: Exchange) -> None:
        """A call that was admitted while it was healthy got its answer."""
        success = self.health.succeeded(trial=False)
        if success is not None:
            self._watch(exchange, success)

    def proved(self, exchange: Exchange) -> None:
        """A call that came after the opening got its answer: a trial, or one that no other target would take. It closes
        the circuit.
        """
        was_open = self.health.open
        success = self.health.succeeded()
        if was_open:
            self._tell(healthy=True)
        if success is not None:
            self._watch(exchange, success)

    def _watch(self, exchange: Exchange, success: Success) -> None:
        """Take back a success that ended failures, if the exchange fails after its head."""
        exchange.watch(partial(self.failed, after=success))

    def failed(self, *, trial: bool = False, reached: bool = True, after: Success | None = None) -> None:
        was_open = self.health.open
        self.health.failed(asyncio.get_running_loop().time(), trial=trial, reached=reached, after=after)
        if self.health.open and not was_open:
            self._tell(healthy=False)

    def _tell(self, *, healthy: bool) -> None:
        if self._on_health is not None:
            self._on_health(self._name, healthy)


class _Trial:
    """One admission to a target whose health is half-open. Its first outcome counts."""

    __slots__ = ("_over", "_target")

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._over = False

    def succeeded(self, exchange: Exchange) -> None:
        self._over = True
        self._target.proved(exchange)

    def failed(self, *, reached: bool = True) -> None:
        self._over = True
        self._target.failed(trial=True, reached=reached)

    def abandoned(self) -> None:
        if not self._over:
            self._target.health.abandoned()


def _is_full(target: _Target) -> bool:
    return target.upstream.full
