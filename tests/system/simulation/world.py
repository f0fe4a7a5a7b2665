"""Everything that one schedule consists of, and its run from the first request to the last question."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from gateway.core.decision import Label
from gateway.core.model import Status
from gateway.core.policy import OnStoreOutage
from gateway.ports import Retention
from gateway.ports.participation import Participant
from tests.system.simulation.authority import EPOCH, ReplicatedStore, at_once
from tests.system.simulation.clients import REQUEST, Client
from tests.system.simulation.gateway import Rules, SimulatedGateway
from tests.system.simulation.hot import Entries
from tests.system.simulation.journal import Journal, Violation
from tests.system.simulation.loop import SimulatedLoop
from tests.system.simulation.oracle import Oracle
from tests.system.simulation.probes import Reconciler
from tests.system.simulation.scenario import HORIZON, LEASE, REDIS_LEASE, Outage, Scenario, Stall, draw

SETTLING = 30.0
"""How long after the last fault everything must be over: leases, late statements, background releases, sweeps and backoffs."""

FINAL = {
    Label.EXECUTE,
    Label.EXECUTE_RETRY,
    Label.REEXECUTE,
    Label.REPLAY,
    Label.REPLAY_WITHOUT_BODY,
    Label.UNKNOWN,
    Label.KEY_MISUSE,
    Label.GONE,
}
"""What a key may answer once all faults are over (I4)."""


class World:
    def __init__(self, random: Random, scenario: Scenario, rules: Rules) -> None:
        self.random = random
        self.scenario = scenario
        self.loop = SimulatedLoop(random)
        self.journal = Journal(self.loop.time)
        self.authority = ReplicatedStore(lambda: EPOCH + self.loop.time(), lambda: 0.0)
        policy = scenario.policy
        participant = Participant("charge", LEASE, Retention.of(policy), policy.limits.response_body, co_commit=True)
        at_once(self.authority.participation.register([participant]))
        self.redis = Entries(self.loop.time)
        self.oracle = Oracle(self)
        self.healed = False
        self.under_way = 0
        """Statements that have not reached their store yet."""
        self._numbers = itertools.count(1)
        self._failure: Violation | None = None
        self._rules = rules
        self.gateways: list[SimulatedGateway] = []

    # ---- what the parts ask

    def next_request_id(self) -> str:
        return f"r{next(self._numbers)}"

    def current_request(self) -> str | None:
        return REQUEST.get()

    def fail(self, what: str) -> None:
        """Note a violation where raising would reach nobody."""
        self._failure = self._failure or Violation(what)

    def may_be_unprotected(self, statements: int) -> bool:
        """Whether a request may be forwarded without a record: the route says so, and nothing of it was sent to the authority."""
        return self.scenario.policy.on_store_outage is OnStoreOutage.FORWARD and statements == 0

    @property
    def sweeps(self) -> bool:
        """Whether sweepers do anything: without them, lapses are left to the requests that find them."""
        return self.scenario.sweeps or self.healed

    def since_outage(self, store: str, gateway: int) -> float | None:
        """Virtual time since when `gateway` has had its connection to `store`; None while it has none."""
        if self.outage(store, gateway) is not None:
            return None
        now = self.loop.time()
        over = [
            outage.ends
            for outage in self.scenario.outages
            if outage.store == store and outage.gateway in {None, gateway} and outage.begins <= now
        ]
        return max((min(ends, now) for ends in over), default=-100.0)

    def outage(self, store: str, gateway: int) -> Outage | None:
        """What keeps `gateway` from `store` now."""
        now = self.loop.time()
        for outage in self.scenario.outages:
            if outage.store == store and outage.gateway in {None, gateway} and outage.begins <= now < outage.ends and not self.healed:
                return outage
        return None

    # ---- the run

    async def run(self) -> None:
        """Raises Violation."""
        self.gateways = [SimulatedGateway(self, index, self._rules) for index in range(self.scenario.gateways)]
        for when in self.scenario.flushes:
            self.loop.outside(when, self.redis.flush)
        for stall in self.scenario.stalls:
            self.loop.outside(stall.begins, self._stall, stall)
        clients = [Client(self, f"client{number}").run(script) for number, script in enumerate(self.scenario.scripts)]
        running = [self.loop.create_task(client) for client in clients]
        reconciler = self.loop.create_task(Reconciler(self).run()) if self.scenario.probes else None
        await self._until(lambda: all(task.done() for task in running) or self.loop.time() > HORIZON, 2 * HORIZON)
        await self._until(lambda: not self.authority.unreplicated, 2 * HORIZON)
        self.healed = True
        self.journal.tell("world", "all faults are over")
        for task in running:
            await task
        await self._settle()
        await self._ask_again()
        await self._settle()
        self.oracle.judge_promises()
        self.oracle.judge_kept()
        if reconciler is not None:
            reconciler.cancel()
        self._check()

    def _stall(self, stall: Stall) -> None:
        if not self.healed:
            self.journal.tell("authority", "misses its standby")
            self.authority.miss_standby()
            self.loop.outside(stall.ends - stall.begins, self._end_stall, stall)

    def _end_stall(self, stall: Stall) -> None:
        self.journal.count("failover" if stall.failover else "standby back")
        self.journal.tell("authority", "fails over" if stall.failover else "has its standby back")
        self.authority.find_standby(failover=stall.failover)
        if stall.failover:
            self.oracle.forgotten(stall.begins, self.loop.time())

    async def _until(self, over: Callable[[], bool], limit: float) -> bool:
        deadline = self.loop.time() + limit
        while not over():
            self._check()
            if self.loop.time() > deadline:
                return False
            await asyncio.sleep(0.25)
        return True

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.loop.errors:
            raise Violation(f"the event loop was told of an error: {self.loop.errors[0]}")

    async def _settle(self) -> None:
        """Wait until nothing is under way any more (I4)."""
        if not await self._until(self._quiet, SETTLING):
            busy = {gateway.name: (gateway.engine.in_flight, gateway.keeper.holding) for gateway in self.gateways if gateway.busy}
            raise Violation(f"still under way {SETTLING} s after the last fault: {busy}, in progress: {self._in_progress()}")
        for gateway in self.gateways:
            gateway.check_alive()

    def _quiet(self) -> bool:
        return not any(gateway.busy for gateway in self.gateways) and not self._in_progress() and not self.under_way

    def _in_progress(self) -> list[str]:
        found = (at_once(self.authority.find(key)) for key in self.oracle.facts)
        return [record.key.key for record in found if record is not None and record.status in {Status.PENDING, Status.IN_PROGRESS}]

    async def _ask_again(self) -> None:
        """Every key reaches an answer: a replay, a fresh run, or `outcome-unknown`."""
        client = Client(self, "last")
        for key in list(self.oracle.facts):
            meaning = sorted(self.oracle.facts[key].meanings)[0]
            answer = await client.ask(self.random.choice(self.gateways), key, meaning, 5 * LEASE, cancels=False)
            if answer is not None and answer.label is Label.IN_PROGRESS:
                await asyncio.sleep(2 * REDIS_LEASE)  # a lease in Redis that nobody could take back any more ends by itself
                answer = await client.ask(self.random.choice(self.gateways), key, meaning, 5 * LEASE, cancels=False)
            for _ in range(3):
                if answer is None or answer.label is not Label.ACCEPTED:
                    break
                await self._settle()
                answer = await client.ask(self.random.choice(self.gateways), key, meaning, 5 * LEASE, cancels=False)
            if answer is None or answer.label not in FINAL:
                raise Violation(f"{key.key} has no end: {answer}")
            if self.scenario.calm and answer.refused is not None and answer.label not in {Label.KEY_MISUSE, Label.REPLAY_WITHOUT_BODY}:
                raise Violation(f"{key.key} came to {answer}, though nothing went wrong")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed ended. `violation` is None if all promises were kept."""

    seed: int
    violation: Violation | None
    journal: Journal

    def story(self) -> str:
        return f"seed {self.seed}: {self.violation or 'all promises kept'}\n{self.journal.story()}"


def simulate(seed: int, rules: Rules | None = None, scenario: Scenario | None = None) -> Outcome:
    """Run one schedule from its seed."""
    random = Random(seed)
    drawn = draw(random)
    world = World(random, scenario or drawn, rules or Rules())
    violation: Violation | None = None
    try:
        world.loop.run_until_complete(world.run())
    except Violation as found:
        violation = found
    finally:
        world.loop.dispose()
    return Outcome(seed, violation, world.journal)
