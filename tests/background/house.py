"""A house for the reconciler: real Postgres, a bank on a real socket that executes as told, and time that passes on request."""

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from gateway.background.reconciler import Reconciler
from gateway.core.model import Intent, Lease, Record, RecordKey, Terms
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.policy import (
    AnswerPlan,
    Cancel,
    Condition,
    Lookup,
    Pace,
    Probe,
    Reconcile,
    RequestTemplate,
    Resend,
    Rule,
    Verdict,
)
from gateway.core.reconcile.policy import (
    Test as Is,
)
from gateway.ports import Retention, Upstream
from gateway.runtime.sealing import AesSealer, pack_request
from gateway.runtime.system import SystemClock, SystemRandomness
from gateway.store.postgres import PostgresStore
from gateway.upstream import HttpUpstream, UpstreamSettings
from tests.engine.stage import NotingObserver
from tests.store.contract.harness import age_records, fingerprint, fresh_key, response
from tests.support.upstream import CountingUpstream, Exchange

ROUTE = "create-charge"
MAX_EXECUTION = 60.0
KEPT = Retention(3600.0)
SEALER = AesSealer((b"a secret of the tests",))

EXECUTED = Rule(
    Verdict.EXECUTED,
    frozenset({200}),
    (Condition("/charges/0/status", Is.EQUALS, ("succeeded", "failed")),),
    AnswerPlan(201, (("X-Source", "lookup"),), pointer="/charges/0"),
)
NOT_EXECUTED = Rule(Verdict.NOT_EXECUTED, frozenset({200}), (Condition("/charges", Is.EMPTY),))
LOOKUP = Lookup(
    RequestTemplate("GET", "/v1/charges?idempotency_key={key}&order={captured.order}", (("Authorization", "Bearer of-the-gateway"),)),
    (EXECUTED, NOT_EXECUTED),
)
CANCEL = Cancel(
    RequestTemplate("POST", "/v1/charges/cancel", (("Content-Type", "application/json"),), '{"idempotency_key": "{key}"}'),
    (
        Rule(Verdict.NOT_EXECUTED, frozenset({200}), (Condition("/cancelled", Is.EQUALS, (True,)),)),
        Rule(Verdict.EXECUTED, frozenset({409}), (), AnswerPlan(201, pointer="/charge")),
    ),
)
PACE = Pace(looks=2, apart=30.0, first=5.0, longest=60.0, attempts=6, max_age=7200.0, timeout=5.0, concurrency=4)


def policy(probe: Probe = LOOKUP, pace: Pace = PACE, **fields: Any) -> Policy:
    return Policy("payments", (), reconcile=Reconcile(probe, pace, (("order", "/order"),)), max_execution=MAX_EXECUTION, **fields)


def route(probe: Probe = LOOKUP, pace: Pace = PACE, name: str = ROUTE, upstream: str = "bank", **fields: Any) -> Route:
    return Route(name, "/v1/charges", upstream, frozenset({"POST"}), policy(probe, pace, **fields))


@dataclass(slots=True)
class Bank:
    """A bank's ledger by idempotency key. It deduplicates nothing unless told, and shows what it executed unless it lies."""

    charges: dict[str, dict[str, Any]] = field(default_factory=dict)
    executions: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    lookups: list[str] = field(default_factory=list)
    lies: int = 0
    down: bool = False
    deduplicates: bool = False
    busy: int = 0
    answers: bool = True
    refuses: int | None = None
    status: str = "succeeded"
    gate: asyncio.Event | None = None
    looking: int = 0
    most: int = 0

    def execute(self, key: str) -> dict[str, Any]:
        """Book it; called by a request, or later by whoever plays the slow bank."""
        self.executions[key] = self.executions.get(key, 0) + 1
        charge = {"id": f"ch_{len(self.charges) + 1}", "key": key, "status": self.status, "amount": 10.50}
        return self.charges.setdefault(key, charge)

    async def behave(self, exchange: Exchange) -> None:
        seen = exchange.seen
        if self.down:
            exchange.hang_up()
        elif self.refuses is not None:
            await exchange.answer(self.refuses, b'{"error": "refused"}')
        elif seen.method == b"GET":
            self.looking += 1
            self.most = max(self.most, self.looking)
            try:
                await self._look_up(exchange)
            finally:
                self.looking -= 1
        elif seen.target.endswith(b"/cancel"):
            await self._cancel(exchange)
        else:
            await self._charge(exchange)

    async def _look_up(self, exchange: Exchange) -> None:
        key = exchange.seen.target.decode().partition("idempotency_key=")[2].partition("&")[0]
        self.lookups.append(key)
        shown = [self.charges[key]] if key in self.charges and self.lies == 0 else []
        self.lies = max(0, self.lies - 1)
        if self.gate is not None:
            await self.gate.wait()
        await exchange.answer(200, json.dumps({"charges": shown}).encode())

    async def _cancel(self, exchange: Exchange) -> None:
        key = json.loads(exchange.seen.body)["idempotency_key"]
        if key in self.charges:
            await exchange.answer(409, json.dumps({"charge": self.charges[key]}).encode())
        else:
            self.cancelled.add(key)
            await exchange.answer(200, b'{"cancelled": true}')

    async def _charge(self, exchange: Exchange) -> None:
        key = (exchange.seen.value("idempotency-key") or b"").decode()
        if self.busy:
            self.busy -= 1
            await exchange.answer(409, b'{"error": "still at it"}')
            return
        charge = self.charges[key] if self.deduplicates and key in self.charges else self.execute(key)
        if self.answers:
            await exchange.answer(201, json.dumps(charge).encode(), fields=(b"Set-Cookie: session=1", b"X-Bank: yes"))
        else:
            exchange.hang_up()


