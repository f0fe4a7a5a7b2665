"""A stage for the engine: the reference store, an upstream that plays its part, and a clock that nobody waits for.

Every test is a scene: it runs on a virtual-time loop and may read the transcript, which tells in order what the engine asked of whom.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from gateway.core.decision import Label
from gateway.core.fingerprint import make_fingerprinter
from gateway.core.fingerprint_policy import FingerprintPolicy
from gateway.core.model import Intent, Record, RecordKey, StoredResponse, Terms
from gateway.core.policy import OnStoreOutage, Policy
from gateway.engine.answers import Passed, Refused, Relayed, Replayed, Reply
from gateway.engine.dependencies import Dependencies
from gateway.engine.engine import Engine
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.engine.leases import LeaseKeeper
from gateway.engine.request import Client, content_of
from gateway.ports import Randomness, StoreUnavailable, WebhookExchange
from gateway.runtime.sealing import AesSealer
from gateway.runtime.spool import MemoryBudget
from gateway.store.null_observer import NullObserver
from tests.engine.store import TroubledAcceptance, TroubledStore
from tests.engine.upstream import ActingUpstream
from tests.support.memory_store.rows import Grave
from tests.support.memory_store.store import MemoryStore
from tests.support.requests import StagedRequest, plan_of
from tests.system.simulation.environment import VirtualClock, in_place
from tests.system.simulation.loop import SimulatedLoop

T = TypeVar("T")

ORDERS = 8
KEY = RecordKey("payments:none", "key-1")
POLICY = Policy(scope="payments", principal=(), lease=30.0, settle_timeout=2.0)
SEALER = AesSealer((b"a key of the tests, of 32 bytes..",))
ABANDONED = StoredResponse(408, b"Request Timeout", (), b"{}", 2, b"d" * 32)
FORWARD = replace(POLICY, on_store_outage=OnStoreOutage.FORWARD)
Scene = Callable[["Stage"], Coroutine[Any, Any, None]]


def scene(play: Scene) -> Callable[[], None]:
    """Make a test of a coroutine function that takes a Stage. Time is virtual; nothing may be left running at its end.

    It is played several times, with what is ready at the same moment running in another order each time, and the request sent at once or by
    the attempt's task.
    """

    def run() -> None:
        for order in range(ORDERS):
            loop = SimulatedLoop(Random(order))
            try:
                loop.run_until_complete(_play(play, loop, at_once=order % 2 == 0))
                assert loop.errors == []
            finally:
                loop.dispose()

    run.__name__, run.__doc__, run.__module__ = play.__name__, play.__doc__, play.__module__
    return run


async def _play(play: Scene, loop: SimulatedLoop, *, at_once: bool) -> None:
    stage = Stage(loop, at_once=at_once)
    await play(stage)
    await stage.quiet()


class NotingObserver(NullObserver):
    """Notes what the engine tells."""

    def __init__(self) -> None:
        self.settlements: list[tuple[str, str]] = []
        self.stale: list[str] = []
        self.upstream: list[int | None] = []
        self.failures: list[tuple[str, BaseException]] = []
        self.conflicts: list[str] = []
        self.lost: list[str] = []
        self.differing: list[str] = []

    def settled(self, route: str, settlement: str, reason: str) -> None:
        self.settlements.append((settlement, reason))

    def stale_write(self, operation: str) -> None:
        self.stale.append(operation)

    def upstream_answered(self, route: str, status: int | None, seconds: float) -> None:
        self.upstream.append(status)

    def upstream_unreachable(self, upstream: str, reason: str, cause: str | None) -> None: ...

    def key_noticed(self, route: str, kind: str, key_digest: str) -> None: ...

    def duplicate_seen(self, route: str, key_digest: str) -> None: ...

    def reconciled(self, route: str, result: str) -> None:
        return None

    def webhook_event(self, event: WebhookExchange) -> None:
        return None

    def work_began(self, route: str, seconds: float) -> None:
        pass

    def attempt_ended(self, attempt: object) -> None:
        pass

    def abandoned(self, route: str) -> None:
        pass

    def record_lost(self, route: str, request_id: str) -> None:
        self.lost.append(request_id)

    def answer_differs(self, route: str, request_id: str) -> None:
        self.differing.append(request_id)

    def conflicting_execution(self, route: str, request_id: str) -> None:
        self.conflicts.append(request_id)

    def background_ran(self, task: str) -> None:
        pass

    def background_failed(self, task: str, error: BaseException) -> None:
        self.failures.append((task, error))

    def request_started(self, route: str) -> None: ...

    def request_ended(self, exchange: object) -> None: ...

    def swept(self, swept: object) -> None: ...

    def reaped(self, count: int) -> None: ...

    def counted(self, counts: object) -> None: ...

    def reloaded(self, *, successful: bool) -> None: ...


class _Randomness:
    def __init__(self) -> None:
        self._given = 0

    def token(self) -> bytes:
        self._given += 1
        return self._given.to_bytes(16, "big")

    def jitter(self) -> float:
        return 0.5


class Stage:
    """One gateway (`engine`), and `another` if the scene needs two, over one store and one upstream."""

    def __init__(self, loop: SimulatedLoop, *, at_once: bool = True) -> None:
        self.loop = loop
        self.transcript: list[str] = []
        self.memory = MemoryStore(loop.time, loop.time)
        self.memory_budget = MemoryBudget(64 * 1024 * 1024, offload=False)
        self.store = TroubledStore(self, self.memory)
        self.acceptance = TroubledAcceptance(self.store, self.memory.acceptance)
        self.upstream = ActingUpstream(self, at_once=at_once)
        self.observer = NotingObserver()
        self.clock = VirtualClock(loop, offset=0.0)
        self.randomness: Randomness = _Randomness()
        self._late: list[asyncio.Task[Any]] = []
        self._requests = 0
        self._fingerprint = FingerprintPolicy()
        self._registry_error: StoreUnavailable | None = None
        self.engine, self.keeper = self.another()

    def another(self) -> tuple[Engine, LeaseKeeper]:
        keeper = LeaseKeeper(self.store, self.clock, self.observer)
        deps = Dependencies(
            self.store,
            self.clock,
            self.randomness,
            self.observer,
            keeper,
            self.memory_budget,
            in_place,
            reconciliation=self.memory.reconciliation,
            participation=self.memory.participation,
            sealer=SEALER,
            acceptance=self.acceptance,
            abandoned=lambda: ABANDONED,
        )
        return Engine(deps, ForeignFingerprints(self._lookup, b"")), keeper

    def ticking(self, error: Exception) -> LeaseKeeper:
        """A keeper whose tick always fails."""

        async def tick() -> None:
            raise error

        return LeaseKeeper(self.store, self.clock, self.observer, tick)

    def foreign_policies(self, error: StoreUnavailable | None) -> None:
        """From now on the engine computes fingerprints under another policy, and the registry knows none (or raises `error`)."""

        self._fingerprint = FingerprintPolicy(headers=("x-other",))
        self._registry_error = error

    async def _lookup(self, _: bytes) -> tuple[int, str] | None:
        if self._registry_error is not None:
            raise self._registry_error
        return None

    def intent(self) -> Intent:
        """A reserve or claim as another process would send it, for the same operation."""
        request = self.request()
        meaning = make_fingerprinter(FingerprintPolicy(), b"").fingerprint(content_of(request))
        return Intent(KEY, meaning, self.randomness.token(), Terms("charge", 30.0, 120.0), request.request_id, "POST", request.origin_form)

    def tell(self, line: str) -> None:
        self.transcript.append(line)

    def request(self, body: bytes = b"{}", policy: Policy = POLICY) -> StagedRequest:
        self._requests += 1
        plan = plan_of(replace(policy, fingerprint=self._fingerprint), self.upstream)
        return StagedRequest(f"request-{self._requests}", plan, KEY, body)

    async def ask(self, policy: Policy = POLICY, body: bytes = b"{}", engine: Engine | None = None, client: Client | None = None) -> Reply:
        """One request and its answer."""
        request = self.request(body, policy)
        request.client = client
        return await (engine or self.engine).handle(request)

    def begin(
        self, policy: Policy = POLICY, body: bytes = b"{}", engine: Engine | None = None, client: Client | None = None
    ) -> "asyncio.Task[Reply]":
        """One request, not waited for."""
        return self.loop.create_task(self.ask(policy, body, engine, client))

    def forget(self) -> None:
        """Let the record be gone, as an operator's deletion does."""
        del self.memory._rows[KEY]

    async def bury(self, tombstone: float) -> None:
        """Let the completed record be gone, with a tombstone in its place."""
        self.memory._graves[KEY.lookup_digest()] = Grave("charge", self.loop.time() + tombstone)
        self.forget()

    def later(self, seconds: float, work: Coroutine[Any, Any, object]) -> None:
        async def run() -> None:
            await asyncio.sleep(seconds)
            await work

        self._late.append(self.loop.create_task(run()))

    async def attempt_made(self) -> None:
        """Until the first attempt has just been made; whether it has begun depends on the order of things."""
        await self.clock.sleep(0.001)
        while not self.engine.in_flight:
            await self.clock.sleep(0)

    async def record(self) -> Record:
        found = await self.memory.find(KEY)
        assert found is not None
        return found

    async def quiet(self) -> None:
        """Wait until the engine owes nothing any more; an hour is enough for anything."""
        async with asyncio.timeout(3600):
            while self.engine.in_flight:
                await asyncio.sleep(1)
        await asyncio.gather(*self._late)
        assert self.keeper.holding == 0

    async def whole(self, reply: Reply) -> bytes:
        """The body of an answer of any size, as its client gets it."""
        assert isinstance(reply.answer, Passed | Replayed)
        body = reply.answer.body
        if isinstance(body, bytes):
            return body
        pieces = [piece async for piece in body.pieces()]
        body.close()
        return b"".join(pieces)


def refused(reply: Reply) -> tuple[int, str]:
    """The status and word of a refusal."""
    assert isinstance(reply.answer, Refused)
    return reply.answer.final_status, reply.answer.problem.value.slug


def told(reply: Reply) -> tuple[Label, int, bytes]:
    """The label, status and body of an upstream's answer, first or replayed."""
    assert isinstance(reply.answer, Passed | Replayed)
    assert isinstance(reply.answer.body, bytes)
    return reply.label, reply.answer.status, reply.answer.body


def relayed(reply: Reply) -> AsyncIterator[bytes]:
    assert isinstance(reply.answer, Relayed)
    return reply.answer.body.pieces()
