"""One process's parts, built from a configuration and joined; and how a new route map takes the place of the old one."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.config import Config, UpstreamConfig
from gateway.core.fingerprint import make_fingerprinter
from gateway.engine.attempt import Tools
from gateway.engine.engine import Engine
from gateway.engine.fingerprints import Fingerprints
from gateway.engine.leases import LeaseKeeper
from gateway.observe.observer import MetricsObserver
from gateway.ports import Store
from gateway.problem import ProblemWriter
from gateway.proxy.handler import Proxy
from gateway.proxy.routing import Routing, make_routing
from gateway.reconcile.background import Background
from gateway.server.claims import guarded, policy_claims, scope_claims
from gateway.store.postgres import PostgresStore, Registry
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.hotpath import HotPath
from gateway.store.redis.link import Link
from gateway.store.tiered import TieredStore
from gateway.system import SystemClock, SystemRandomness
from gateway.upstream import HttpUpstream, UpstreamSettings

_RESTART = ("listen", "admin", "workers", "postgres", "redis", "digest_secret", "access_log")
"""Settings that a running process cannot change."""


@dataclass(slots=True)
class Gateway:
    """The parts of a running process. `upstreams` is replaced as a whole by a reload."""

    config: Config
    observer: MetricsObserver
    authority: PostgresStore
    registry: Registry
    link: Link | None
    tiered: TieredStore | None
    engine: Engine
    keeper: LeaseKeeper
    background: Background
    proxy: Proxy
    upstreams: Mapping[str, HttpUpstream]
    fingerprints: Fingerprints
    retired: list[asyncio.Task[None]] = field(default_factory=list)

    async def reconfigure(self, config: Config) -> list[str]:
        """Swap to another configuration's routes and upstreams between two requests. Returns what speaks against it; then nothing changed.

        Raises `StoreUnavailable` when the registry cannot be asked.
        """
        objections = [f"{name}: changed, which needs a restart" for name in _RESTART if getattr(config, name) != getattr(self.config, name)]
        if objections:
            return objections
        drifts = await self.registry.register(scope_claims(config), policy_claims(config), accept_change=False)
        if drifts:
            return list(drifts)
        old, kept = self.upstreams, _kept_upstreams(self.config, config, self.upstreams)
        self.upstreams = {name: kept.get(name) or make_upstream(upstream) for name, upstream in config.upstreams.items()}
        self.observer.update_routes(config.routes)
        self.fingerprints = make_fingerprints(config, self.registry, self.fingerprints)
        self.engine.reconfigure(self.upstreams, self.fingerprints)
        self.proxy.reconfigure(make_map(config, self.upstreams), ProblemWriter(config.problem_base))
        self.config = config
        self._retire([upstream for name, upstream in old.items() if self.upstreams.get(name) is not upstream])
        return []

    def _retire(self, upstreams: Sequence[HttpUpstream]) -> None:
        """Close what the new map no longer uses, once requests that were matched against the old one have had time to begin."""

        async def close() -> None:
            await asyncio.sleep(60)
            await asyncio.gather(*(upstream.close() for upstream in upstreams))

        if upstreams:
            self.retired = [task for task in self.retired if not task.done()]
            self.retired.append(asyncio.get_running_loop().create_task(close(), name="retired-upstreams"))

    async def close(self) -> None:
        """Close everything that the process holds, stores last. A drain has come before; what one that failed has left is cut here."""
        await self.engine.drain(0.0, 0.0)
        for task in self.retired:
            task.cancel()
        await asyncio.gather(*self.retired, return_exceptions=True)
        await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()))
        if self.tiered is not None:
            await self.tiered.close(1.0)
        if self.link is not None:
            await self.link.close()
        await self.authority.close()
        self.observer.close()


def assemble(config: Config) -> Gateway:
    """Build all parts. Nothing is connected yet, nothing runs. Must be called inside the running event loop."""
    clock, randomness = SystemClock(), SystemRandomness()
    observer = MetricsObserver(config.routes, access_log_fd=1 if config.access_log else None)
    authority = make_authority(config, observer)
    registry = authority.registry
    link, tiered = _make_hot(config, authority, clock, randomness, observer)
    store: Store = tiered or authority
    keeper = LeaseKeeper(store, clock, observer, tiered.tick if tiered is not None else None)
    upstreams = {name: make_upstream(upstream) for name, upstream in config.upstreams.items()}
    fingerprints = make_fingerprints(config, registry)
    engine = Engine(Tools(store, clock, randomness, observer, keeper), upstreams, fingerprints)
    proxy = Proxy(make_map(config, upstreams), engine, observer, clock, randomness, ProblemWriter(config.problem_base))
    gateway = Gateway(
        config=config,
        observer=observer,
        authority=authority,
        registry=registry,
        link=link,
        tiered=tiered,
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
        fingerprints=fingerprints,
    )
    return gateway


def make_authority(config: Config, observer: MetricsObserver | None = None) -> PostgresStore:
    """The Postgres store of a configuration."""
    postgres = config.postgres
    return PostgresStore(
        postgres.dsn,
        pool_size=postgres.pool_size,
        timeout=postgres.timeout,
        prepared_statements=postgres.prepared_statements,
        observer=observer,
    )


def make_upstream(config: UpstreamConfig) -> HttpUpstream:
    """The client of one upstream."""
    return HttpUpstream(
        UpstreamSettings(
            url=config.url,
            connect=config.connect,
            first_byte=config.first_byte,
            read_idle=config.read_idle,
            total=config.total,
            keepalive=config.keepalive,
            max_connections=config.max_connections,
        )
    )


def make_map(config: Config, upstreams: Mapping[str, HttpUpstream]) -> Routing:
    """The compiled route map."""
    return make_routing(config.routes, upstreams, config.digest_secret or b"", config.trusted_proxies)


def make_fingerprints(config: Config, registry: Registry, old: Fingerprints | None = None) -> Fingerprints:
    """A fingerprinter for each guarded route. Those of routes that left the map stay, for requests that are still on their way."""
    secret = config.digest_secret or b""
    by_route = {route.id: make_fingerprinter(route.policy.fingerprint, secret) for route in config.routes if route.policy is not None}
    return Fingerprints({**(old.by_route if old is not None else {}), **by_route}, registry.fingerprint_policy, secret)


def longest_lease(config: Config) -> float:
    """The longest lease of any route: what a sweeper waits after a reconnection."""
    return max((policy.lease for policy in guarded(config)), default=0.0)


def _make_hot(
    config: Config, authority: PostgresStore, clock: SystemClock, randomness: SystemRandomness, observer: MetricsObserver
) -> tuple[Link | None, TieredStore | None]:
    """Redis in front, or nothing when no address is given."""
    redis = config.redis
    if redis is None:
        return None, None
    link = Link(redis.url, Breaker(randomness.jitter), timeout=redis.timeout, observer=observer)
    hot = HotPath(link, observer)
    tiered = TieredStore(
        authority,
        hot,
        clock,
        lease_ttl=redis.lease,
        replay_ttl=redis.replay_ttl,
        max_value=redis.max_value,
        observer=observer,
    )
    return link, tiered


def _kept_upstreams(old: Config, new: Config, running: Mapping[str, HttpUpstream]) -> dict[str, HttpUpstream]:
    """Clients whose settings are the same in both: their connections stay warm. `max_execution` is not a client's business."""

    def same(name: str) -> bool:
        before, after = old.upstreams.get(name), new.upstreams[name]
        return before is not None and replace(before, max_execution=0.0) == replace(after, max_execution=0.0)

    return {name: running[name] for name in new.upstreams if same(name)}
