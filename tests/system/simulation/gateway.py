"""One gateway of the simulation: the real engine, keeper, background work and tiered store, on simulated wires, in one process."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.background.maintenance import Background
from gateway.core.attempt_token import AttemptToken
from gateway.core.model import StoredResponse
from gateway.core.recovery_point import RecoveryPoint
from gateway.engine.dependencies import Dependencies
from gateway.engine.engine import Engine
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.engine.leases import LeaseKeeper
from gateway.ports import Recollection, Store
from gateway.ports.participation import Participant, Progress
from gateway.runtime.sealing import AesSealer
from gateway.runtime.spool import MemoryBudget
from gateway.store.cached import CachedStore
from gateway.store.replay_cache import ReplayCache
from gateway.store.tiered import TieredStore
from tests.support.requests import plan_of
from tests.system.simulation.authority import UnreliableAcceptance, UnreliableStore
from tests.system.simulation.clients import Answer, Ask, ConnectionLost, serve
from tests.system.simulation.environment import CountingObserver, SeededRandomness, VirtualClock, in_place
from tests.system.simulation.hot import SimulatedHotPath
from tests.system.simulation.loop import OUTSIDE, Life, Process
from tests.system.simulation.scenario import LEASE, REDIS_LEASE, Accident
from tests.system.simulation.upstream import SimulatedUpstream
from tests.system.simulation.wire import Wire

if TYPE_CHECKING:
    from tests.system.simulation.world import World

AUTHORITY_TIMEOUT = 0.5
SEALER = AesSealer((b"a key of the simulation, 32 bytes",))
ABANDONED = StoredResponse(408, b"Request Timeout", ((b"X-Answer", b"rebuilt"),), b"{}", 2, hashlib.sha256(b"{}").digest())
REPLAYED_FOR = 3.0
REDIS_TIMEOUT = 0.1


@dataclass(frozen=True, slots=True)
class Rules:
    """What a gateway is made of. The defaults are the product; a mutant has one of them wrong."""

    engine: type[Engine] = Engine
    keeper: type[LeaseKeeper] = LeaseKeeper
    authority: type[UnreliableStore] = UnreliableStore
    acceptance: type[UnreliableAcceptance] = UnreliableAcceptance
    tiered: type[TieredStore] = TieredStore
    hot: type[SimulatedHotPath] = SimulatedHotPath
    cached: type[CachedStore] = CachedStore
    upstream: type[SimulatedUpstream] = SimulatedUpstream
    randomness: type[SeededRandomness] = SeededRandomness


@dataclass(frozen=True, slots=True)
class Points:
    """What attempts ask of recovery points, over the gateway's own wire. Upstreams tell theirs elsewhere."""

    authority: UnreliableStore

    async def progress(self, token: AttemptToken) -> Progress | None:
        return await self.authority.progress(token)

    async def advance(self, token: AttemptToken, point: RecoveryPoint) -> Progress | None:
        raise AssertionError("no attempt tells points")

    async def register(self, participants: Sequence[Participant]) -> None:
        raise AssertionError("the world has done so")


