"""A bench for the operators' service: a gateway's stores with records in any state."""

from dataclasses import dataclass, field

from gateway.core.model import Lease, Record, RecordKey, Tombstone
from gateway.core.policy import OnUnknown, Policy
from gateway.operate.operations import By, Operator
from gateway.ports import Retention
from gateway.ports.reconciliation import Audit
from gateway.store.postgres import PostgresStore
from gateway.store.redis.hotpath import HotPath
from gateway.store.tiered import TieredStore
from tests.store.contract.harness import LEASE, MAX_EXECUTION, intent, response

BY = By("ada", "the provider's console says so")
POLICY = Policy("payments", (), retention=1000.0, on_unknown=OnUnknown.REEXECUTE)
KEPT = Retention(3600.0)
OVER = LEASE + MAX_EXECUTION + 1


@dataclass
class Bench:
    """A gateway's store, and an operator's service over it."""

    store: TieredStore
    authority: PostgresStore
    hot: HotPath
    dsn: str
    operator: Operator
    policies: dict[str, Policy] = field(default_factory=dict)

    async def make(self, name: str, state: str, **settings: object) -> Lease:
        """A record in that state."""
        wanted = intent(key(name), reconcilable=state != "dead_letter", **settings)  # type: ignore[arg-type]  # a test's choice
        lease = await self.store.reserve(wanted)
        assert isinstance(lease, Lease)
        match state:
            case "completed":
                await self.store.complete(lease, response(), KEPT)
            case "failed_retryable":
                await self.store.release(lease, "connection_refused", KEPT)
            case "unknown" | "dead_letter":
                await self.store.doubt(lease, "upstream_timeout")
            case _:
                assert state == "in_progress"
        assert await self.store.drain(10)
        return lease

    async def retry(self, name: str) -> Lease | Record | Tombstone:
        """What a client's retry finds."""
        found = await self.store.reserve(intent(key(name)))
        await self.store.drain(10)
        return found

    async def audited(self) -> list[Audit]:
        return [line.audit for line in await self.operator.records.audit()]


def key(name: str) -> RecordKey:
    return RecordKey("payments:none", name)
