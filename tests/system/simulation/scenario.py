"""What one seed draws before it starts: how many gateways, which policy, what goes wrong when, and what clients want."""

from dataclasses import dataclass, field, replace
from random import Random

from gateway.core.policy import Execution, InFlight, Limits, OnExpired, OnStoreOutage, OnUnknown, Participate, Policy
from gateway.core.principal_source import HeaderPrincipal

LEASE = 3.0
REDIS_LEASE = 1.0
MAX_EXECUTION = 4.0
HORIZON = 18.0
"""Faults end by then, in virtual seconds."""


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """Chances, for each statement. What is left over goes well."""

    refused: float = 0.0
    lost_reply: float = 0.0
    lands_late: float = 0.0
    never_lands: float = 0.0
    stalled: float = 0.0


@dataclass(frozen=True, slots=True)
class UpstreamFaults:
    """Chances, for each request. What is left over executes and answers 201."""

    not_sent: float = 0.0
    slow_to_connect: float = 0.0
    slow: float = 0.0
    dropped: float = 0.0
    dropped_executed: float = 0.0
    late: float = 0.0
    truncated: float = 0.0
    raises: float = 0.0
    statuses: float = 0.0


@dataclass(frozen=True, slots=True)
class Accident:
    """Something that befalls one gateway at its `step`-th callback. `seconds` is how long it lasts; what crashed starts again then."""

    kind: str
    gateway: int
    step: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Outage:
    """The authority, or Redis, is away for one gateway (None: for all)."""

    store: str
    gateway: int | None
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Stall:
    """The authority's standby does not answer: what is committed is seen and not acknowledged. Then it goes on, or a failover to it takes
    back all that it did not have.
    """

    begins: float
    ends: float
    failover: bool


@dataclass(frozen=True, slots=True)
class Order:
    """One operation as a client wants it, and how stubbornly."""

    key: int
    principal: int
    variant: int
    tries: int
    patience: float
    cancels: bool
    gateway: int | None = None
    """None: any."""


@dataclass(frozen=True, slots=True)
class Script:
    """One client: it waits `starts` seconds, then gives its orders in turn."""

    starts: float
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    gateways: int
    tiered: bool
    policy: Policy
    authority: StoreFaults = field(default_factory=StoreFaults)
    redis: StoreFaults = field(default_factory=StoreFaults)
    upstream: UpstreamFaults = field(default_factory=UpstreamFaults)
    accidents: tuple[Accident, ...] = ()
    outages: tuple[Outage, ...] = ()
    flushes: tuple[float, ...] = ()
    stalls: tuple[Stall, ...] = ()
    probes: bool = False
    sweeps: bool = True
    scripts: tuple[Script, ...] = ()
    cached: bool = False
    """Whether gateways tell completed answers from their own memory."""

    @property
    def calm(self) -> bool:
        """Nothing at all goes wrong: then every operation must succeed."""
        return (
            self.authority == StoreFaults()
            and self.upstream == UpstreamFaults()
            and not self.accidents
            and not self.outages
            and not self.stalls
            and self.policy.retention > HORIZON
        )


def draw(random: Random) -> Scenario:
    """The scenario of a seed: in five of ten a mix of a few kinds of trouble, else one of five plots that a mix seldom arrives at."""
    return replace(_plot(random, _mixed(random)), cached=random.random() < 0.5)


def _plot(random: Random, scenario: Scenario) -> Scenario:
    plot = random.random()
    if plot < 0.1:
        return _orphan(random, scenario)
    if plot < 0.2:
        return _late_answer(random, scenario)
    if plot < 0.3:
        return _unreplicated(random, scenario)
    if plot < 0.4:
        return _taking_part(random, scenario)
    if plot < 0.5:
        return _accepted(random, scenario)
    return scenario


