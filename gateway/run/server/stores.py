"""From the configuration to one process's stores: Postgres, Redis in front of it, and what the process remembers."""

from collections.abc import Awaitable, Callable
from uuid import UUID

from gateway.config import Config
from gateway.core.model import RecordKey, StoredResponse
from gateway.core.packing import unpacked
from gateway.core.shards import shard_finder
from gateway.observe.observer import MetricsObserver
from gateway.ports.reconciliation import Unsealable
from gateway.run.server.finding_out import make_sealer
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.runtime.system import SystemClock, SystemRandomness
from gateway.store.deletions import Deletions, none_deleted
from gateway.store.postgres import PostgresStore
from gateway.store.quotas import QuotaCounter
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.servers import topology_of
from gateway.store.redis.topology import Topology
from gateway.store.replay_cache import ReplayCache
from gateway.store.tiered import TieredStore

REPLAYS_SHARE = 8
"""What part of `memory.total` completed answers may take at most."""


def make_authority(
    config: Config,
    observer: MetricsObserver | None = None,
    *,
    clock_horizon: Callable[[], float] = lambda: 0.0,
    accept_clock: bool = False,
    sealer: RecordSealer | None = None,
) -> PostgresStore:
    """The Postgres store of a configuration. The others are `PostgresStore`'s. Raises `MissingSealing`."""
    if sealer is None:
        sealer = RecordSealer(make_sealer(config), seals=config.encryption.answers)
    postgres = config.postgres
    return PostgresStore(
        postgres.dsn,
        pool_size=postgres.pool_size,
        timeout=postgres.timeout,
        prepared_statements=postgres.prepared_statements,
        clock_horizon=clock_horizon,
        accept_clock=accept_clock,
        observer=observer,
        sealer=sealer,
        shard_of=shard_finder(postgres.batch_by, postgres.shards),
    )


def make_hot(
    config: Config, authority: PostgresStore, clock: SystemClock, randomness: SystemRandomness, observer: MetricsObserver | None = None
) -> tuple[Topology | None, TieredStore | None]:
    """Redis in front, or nothing when no address is given."""
    redis = config.redis
    if redis is None:
        return None, None
    link = topology_of(redis.url, randomness.jitter, timeout=redis.timeout, observer=observer)
    hot = HotPath(link, observer)
    tiered = TieredStore(
        authority,
        hot,
        clock,
        lease_ttl=redis.lease,
        replay_ttl=redis.replay_ttl,
        max_value=redis.max_value,
        secret=config.digest_secret or b"",
        deletions=Deletions(authority.deletions, lambda: link.eras.last, authority.now_us, clock),
        observer=observer,
    )
    return link, tiered


def make_replays(
    config: Config, tiered: TieredStore | None, clock: SystemClock, sealer: RecordSealer = NOTHING_OPENS
) -> ReplayCache | None:
    """What a process remembers of completed answers, or nothing when it is off."""
    memory = config.memory
    if not memory.cached_seconds:
        return None
    limit = min(memory.replay_cache, memory.total // REPLAYS_SHARE)
    deleted = tiered.deleted if tiered is not None else none_deleted

    def ready(key: RecordKey, record_id: UUID, kept: StoredResponse) -> StoredResponse:
        try:
            return unpacked(sealer.open_answer(key, record_id, kept))
        except Unsealable as error:
            raise ValueError(str(error)) from error

    return ReplayCache(limit, memory.cached_seconds, clock.boottime, deleted=deleted, ready=ready)


def make_tick(tiered: TieredStore | None, replays: ReplayCache | None, quotas: QuotaCounter) -> Callable[[], Awaitable[None]]:
    """What is done about once a second."""

    async def tick() -> None:
        if replays is not None:
            replays.purge()
        if tiered is not None:
            await tiered.tick()
        await quotas.tick()

    return tick