class Noting(NotingObserver):
    """Notes the steps of finding out."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def reconciled(self, route: str, result: str) -> None:
        self.steps.append(result)


class Skewed(SystemClock):
    """The system's clock, put forward on request."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.ahead


@dataclass(slots=True)
class House:
    """One database and one bank. Reconcilers are made as needed."""

    dsn: str
    store: PostgresStore
    bank: Bank
    server: CountingUpstream
    clock: Skewed = field(default_factory=Skewed)
    observer: Noting = field(default_factory=Noting)
    since: float | None = 0.0
    reconcilers: list[Reconciler] = field(default_factory=list)
    clients: list[HttpUpstream] = field(default_factory=list)
    looked: list[tuple[str, str, str, float]] = field(default_factory=list)

    def client(self, port: int | None = None, *, connections: int = 64) -> HttpUpstream:
        url = f"http://127.0.0.1:{port or self.server.port}"
        client = HttpUpstream(UpstreamSettings(url, keepalive=0.0, max_connections=connections, slot_wait=10.0))
        self.clients.append(client)
        return client

    def reconciler(
        self, *routes: Route, store: PostgresStore | None = None, upstreams: dict[str, Upstream] | None = None, sealed: bool = True
    ) -> Reconciler:
        known, over = routes or (route(),), store or self.store
        clients: dict[str, Upstream] = upstreams or {"bank": self.client()}
        made = Reconciler(
            over.reconciliation,
            lambda: clients,
            self.clock,
            SystemRandomness(),
            self.observer,
            sealer=SEALER if sealed else None,
            routes=lambda: known,
            connected_since=lambda: self.since,
            find=over.find,
            hosts=lambda _: b"bank.test",
            looked=lambda *told: self.looked.append(told),
        )
        self.reconcilers.append(made)
        return made

    async def close(self) -> None:
        for reconciler in self.reconcilers:
            await reconciler.close()
        for client in self.clients:
            await client.close()
        await self.server.stop()

    async def pass_time(self, seconds: float) -> None:
        """On the database's clock and on the process's."""
        self.clock.ahead += seconds
        await age_records(self.dsn, seconds)

    # ---- records

    def intent(self, key: RecordKey | None = None, name: str = ROUTE, *, reexecute: bool = False) -> Intent:
        key = key or fresh_key()
        packed = pack_request(b"POST", b"/v1/charges", self.fields(key), b'{"order":"o/1"}')
        return Intent(
            key,
            fingerprint(),
            secrets.token_bytes(16),
            Terms(name, 30.0, MAX_EXECUTION, reconcilable=True, reexecute=reexecute),
            "request-1",
            "POST",
            b"/v1/charges",
            captured={"key": key.key, "order": "o/1"},
            sealed=SEALER.seal(packed, key.lookup_digest()),
        )

    def fields(self, key: RecordKey) -> tuple[tuple[bytes, bytes], ...]:
        return ((b"Host", b"api.test"), (b"Content-Type", b"application/json"), (b"Idempotency-Key", key.key.encode()))

    async def doubted(self, name: str = ROUTE, wanted: Intent | None = None) -> Lease:
        """A record in doubt, nothing of it at the bank."""
        lease = await self.store.reserve(wanted or self.intent(name=name))
        assert isinstance(lease, Lease)
        await self.store.doubt(lease, "upstream_timeout")
        return lease

    async def due(self, **fields: Any) -> Lease:
        """One in doubt whose upstream has surely finished."""
        lease = await self.doubted(**fields)
        await self.pass_time(30.0 + MAX_EXECUTION + 1)
        return lease

    async def record(self, key: RecordKey) -> Record:
        found = await self.store.find(key)
        assert found is not None
        return found

    async def history(self, key: RecordKey) -> list[tuple[str, str, dict[str, Any]]]:
        """(source, what, detail) of each line."""
        rows = await self.rows(
            "SELECT source, what, detail FROM gateway_history WHERE scope_id = $1 AND idempotency_key = $2 ORDER BY id",
            key.scope_id,
            key.key,
        )
        return [(row["source"], row["what"], json.loads(row["detail"])) for row in rows]

    async def rows(self, query: str, *arguments: object) -> Sequence[Any]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return list(await connection.fetch(query, *arguments))
        finally:
            await connection.close()

    # ---- looking

    async def round(self, reconciler: Reconciler) -> None:
        """One round, and all its looks to their end."""
        await reconciler.round()
        await until(lambda: reconciler.looking == 0)

    async def look_until(self, reconciler: Reconciler, key: RecordKey, *, rounds: int = 20, step: float = 70.0) -> Record:
        """Rounds, with time between them, until the record is resolved or a dead letter."""
        for _ in range(rounds):
            await self.round(reconciler)
            record = await self.record(key)
            if record.status.value != "unknown" or record.dead_lettered:
                return record
            await self.pass_time(step)
        raise AssertionError(f"still in doubt: {await self.history(key)}")


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


ANSWER = response()
RESEND = Resend()
