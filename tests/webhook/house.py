"""A webhook endpoint on a real listener over a real Postgres, records to send events about, and a sender who can sign."""

import hashlib
import hmac
import json
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from gateway.core.model import Fingerprint, Intent, Lease, Record, RecordKey, Terms
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.policy import (
    OWN_KEY,
    AnswerPlan,
    Condition,
    Pace,
    Reconcile,
    Rule,
    Signature,
    StripeSignature,
    Verdict,
    Webhook,
)
from gateway.ports import Retention, Transition, WebhookExchange
from gateway.runtime.spool import MemoryBudget
from gateway.runtime.system import SystemClock
from gateway.store.postgres import PostgresStore
from gateway.webhook import WebhookListener, WebhookReceiver
from tests.engine.stage import NotingObserver
from tests.http.connections.house import House
from tests.support.client import Answer, Client

SECRET = b"whsec_test"
PATH = "/hooks/payments"
ROUTE = "create-charge"
KEPT = Retention(3600.0)
LEASE, MAX_EXECUTION = 30.0, 60.0

RULES = (
    Rule(Verdict.EXECUTED, when=(Condition("/type", values=("charge.succeeded",)),), answer=AnswerPlan(201, pointer="/data/object")),
    Rule(Verdict.EXECUTED, when=(Condition("/type", values=("charge.failed",)),), answer=AnswerPlan(402, pointer="/data/object")),
    Rule(Verdict.NOT_EXECUTED, when=(Condition("/type", values=("charge.expired",)),)),
)
WEBHOOK = Webhook(PATH, StripeSignature((SECRET,)), "/id", "/data/key", RULES)
POLICY = Policy(scope="payments", principal=(), webhook=WEBHOOK, reconcile=Reconcile(pace=Pace(looks=1, apart=30.0)))


class Noting(NotingObserver):
    """Counts what became of events; a defect fails its test."""

    def __init__(self) -> None:
        super().__init__()
        self.results: Counter[str] = Counter()

    def webhook_event(self, event: WebhookExchange) -> None:
        assert event.route == ROUTE
        self.results[event.result] += 1


def route_with(policy: Policy) -> Route:
    return Route(ROUTE, "/v1/charges", "api", frozenset({"POST"}), policy)


def route_signed(signature: Signature) -> Route:
    return route_with(replace(POLICY, webhook=replace(WEBHOOK, signature=signature)))


def event(kind: str, key: str, identity: str | None = None, **more: Any) -> bytes:
    """An event as its sender writes it."""
    told = {"id": identity or f"evt_{secrets.token_hex(8)}", "type": kind, "data": {"key": key, "object": {"id": "ch_1", "amount": 100}}}
    return json.dumps({**told, **more}).encode()


def stripe(body: bytes, secret: bytes = SECRET, at: float | None = None) -> str:
    """`Stripe-Signature`, by the scheme's own description."""
    seconds = int(time.time() if at is None else at)  # noqa: TID251 - signatures hold instants of the wall clock
    digest = hmac.new(secret, str(seconds).encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"Stripe-Signature: t={seconds},v1={digest}"


TERMS = Terms(ROUTE, LEASE, MAX_EXECUTION, reconcilable=True)


def intent_for(key: RecordKey) -> Intent:
    """A request under a key, as the guard hands it to the store."""
    return Intent(
        key,
        Fingerprint(1, bytes(32), bytes(32)),
        secrets.token_bytes(16),
        TERMS,
        "request-1",
        "POST",
        b"/v1/charges",
        captured={OWN_KEY: key.key},
        correlation=key.key,
    )


@dataclass(slots=True)
class Hall:
    """One receiver and its listener."""

    store: PostgresStore
    receiver: WebhookReceiver
    observer: Noting
    house: House
    memory: MemoryBudget
    dsn: str

    async def raw(self, request: bytes) -> Answer:
        async with await Client.connect(self.house.port) as client:
            await client.send(request)
            return await client.receive()

    async def post(self, body: bytes, *lines: str, path: str = PATH, method: str = "POST") -> Answer:
        """Send a body with the header lines given, and its length."""
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *lines, "", ""])
        return await self.raw(head.encode() + body)

    async def send(self, body: bytes) -> tuple[int, str]:
        """Send a signed event; the status and the result that its sender is told."""
        answer = await self.post(body, stripe(body))
        return answer.status, json.loads(answer.body)["result"]

    # ---- records

    async def reserve(self, key: str | None = None, principal: str = "none", *, terms: Terms | None = None, **changes: Any) -> Lease:
        """A record that is in progress, with its key captured."""
        wanted = intent_for(RecordKey(f"payments:{principal}", key or f"key-{secrets.token_hex(8)}"))
        lease = await self.store.reserve(replace(wanted, terms=terms or TERMS, **changes))
        assert isinstance(lease, Lease)
        return lease

    async def doubt(self, key: str | None = None, principal: str = "none", *, over: bool = False) -> Lease:
        """A record in doubt; `over`: its upstream has surely finished."""
        lease = await self.reserve(key, principal)
        assert (await self.store.doubt(lease, "upstream_timeout")).transition is Transition.DONE
        if over:
            await self.age(LEASE + MAX_EXECUTION + 1)
        return lease

    async def find(self, lease: Lease) -> Record:
        record = await self.store.find(lease.key)
        assert record is not None
        return record

    async def age(self, seconds: float) -> None:
        """Let time pass for all records."""
        names = ("locked_until", "reconcile_after", "unknown_since", "doubtful_until", "looked_at", "agreed_at", "expires_at")
        moved = ", ".join(f"{name} = {name} - make_interval(secs => {seconds!r})" for name in names)
        await self.execute(f"UPDATE gateway_records SET {moved}")

    async def execute(self, statement: str) -> None:
        await self.rows(statement)

    async def rows(self, query: str, *arguments: object) -> Sequence[asyncpg.Record]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(query, *arguments)
        finally:
            await connection.close()

    async def history(self, lease: Lease) -> list[tuple[str, str]]:
        """What is written down about a record, in order."""
        rows = await self.rows("SELECT source, what FROM gateway_history WHERE record_id = $1 ORDER BY id", lease.record_id)
        return [(row["source"], row["what"]) for row in rows]


def build(store: PostgresStore, dsn: str, route: Route, memory: int = 2**30) -> Hall:
    """A hall whose house is not open yet."""
    observer = Noting()
    budget = MemoryBudget(memory)
    receiver = WebhookReceiver([route], store.reconciliation, observer, budget, SystemClock())
    house = House()
    house.answering = WebhookListener(receiver).handle
    return Hall(store, receiver, observer, house, budget, dsn)
