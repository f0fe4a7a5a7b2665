"""The parts of a running process; what of a new configuration they take over, and how."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.background.maintenance import Background
from gateway.background.reconciler import Reconciler
from gateway.config import Config, TlsServer, UpstreamConfig
from gateway.engine.accepted import AcceptedWork
from gateway.engine.engine import Engine
from gateway.engine.leases import LeaseKeeper
from gateway.http.problem import ProblemWriter
from gateway.observe.observer import MetricsObserver
from gateway.operate.operations import Operator
from gateway.principal import Identifier, PrincipalError
from gateway.progress import ProgressListener
from gateway.proxy.handler import Proxy
from gateway.run.server.accepting import guards_of
from gateway.run.server.claims import participants
from gateway.run.server.edge import make_identifier, make_map
from gateway.run.server.expiry import expiries
from gateway.run.server.finding_out import make_probes
from gateway.run.server.scopes import Scopes
from gateway.run.server.upstreams import make_upstreams
from gateway.runtime.spool import MemoryBudget
from gateway.store.postgres import PostgresStore, Registry
from gateway.store.redis.topology import Topology
from gateway.store.replay_cache import ReplayCache
from gateway.store.tiered import TieredStore
from gateway.tls import TlsError
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