class SimulatedGateway:
    """Starts at once. After a crash or a drain it starts anew, as another process with nothing in its memory."""

    def __init__(self, world: "World", index: int, rules: Rules) -> None:
        self.name = f"gw{index}"
        self._world = world
        self._index = index
        self._rules = rules
        self._lives = 0
        self._accidents = sorted((one for one in world.scenario.accidents if one.gateway == index), key=lambda one: one.step)
        self._steps = 0
        self._listeners: dict[asyncio.Future[Answer], None] = {}
        self._start()

    def _start(self) -> None:
        world, rules = self._world, self._rules
        self._lives += 1
        self.accepting = True
        self.process = Process(world.loop, self.name, self._step)
        clock = VirtualClock(world.loop, offset=1000.0 * self._index + 77.0 * self._lives)
        randomness = rules.randomness(world, f"{self.name}.{self._lives}")
        self.observer = CountingObserver(world, self.name)
        wire = Wire(world, self.name, "authority", self._index, world.scenario.authority, AUTHORITY_TIMEOUT)
        authority = rules.authority(world, wire, clock.boottime)
        self.tiered: TieredStore | None = None
        if world.scenario.tiered:
            hot = rules.hot(world.redis, Wire(world, self.name, "redis", self._index, world.scenario.redis, REDIS_TIMEOUT))
            self.tiered = rules.tiered(authority, hot, clock, lease_ttl=REDIS_LEASE, observer=self.observer)
        store: Store = self.tiered or authority
        remembered: Recollection | None = None
        if world.scenario.cached:
            replays = ReplayCache(1 << 20, REPLAYED_FOR, clock.boottime)
            store = cached = rules.cached(store, replays, clock, self.observer)
            remembered = cached.known
        self.keeper = rules.keeper(store, clock, self.observer, self.tiered.tick if self.tiered is not None else None)
        memory = MemoryBudget(1 << 30, offload=False)
        deps = Dependencies(
            *(store, clock, randomness, self.observer, self.keeper, memory, in_place),
            remembered=remembered,
            participation=Points(authority),
            sealer=SEALER,
            acceptance=rules.acceptance(world, authority),
            abandoned=lambda: ABANDONED,
        )
        self.upstream = rules.upstream(world, self.name)
        self.engine = rules.engine(deps, ForeignFingerprints(_no_policy, b""))
        background = Background(
            authority,
            clock,
            randomness,
            self.observer,
            connected_since=lambda: authority.connected_since() if world.sweeps else None,
            longest_lease=lambda: LEASE,
        )
        running = [self.keeper.run(), background.run_sweeper(), background.run_reaper()]
        if world.scenario.policy.accepts:
            assert self.engine.accepted is not None
            self.engine.accepted.serve([plan_of(world.scenario.policy, self.upstream)])
            running.append(self.engine.accepted.run())
        self.running = [self.process.spawn(work) for work in running]

    # ---- requests

    def accept(self, ask: Ask, heard: "asyncio.Future[Answer]") -> "asyncio.Task[Answer] | None":
        """Serve a request; `heard` gets the answer, or ConnectionLost."""
        if self.process.life is Life.CRASHED or not self.accepting:
            self._world.loop.outside(0.001, _lose, heard)
            return None
        request = ask.guarded(plan_of(self._world.scenario.policy, self.upstream))
        request.later = request.guard.policy.accepts
        task = self.process.spawn(serve(self._world, self.engine, request))
        self._listeners[heard] = None
        task.add_done_callback(lambda done: self._answer(done, heard), context=OUTSIDE)
        return task

    def _answer(self, done: "asyncio.Task[Answer]", heard: "asyncio.Future[Answer]") -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None and not isinstance(error, ConnectionLost):
            self._world.fail(f"{self.name} failed on a request: {error!r}")
        if done.cancelled() or error is not None:
            _lose(heard)
        elif not heard.done():
            heard.set_result(done.result())

    def forget(self, heard: "asyncio.Future[Answer]") -> None:
        self._listeners.pop(heard, None)

    def cancel(self, task: "asyncio.Task[Answer]") -> None:
        """The client's hang-up reaches the process, if it is still the one that served it."""
        if not task.done():
            self._world.journal.count("handler cancelled")
            task.cancel()

    # ---- accidents

    def _step(self) -> None:
        self._steps += 1
        while self._accidents and self._accidents[0].step <= self._steps:
            accident = self._accidents.pop(0)
            if self._world.healed:
                continue
            self._world.journal.count(accident.kind)
            self._world.journal.tell(self.name, "{} at its step {}, for {:.3f} s", accident.kind, self._steps, accident.seconds)
            self._befall(accident)
            return

    def _befall(self, accident: Accident) -> None:
        loop = self._world.loop
        match accident.kind:
            case "freeze":
                self.process.freeze()
                loop.outside(accident.seconds, self._thaw, self.process)
            case "crash":
                self._die()
                loop.outside(accident.seconds, self._start_again)
            case _:
                self.accepting = False
                self.process.spawn(self._drain(accident.seconds / 4))

    def _thaw(self, process: Process) -> None:
        self._world.journal.tell(self.name, "goes on")
        process.thaw()

    async def _drain(self, timeout: float) -> None:
        clean = await self.engine.drain(timeout, grace=1.0)
        if self.tiered is not None:
            await self.tiered.close(0.5)
        self._world.journal.tell(self.name, "has drained{}", "" if clean else ", not cleanly")
        self.upstream.shut = True
        self._world.loop.outside(0.2, self._stop, self.process)

    def _stop(self, process: Process) -> None:
        if process is self.process and process.life is not Life.CRASHED:
            self._die()
            self._world.loop.outside(0.3, self._start_again)

    def _die(self) -> None:
        self.process.crash()
        for heard in list(self._listeners):
            _lose(heard)

    def _start_again(self) -> None:
        if self.process.life is Life.CRASHED:
            self._world.journal.tell(self.name, "starts again")
            self._start()

    # ---- the end

    @property
    def busy(self) -> bool:
        """Whether anything of a request is left over, or the process is not itself."""
        if self.process.life is not Life.RUNNING or not self.accepting or self.engine.in_flight or self.keeper.holding:
            return True
        return len(self._world.loop.tasks_of(self.process)) > len(self.running)

    def check_alive(self) -> None:
        for task in self.running:
            if task.done():
                self._world.fail(f"a background task of {self.name} has ended: {task}")


async def _no_policy(_: bytes) -> tuple[int, str] | None:
    return None


def _lose(heard: "asyncio.Future[Answer]") -> None:
    if not heard.done():
        heard.set_exception(ConnectionLost())
