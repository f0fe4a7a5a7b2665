"""Builds one process's parts from a configuration and joins them; swaps a new route map for the old one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from gateway.background.maintenance import Background
from gateway.background.reconciler import MARGIN, Reconciler
from gateway.config import Config, TlsServer, UpstreamConfig
from gateway.core.model import RecordKey, StoredResponse
from gateway.core.packing import unpacked
from gateway.core.policy import Policy
from gateway.core.problems import Problem
from gateway.core.scope import key_digest
from gateway.core.shards import shard_finder
from gateway.core.trace_context import Sampling
from gateway.engine.accepted import AcceptedWork
from gateway.engine.dependencies import Dependencies
from gateway.engine.engine import Engine
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.engine.leases import LeaseKeeper
from gateway.engine.response_packing import recall
from gateway.http.limits import ClientLimits
from gateway.http.problem import ProblemWriter
from gateway.http.response import Patience
from gateway.observe.observer import MetricsObserver
from gateway.observe.tracing import Tracer
from gateway.operate.operations import Operator, Told
from gateway.ports import Recollection, Store
from gateway.ports.reconciliation import Unsealable
from gateway.principal import Identifier, PrincipalError
from gateway.progress import ProgressListener
from gateway.proxy.handler import Proxy
from gateway.proxy.operations import Operations
from gateway.proxy.routing import Edge, Routing, make_routing
from gateway.run.server.accepting import guards_of, stored_refusal
from gateway.run.server.asking import UpstreamAsker
from gateway.run.server.claims import guarded, participants
from gateway.run.server.expiry import expiries
from gateway.run.server.finding_out import host_of, make_probes, make_sealer
from gateway.run.server.scopes import Scopes
from gateway.run.server.upstreams import make_upstreams
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.runtime.spool import MemoryBudget
from gateway.runtime.system import SystemClock, SystemRandomness
from gateway.store.cached import CachedStore
from gateway.store.deletions import Deletions
from gateway.store.limited import LimitedStore
from gateway.store.postgres import PostgresStore, Registry
from gateway.store.quotas import QuotaCounter
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.servers import topology_of
from gateway.store.redis.topology import Topology
from gateway.store.replay_cache import ReplayCache
from gateway.store.sealed import SealedStore
from gateway.store.tiered import TieredStore
from gateway.tls import TlsError, client_context
from gateway.upstream import Balancer
from gateway.webhook import WebhookReceiver

_RESTART = (
    "listen",
    "webhook_listen",
    "progress",
    "workers",
    "postgres",
    "redis",
    "digest_secret",
    "encryption_keys",
    "encryption",
    "access_log",
    "access_log_user_agent",
    "tracing",
    "memory",
)
"""Settings that a running process cannot change."""

REPLAYS_SHARE = 8
"""What part of `memory.total` completed answers may take at most."""


@dataclass(slots=True)
class Gateway:
    """The parts of a running process. `upstreams` and `probes` (the reconciler's own clients) are replaced as a whole
    by a reload.
    """

    config: Config
    observer: MetricsObserver
    authority: PostgresStore
    registry: Registry
    scopes: Scopes
    link: Topology | None
    tiered: TieredStore | None
    replays: ReplayCache | None
    engine: Engine
    keeper: LeaseKeeper
    background: Background
    proxy: Proxy
    upstreams: Mapping[str, Balancer]
    probes: Mapping[str, Balancer]
    reconciler: Reconciler
    webhooks: WebhookReceiver
    progress: ProgressListener
    operator: Operator
    identifier: Identifier
    memory: MemoryBudget
    retired: list[asyncio.Task[None]] = field(default_factory=list)

    async def prepare(self, config: Config) -> "Prepared | list[str]":
        """Make what another configuration's routes and upstreams need. Returns the problems with it; if there are any,
        nothing changed.

        Raises `StoreUnavailable` when the registry cannot be asked.
        """
        objections = _need_restart(self.config, config)
        if objections:
            return objections
        try:
            fresh = make_upstreams(_changed_upstreams(self.config, config), self._target_changed)
            upstreams = {name: fresh.get(name) or self.upstreams[name] for name in config.upstreams}
            identifier = make_identifier(config, upstreams, self.identifier)
            probes = make_probes(config)
        except (TlsError, PrincipalError) as error:
            return [str(error)]
        prepared = Prepared(config, fresh, upstreams, identifier, probes)
        try:
            drifts = await self.scopes.register(config)
            if not drifts:
                await self.authority.participation.register(participants(config))
        except BaseException:
            await self.discard(prepared)
            raise
        if drifts:
            await self.discard(prepared)
            return drifts
        return prepared

    def adopt(self, prepared: "Prepared") -> None:
        """Swap to the prepared parts, between two requests."""
        config = prepared.config
        old = self.upstreams
        before, self.identifier = self.identifier, prepared.identifier
        old_probes, self.probes = self.probes, prepared.probes
        self.upstreams = prepared.upstreams
        self.observer.update_targets({name: config.upstreams[name].targets for name in prepared.fresh})
        self.observer.update_routes(config.routes)
        self.observer.update_certificates(expiries(config))
        self.webhooks.reconfigure(config.routes)
        routing = make_map(config, self.upstreams, prepared.identifier, self.proxy.routing)
        self.proxy.reconfigure(routing, ProblemWriter(config.problem_base))
        self.accepted_work().serve(guards_of(routing))
        self.config = config
        if self.replays is not None:
            self.replays.clear()
        self.scopes.serve(config)
        unused = [upstream for name, upstream in old.items() if self.upstreams.get(name) is not upstream]
        self._retire([*unused, *old_probes.values()], before)

    async def discard(self, prepared: "Prepared") -> None:
        """Drop the prepared parts."""
        self.scopes.serve(self.config)
        await asyncio.gather(*(client.close() for client in (*prepared.fresh.values(), *prepared.probes.values())))

    def _target_changed(self, upstream: str, target: str, healthy: bool) -> None:  # noqa: FBT001 - the balancer's way to tell
        self.observer.target_changed(upstream, target, healthy=healthy)

    def _retire(self, upstreams: Sequence[Balancer], identifier: Identifier) -> None:
        """Close what the new map no longer uses, once requests that were matched against the old one have had time to
        begin.
        """

        async def close() -> None:
            await asyncio.sleep(60)
            await asyncio.gather(identifier.close(), *(upstream.close() for upstream in upstreams))

        self.retired = [task for task in self.retired if not task.done()]
        self.retired.append(asyncio.get_running_loop().create_task(close(), name="retired-upstreams"))

    def accepted_work(self) -> AcceptedWork:
        """What runs accepted work."""
        assert self.engine.accepted is not None, "an authority keeps it"
        return self.engine.accepted

    async def close(self) -> None:
        """Close everything that the process holds, stores last. A drain has come before; this cuts what a failed drain
        has left.
        """
        await self.reconciler.close()
        await self.engine.drain(0.0, 0.0)
        for task in self.retired:
            task.cancel()
        await asyncio.gather(*self.retired, return_exceptions=True)
        clients = [*self.upstreams.values(), *self.probes.values()]
        await asyncio.gather(self.identifier.close(), *(client.close() for client in clients))
        if self.tiered is not None:
            await self.tiered.close(1.0)
        if self.link is not None:
            await self.link.close()
        await self.scopes.let_go()
        await self.authority.close()
        self.observer.close()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Another configuration, with all that it needs beside what is there. `fresh` are those of its upstreams that are
    new or changed.
    """

    config: Config
    fresh: Mapping[str, Balancer]
    upstreams: Mapping[str, Balancer]
    identifier: Identifier
    probes: Mapping[str, Balancer]


def assemble(config: Config, *, accept_clock: bool = False) -> Gateway:
    """Build all parts. Nothing is connected yet, nothing runs. Must be called inside the running event loop.
    `accept_clock`: as `DatabaseClock`.

    Raises `TlsError`, `PrincipalError`, `MissingSealing` and `MissingTracing`.
    """
    clock, randomness = SystemClock(), SystemRandomness()
    tracer = None if config.tracing is None else Tracer(config.tracing.endpoint, config.name)
    log_to = 1 if config.access_log else None
    observer = MetricsObserver(config.routes, access_log_fd=log_to, user_agent=config.access_log_user_agent, tracer=tracer)
    sealer = make_sealer(config)
    secrecy = None if sealer is None else RecordSealer(sealer, seals=config.encryption.answers)
    authority = make_authority(
        config,
        observer,
        clock_horizon=lambda: clock_horizon(gateway.config),
        accept_clock=accept_clock,
        sealer=secrecy or NOTHING_OPENS,
    )
    registry = authority.registry
    scopes = Scopes(registry, clock, randomness, observer)
    link, tiered = make_hot(config, authority, clock, randomness, observer)
    replays = make_replays(config, tiered, clock, secrecy or NOTHING_OPENS)
    quotas = QuotaCounter(clock) if tiered is None else tiered.quotas
    store: Store = tiered or LimitedStore(authority, quotas)
    remembered: Recollection | None = None
    if replays is not None:
        store = cached = CachedStore(store, replays, clock, observer)
        remembered = cached.known
    if secrecy is not None:
        store = SealedStore(store, secrecy)
    keeper = LeaseKeeper(store, clock, observer, make_tick(tiered, replays, quotas))
    memory = MemoryBudget(
        config.memory.total - (0 if replays is None else replays.limit),
        config.memory.spill_directory,
        disk_failed=lambda error: observer.background_failed("spill", error),
    )
    upstreams = make_upstreams(config.upstreams, lambda name, target, healthy: observer.target_changed(name, target, healthy=healthy))
    observer.update_targets({name: upstream.targets for name, upstream in config.upstreams.items()})
    observer.update_certificates(expiries(config))
    identifier = make_identifier(config, upstreams)
    reconciliation = authority.reconciliation
    deps = Dependencies(
        store,
        clock,
        randomness,
        observer,
        keeper,
        memory,
        sealer=sealer,
        reconciliation=reconciliation,
        meanings=scopes,
        remembered=remembered,
        participation=authority.participation,
        acceptance=authority.acceptance,
        abandoned=lambda: stored_refusal(gateway.config, Problem.ABANDONED),
        quotas=quotas,
        digest=digest_of(lambda: gateway.config),
    )
    engine = Engine(deps, ForeignFingerprints(registry.fingerprint_policy, config.digest_secret or b""))
    webhooks = WebhookReceiver(config.routes, reconciliation, observer, memory, clock)
    proxy = Proxy(
        make_map(config, upstreams, identifier),
        engine,
        observer,
        clock,
        randomness,
        problems=ProblemWriter(config.problem_base),
        memory=memory,
        webhooks=webhooks if config.webhook_listen is None else None,
        operations=Operations(
            authority.acceptance,
            store,
            scopes,
            clock,
            observer,
            lambda: stored_refusal(gateway.config, Problem.CANCELLED),
            partial(recall, deps),
        ),
    )
    gateway = Gateway(
        config=config,
        observer=observer,
        authority=authority,
        registry=registry,
        scopes=scopes,
        link=link,
        tiered=tiered,
        replays=replays,
        engine=engine,
        keeper=keeper,
        background=Background(
            authority,
            clock,
            randomness,
            observer,
            connected_since=lambda: authority.connected_since,
            longest_lease=lambda: longest_lease(gateway.config),
        ),
        proxy=proxy,
        upstreams=upstreams,
        probes=make_probes(config),
        reconciler=Reconciler(
            reconciliation,
            lambda: gateway.probes,
            clock,
            randomness,
            observer,
            sealer=sealer,
            looked=None if tracer is None else observer.looked,
            routes=lambda: gateway.config.routes,
            connected_since=lambda: authority.connected_since,
            find=authority.find,
            hosts=lambda name: host_of(gateway.config, name),
        ),
        webhooks=webhooks,
        progress=ProgressListener(authority.participation, observer, clock, randomness, ProblemWriter(config.problem_base), memory),
        operator=make_operator(lambda: gateway.config, authority, tiered, replays, None if tracer is None else observer.resolved),
        identifier=identifier,
        memory=memory,
    )
    gateway.accepted_work().serve(guards_of(proxy.routing))
    return gateway


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


def digest_of(config: Callable[[], Config]) -> Callable[[RecordKey], str]:
    """What gives a key as logs show it."""
    return lambda key: key_digest(config().digest_secret or b"", key.scope_id, key.key)


def make_operator(
    config: Callable[[], Config],
    authority: PostgresStore,
    tiered: TieredStore | None,
    replays: ReplayCache | None,
    told: Told | None = None,
) -> Operator:
    """What people may do to records, over these stores."""

    def policies() -> dict[str, Policy]:
        return {route.id: route.policy for route in config().routes if route.policy is not None}

    forget = None if tiered is None else tiered.forget
    return Operator(
        authority.operations,
        authority.reconciliation,
        policies,
        forget,
        replays,
        digest_of(config),
        approvals=authority.approvals,
        second=lambda: config().admin.second_approval,
        seals=lambda: config().encryption.answers,
        asker=UpstreamAsker(config, SystemClock()),
        told=told,
    )


def make_identifier(config: Config, upstreams: Mapping[str, Balancer], before: Identifier | None = None) -> Identifier:
    """The identifier of callers. Raises `PrincipalError`."""
    return Identifier(guarded(config), upstreams, SystemClock(), tls=client_context(None), before=before)


def make_map(config: Config, upstreams: Mapping[str, Balancer], identifier: Identifier, before: Routing | None = None) -> Routing:
    """The compiled route map; `before` is the last one."""
    client = config.client
    patience = Patience(client.send_timeout, client.min_rate)
    edge = Edge(
        config.name.encode(),
        config.forwarded,
        config.proxy_status,
        client.body_timeout,
        client.min_rate,
        patience,
        replace(patience, silence=client.half_close_timeout),
        config.cors,
        config.operations_path.encode() if any(policy.has_status for policy in guarded(config)) else None,
        None if config.tracing is None else Sampling(config.tracing.sample_percent / 100),
    )
    forwards = frozenset(name for name, upstream in config.upstreams.items() if upstream.forwards_overrides)
    secret = config.digest_secret or b""
    return make_routing(
        config.routes,
        upstreams,
        secret,
        config.trusted_proxies,
        edge,
        identifier,
        version=config.fingerprint_version,
        forwards_overrides=forwards,
        prefixed=frozenset(name for name, upstream in config.upstreams.items() if upstream.prefixed),
        servers={name: upstream.servers for name, upstream in config.upstreams.items()},
        before=before,
    )


def make_limits(config: Config, connections: int) -> ClientLimits:
    """What client connections may take, and how many of them there may be."""
    client = config.client
    return ClientLimits(
        header_timeout=client.header_timeout,
        idle_timeout=client.idle_timeout,
        max_connections=connections,
        max_connections_per_address=client.max_connections_per_address,
        max_header_size=client.max_header_size,
        max_headers=client.max_headers,
    )


def longest_lease(config: Config) -> float:
    """The longest lease of any route: what a sweeper waits after a reconnection."""
    return max((policy.lease for policy in guarded(config)), default=0.0)


def clock_horizon(config: Config) -> float:
    """Seconds after which every lease and doubt of today has ended: the upstream has finished, and the look that acts
    has.
    """
    return max((policy.lease + policy.max_execution + policy.reconcile.pace.timeout + MARGIN for policy in guarded(config)), default=0.0)


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
    deleted = tiered.deleted if tiered is not None else _none_deleted

    def ready(key: RecordKey, record_id: UUID, kept: StoredResponse) -> StoredResponse:
        try:
            return unpacked(sealer.open_answer(key, record_id, kept))
        except Unsealable as error:
            raise ValueError(str(error)) from error

    return ReplayCache(limit, memory.cached_seconds, clock.boottime, deleted=deleted, ready=ready)


def _none_deleted(_: UUID) -> bool:
    """Without Redis nobody reads the list of deletions: the seconds alone count."""
    return False


def make_tick(tiered: TieredStore | None, replays: ReplayCache | None, quotas: QuotaCounter) -> Callable[[], Awaitable[None]]:
    """What is done about once a second."""

    async def tick() -> None:
        if replays is not None:
            replays.purge()
        if tiered is not None:
            await tiered.tick()
        await quotas.tick()

    return tick


def _need_restart(old: Config, new: Config) -> list[str]:
    """What differs and cannot be changed in a running process. A renewed certificate can, TLS itself cannot
    come or go. Who may use the admin listener can change, but not whether everybody may.
    """
    changed = [name for name in _RESTART if getattr(old, name) != getattr(new, name)]
    if old.admin.listen != new.admin.listen:
        changed.append("admin.listen")
    if old.admin.open != new.admin.open:
        changed.append("admin.token")
    pairs: dict[str, tuple[TlsServer | None, TlsServer | None]] = {"tls": (old.tls, new.tls), "admin.tls": (old.admin.tls, new.admin.tls)}
    changed += [name for name, (before, after) in pairs.items() if (before is None) != (after is None)]
    return [f"{name}: changed, which needs a restart" for name in changed]


def _changed_upstreams(old: Config, new: Config) -> dict[str, UpstreamConfig]:
    """Those that are new or differ. The clients of the others stay, with their warm connections; `max_execution` is not
    their business.
    """

    def same(name: str) -> bool:
        before, after = old.upstreams.get(name), new.upstreams[name]
        return before is not None and replace(before, max_execution=0.0) == replace(after, max_execution=0.0)

    return {name: upstream for name, upstream in new.upstreams.items() if not same(name)}
