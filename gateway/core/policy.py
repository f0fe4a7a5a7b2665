"""What a route map says, resolved: routes, and the policy of each guarded one. Durations are seconds, sizes are bytes."""

import enum
from dataclasses import dataclass, field


class KeyMode(enum.StrEnum):
    """How strictly a key's spelling is judged; see `gateway.core.key`."""

    LENIENT = "lenient"
    STRICT = "strict"
    RAW = "raw"


class BodyMode(enum.StrEnum):
    """Which part of the body the fingerprint covers; see `gateway.core.fingerprint`."""

    AUTO = "auto"
    JSON = "json"
    BYTES = "bytes"
    NONE = "none"


class InFlight(enum.StrEnum):
    """What a duplicate of a running request gets."""

    CONFLICT = "conflict"
    WAIT = "wait"


class OnExpired(enum.StrEnum):
    """What a request under an expired record gets."""

    EXECUTE = "execute"
    GONE = "gone"


class OnStoreOutage(enum.StrEnum):
    """What a guarded request gets while Postgres cannot be asked."""

    REJECT = "reject"
    FORWARD = "forward"


class ForwardKey(enum.StrEnum):
    """Which key the upstream sees: the client's field lines, a keyed digest of scope and key, or none."""

    AS_RECEIVED = "as_received"
    DERIVED = "derived"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """Where the key is and which spellings count. Lengths are characters of the key itself, quotes not counted."""

    header: str = "Idempotency-Key"
    required: bool = True
    mode: KeyMode = KeyMode.LENIENT
    min_length: int = 1
    max_length: int = 255


@dataclass(frozen=True, slots=True)
class FingerprintPolicy:
    """What a request means on a route. `headers` are lower-case names; `ignore` are JSON pointers (RFC 6901)."""

    body: BodyMode = BodyMode.AUTO
    headers: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes: the largest request body that is taken, and the largest answer that is held until its commit."""

    request_body: int = 1024 * 1024
    response_body: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Policy:
    """How one route is guarded. `principal` holds header names; empty means `none`: one scope for all callers, spelled out."""

    scope: str
    principal: tuple[str, ...]
    key: KeyPolicy = field(default_factory=KeyPolicy)
    fingerprint: FingerprintPolicy = field(default_factory=FingerprintPolicy)
    in_flight: InFlight = InFlight.CONFLICT
    wait: float = 10.0
    lease: float = 30.0
    retention: float = 86400.0
    on_expired: OnExpired = OnExpired.EXECUTE
    release_on: frozenset[int] = frozenset({401, 407, 421, 425, 429})
    doubt_on: frozenset[int] = frozenset({408, 502, 503, 504})
    on_store_outage: OnStoreOutage = OnStoreOutage.REJECT
    limits: Limits = field(default_factory=Limits)
    settle_timeout: float = 2.0
    stream: bool = False
    forward_key: ForwardKey = ForwardKey.AS_RECEIVED
    max_execution: float = 120.0


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the route map. `policy` is None for a route that passes straight through.

    `methods` is empty for "any method". `path` is the pattern as written: literals, `{parameters}`, a closing `/**`.
    """

    id: str
    path: str
    upstream: str
    methods: frozenset[str] = frozenset()
    policy: Policy | None = None