def _orphan(random: Random, scenario: Scenario) -> Scenario:
    """A gateway dies with its attempt; others ask for the same key about when its lease lapses, maybe before any sweep."""
    crash = Accident("crash", 0, random.randrange(5, 40), random.uniform(0.2, 4 * LEASE))
    return replace(
        scenario,
        accidents=(crash,),
        outages=(),
        authority=StoreFaults(),
        upstream=UpstreamFaults(slow=0.4),
        sweeps=random.random() < 0.3,
        scripts=(_on_one_key(random, 0.0, gateway=0), *(_on_one_key(random, random.uniform(0.9, 1.5) * LEASE) for _ in range(2))),
    )


def _late_answer(random: Random, scenario: Scenario) -> Scenario:
    """An attempt cannot settle until long after its lease; a probe may have given its record to another by then."""
    begins, ends = random.uniform(0.0, 0.35), random.uniform(2.4, 4.5) * LEASE
    accident = Accident("freeze", 0, random.randrange(5, 40), ends)
    frozen = random.random() < 0.5
    return replace(
        scenario,
        accidents=(accident,) if frozen else (),
        outages=() if frozen else (Outage("authority", 0, begins, ends),),
        tiered=random.random() < 0.7,
        authority=StoreFaults(),
        redis=StoreFaults(),
        upstream=UpstreamFaults(statuses=0.6, slow=0.1, dropped=0.3),
        probes=True,
        scripts=(_on_one_key(random, 0.0, gateway=0), *(_on_one_key(random, random.uniform(7, 13)) for _ in range(3))),
    )


def _unreplicated(random: Random, scenario: Scenario) -> Scenario:
    """The standby stalls while requests come, and mostly takes over; clients ask before, meanwhile and after."""
    begins = random.uniform(0.0, 1.0)
    stall = Stall(begins, begins + random.uniform(0.3, 2 * LEASE), failover=random.random() < 0.8)
    orders = (_on_one_key(random, random.uniform(0.0, stall.ends)) for _ in range(3))
    return replace(
        scenario,
        accidents=scenario.accidents[:1],
        outages=(),
        stalls=(stall,),
        upstream=UpstreamFaults(slow=0.3),
        scripts=(*orders, _on_one_key(random, stall.ends + random.uniform(0.0, 2 * LEASE))),
    )


def _taking_part(random: Random, scenario: Scenario) -> Scenario:
    """The upstream tells how far it has come and commits answers itself; attempts are lost, and retries resume them, or try to too early.

    No failover: what the upstream has written it would take back, too.
    """
    policy = replace(
        scenario.policy,
        participate=Participate(progress=True, co_commit=True),
        on_unknown=random.choice((OnUnknown.RESUME, OnUnknown.RESUME, OnUnknown.RECONCILE)),
        stream=False,
        limits=Limits(response_body=100_000),
        retention=1000.0,
        on_store_outage=OnStoreOutage.REJECT,
    )
    begins = (0.0, random.uniform(0.0, 2.0), *(random.uniform(3.0, 16.0) for _ in range(3)))
    return replace(
        scenario,
        policy=policy,
        upstream=UpstreamFaults(dropped=0.3, dropped_executed=0.1, late=0.3, slow=0.1, truncated=0.05, statuses=0.05),
        probes=False,
        scripts=tuple(_on_one_key(random, starts) for starts in begins),
    )


def _accepted(random: Random, scenario: Scenario) -> Scenario:
    """Requests are answered before they are executed; there are few slots, upstreams that cannot be reached, and gateways that die.

    No failover: it takes promises back that were kept by all rules.
    """
    policy = replace(
        scenario.policy,
        execution=Execution.ASYNC,
        concurrency=random.choice((1, 2)),
        pending_for=random.choice((3.0, 15.0)),
        in_flight=random.choice((InFlight.CONFLICT, InFlight.ACCEPTED)),
        stream=False,
        limits=Limits(response_body=100_000),
        retention=1000.0,
        on_store_outage=OnStoreOutage.REJECT,
    )
    return replace(
        scenario,
        policy=policy,
        upstream=random.choice((UpstreamFaults(not_sent=0.5, slow=0.2), UpstreamFaults(slow=0.5), scenario.upstream)),
        probes=True,
        scripts=tuple(_script(random) for _ in range(random.randrange(3, 8))),
    )


