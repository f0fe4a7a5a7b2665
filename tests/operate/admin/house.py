"""Records in all states on a real Postgres, an operator over them, and an admin listener in front."""

import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from gateway.config import TcpListener
from gateway.core.model import Fingerprint, Intent, Lease, RecordKey, StoredResponse, Terms
from gateway.core.policy import Policy
from gateway.core.reconcile.policy import Lookup, Reconcile, RequestTemplate
from gateway.operate.admin import AdminPorts, make_admin, start_admin
from gateway.operate.operations import Operator, record_id_text
from gateway.ports import Retention, Transition
from gateway.store.postgres import PostgresStore
from tests.store.contract.harness import age_records

LEASE, MAX_EXECUTION = 30.0, 60.0
PROBED = Policy("create-charge", (), reconcile=Reconcile(Lookup(RequestTemplate("GET", "/v1/charges?key={key}"), ())))
BODY = b'{"id": "ch_1", "amount": 10}'


@dataclass(slots=True)
class House:
    dsn: str
    store: PostgresStore
    policies: dict[str, Policy] = field(default_factory=lambda: {"create-charge": PROBED, "create-refund": Policy("create-refund", ())})

    seals: bool = False

    @property
    def operator(self) -> Operator:
        return Operator(self.store.operations, self.store.reconciliation, lambda: self.policies, seals=lambda: self.seals)

    async def in_progress(self, key: str, route: str = "create-charge", scope_id: str | None = None) -> Lease:
        digest = hashlib.sha256(key.encode()).digest()
        intent = Intent(
            RecordKey(scope_id or f"{route}:none", key),
            Fingerprint(1, digest, digest),
            secrets.token_bytes(16),
            Terms(route, LEASE, MAX_EXECUTION, self.policies[route].reconcilable),
            f"request-{key}",
            "POST",
            b"/v1/charges?x=\xff",
            captured={"key": key, "order": "order \x1b[31m1"},
        )
        lease = await self.store.reserve(intent)
        assert isinstance(lease, Lease)
        return lease

    async def completed(self, key: str, route: str = "create-charge", body: bytes = BODY, scope_id: str | None = None) -> str:
        """The id of a record that completed with 201 and `body`."""
        lease = await self.in_progress(key, route, scope_id)
        fields = ((b"Content-Type", b"application/json"),)
        response = StoredResponse(201, b"Created", fields, body, len(body), hashlib.sha256(body).digest())
        assert (await self.store.complete(lease, response, Retention(3600.0))).transition is Transition.DONE
        return record_id_text(lease.key)

    async def retryable(self, key: str, route: str = "create-charge") -> str:
        """The id of a record of which nothing was sent."""
        lease = await self.in_progress(key, route)
        assert (await self.store.release(lease, "connect_refused", Retention(3600.0))).transition is Transition.DONE
        return record_id_text(lease.key)

    async def unknown(self, key: str, route: str = "create-charge", scope_id: str | None = None) -> str:
        """The id of a record in doubt: on `create-refund`, which has no probe, a dead letter."""
        lease = await self.in_progress(key, route, scope_id)
        assert (await self.store.doubt(lease, "read_timeout")).transition is Transition.DONE
        return record_id_text(lease.key)

    async def age(self, seconds: float = LEASE + MAX_EXECUTION + 10.0) -> None:
        """Let time pass: by default, until the upstream has surely finished with everything."""
        await age_records(self.dsn, seconds)


def silent_ports(operator: Operator | None) -> AdminPorts:
    """A listener of which only the operator matters."""

    async def readiness() -> Mapping[str, str | None]:
        return {"postgres": None}

    async def config() -> object:
        return {"routes": []}

    async def reload() -> Sequence[str]:
        return []

    return AdminPorts(readiness, lambda _: (b"up 1\n", "text/plain; charset=utf-8"), config, reload, operator)


@asynccontextmanager
async def listening(ports: AdminPorts, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a listener of its own."""
    runner = await start_admin(TcpListener("127.0.0.1", 0), make_admin(ports, token))
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
            yield session
    finally:
        await runner.cleanup()
