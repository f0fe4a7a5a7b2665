"""Builds one process's parts from a configuration and joins them."""

from functools import partial

from gateway.background.maintenance import Background
from gateway.background.reconciler import MARGIN, Reconciler
from gateway.config import Config
from gateway.core.problems import Problem
from gateway.engine.dependencies import Dependencies
from gateway.engine.engine import Engine
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.engine.leases import LeaseKeeper
from gateway.engine.response_packing import recall
from gateway.http.problem import ProblemWriter
from gateway.observe.observer import MetricsObserver
from gateway.observe.tracing import Tracer
from gateway.ports import Recollection, Store
from gateway.progress import ProgressListener
from gateway.proxy.handler import Proxy
from gateway.proxy.operations import Operations
from gateway.run.server.accepting import guards_of, stored_refusal
from gateway.run.server.claims import guarded
from gateway.run.server.edge import make_identifier, make_map
from gateway.run.server.expiry import expiries
from gateway.run.server.finding_out import host_of, make_probes, make_sealer
from gateway.run.server.gateway import Gateway
from gateway.run.server.operating import digest_of, make_operator
from gateway.run.server.scopes import Scopes
from gateway.run.server.stores import make_authority, make_hot, make_replays, make_tick
from gateway.run.server.upstreams import make_upstreams
from gateway.runtime.record_sealing import NOTHING_OPENS, RecordSealer
from gateway.runtime.spool import MemoryBudget
from gateway.runtime.system import SystemClock, SystemRandomness
from gateway.store.cached import CachedStore
from gateway.store.limited import LimitedStore
from gateway.store.quotas import QuotaCounter
from gateway.store.sealed import SealedStore
from gateway.webhook import WebhookReceiver


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


def longest_lease(config: Config) -> float:
    """The longest lease of any route: what a sweeper waits after a reconnection."""
    return max((policy.lease for policy in guarded(config)), default=0.0)


def clock_horizon(config: Config) -> float:
    """Seconds after which every lease and doubt of today has ended: the upstream has finished, and the look that acts
    has.
    """
    return max((policy.lease + policy.max_execution + policy.reconcile.pace.timeout + MARGIN for policy in guarded(config)), default=0.0)