def _on_one_key(random: Random, starts: float, gateway: int | None = None) -> Script:
    return Script(starts, (Order(0, 0, 0, 3, random.choice((0.5, 2.0, 10.0)), cancels=False, gateway=gateway),))


def _mixed(random: Random) -> Scenario:
    gateways = random.choice((2, 2, 3))
    tiered = random.random() < 0.5
    trouble = {name: random.random() < 0.5 for name in ("authority", "redis", "upstream", "accidents", "outages")}
    return Scenario(
        gateways,
        tiered,
        _policy(random),
        authority=_store_faults(random) if trouble["authority"] else StoreFaults(),
        redis=_store_faults(random) if trouble["redis"] else StoreFaults(),
        upstream=_upstream_faults(random) if trouble["upstream"] else UpstreamFaults(),
        accidents=tuple(_accident(random, gateways) for _ in range(random.randrange(1, 4))) if trouble["accidents"] else (),
        outages=tuple(_outage(random, gateways) for _ in range(random.randrange(1, 3))) if trouble["outages"] else (),
        flushes=tuple(random.uniform(0, HORIZON) for _ in range(random.randrange(3))) if trouble["redis"] else (),
        probes=random.random() < 0.6,
        sweeps=random.random() < 0.8,
        scripts=tuple(_script(random) for _ in range(random.randrange(2, 6))),
    )


def _policy(random: Random) -> Policy:
    return Policy(
        scope="payments",
        principal=(HeaderPrincipal("X-Principal"),),
        in_flight=random.choice((InFlight.CONFLICT, InFlight.WAIT)),
        wait=random.choice((1.0, 4.0)),
        lease=LEASE,
        retention=random.choice((1000.0, 1000.0, 5.0)),
        on_expired=random.choice((OnExpired.EXECUTE, OnExpired.GONE)),
        on_store_outage=random.choice((OnStoreOutage.REJECT, OnStoreOutage.REJECT, OnStoreOutage.FORWARD)),
        limits=Limits(response_body=random.choice((100, 100_000, 100_000))),
        settle_timeout=random.choice((0.3, 1.0)),
        stream=random.random() < 0.2,
        max_execution=MAX_EXECUTION,
    )


def _store_faults(random: Random) -> StoreFaults:
    chance = random.choice((0.05, 0.15, 0.3))
    weights = [random.random() ** 2 for _ in range(5)]
    return StoreFaults(*(chance * weight / sum(weights) for weight in weights))


def _upstream_faults(random: Random) -> UpstreamFaults:
    chance = random.choice((0.3, 0.6, 0.9))
    weights = [random.random() ** 2 for _ in range(9)]
    return UpstreamFaults(*(chance * weight / sum(weights) for weight in weights))


def _accident(random: Random, gateways: int) -> Accident:
    kind = random.choice(("crash", "crash", "freeze", "freeze", "drain"))
    step = int(2 ** random.uniform(0, 9))
    return Accident(kind, random.randrange(gateways), step, random.uniform(0.2, 4 * LEASE))


def _outage(random: Random, gateways: int) -> Outage:
    begins = random.uniform(0, 4)
    who = random.choice((None, random.randrange(gateways)))
    return Outage(random.choice(("authority", "authority", "redis")), who, begins, begins + random.uniform(0.3, 4 * LEASE))


def _script(random: Random) -> Script:
    orders = tuple(_order(random) for _ in range(random.randrange(1, 4)))
    return Script(random.choice((0.0, 0.0, random.uniform(0, 3), random.uniform(3, 16))), orders)


def _order(random: Random) -> Order:
    return Order(
        key=random.choice((0, 0, 0, 1)),
        principal=random.choice((0, 0, 0, 0, 1)),
        variant=random.choice((0, 0, 0, 0, 0, 0, 1)),
        tries=random.randrange(1, 5),
        patience=random.choice((0.05, 0.5, 2.0, 10.0)),
        cancels=random.random() < 0.5,
    )
