"""How much one caller may begin: new keys by rate, and attempts at a time. Pure.

*New keys* are counted by the generic cell rate algorithm: one instant per caller says when all that was taken is earned again (the
theoretical arrival time of virtual scheduling, ITU-T I.371). So there is no window with an edge: in any span of time a caller gets at most
`burst` and what the rate earns in that span. `store/lua/admit.lua` takes the same steps in Redis, in the same order of operations, so that
both count alike to the last bit. Instants and waits are microseconds.
"""

import enum
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from gateway.core.kinds import RateWord, Whole
from gateway.core.setting import Shape
from gateway.core.units import Rate

LONGEST_WAIT = 60
"""Seconds: client libraries use Retry-After (RFC 9110 section 10.2.3) only as an integer from 1 to 60."""

POLICY_FIELD, LIMIT_FIELD = b"RateLimit-Policy", b"RateLimit"


@dataclass(frozen=True, slots=True)
class NewKeys:
    """`burst` None: as many as `rate` names."""

    rate: Annotated[Rate, RateWord("10000/s"), "How many new operations a caller may begin, such as 50/s or 100/min."]
    burst: Annotated[
        int | None, Whole(1, 1_000_000), "How many of them may come at once, after a pause. Default: as many as `rate` names."
    ] = None

    @property
    def interval(self) -> float:
        """Microseconds in which one is earned, in halves: so sums of instants are exact in a double, however many are taken at once."""
        return round(2 * self.rate.seconds * 1_000_000 / self.rate.count) / 2

    @property
    def at_once(self) -> int:
        return self.rate.count if self.burst is None else self.burst


@dataclass(frozen=True, slots=True)
class Quota:
    """What one caller may take in one scope."""

    SHAPE: ClassVar = Shape(some=("in_flight", "new_keys"))

    in_flight: Annotated[int | None, Whole(1, 100_000), "How many of a caller's operations may run at a time, for clients that wait."] = (
        None
    )
    new_keys: Annotated[NewKeys | None, "How many new operations a caller may begin."] = None


class Limit(enum.StrEnum):
    """Which limit a request exceeds, as clients and logs are told."""

    NEW_KEYS = "new-keys"
    IN_FLIGHT = "in-flight"


@dataclass(frozen=True, slots=True)
class Exceeded:
    """`wait`: microseconds after which it is worth another try, at least 1."""

    limit: Limit
    wait: int

    @property
    def retry_after(self) -> int:
        """In whole seconds, as a client is told."""
        return min(max(math.ceil(self.wait / 1e6), 1), LONGEST_WAIT)


def take(tat: float, now: float, interval: float, burst: int) -> tuple[float, int]:
    """One more at `now`, of a caller whose instant is `tat`: the instant from then on, and 0; or how long to wait, with nothing taken.

    An instant that no rate of this size leads to (the clock was turned back, the rate is another by now) counts as nothing being left.
    """
    full = interval * burst
    tat = min(max(tat, now), now + full)
    wait = tat + interval - full - now
    if wait > 0:
        return tat, math.ceil(wait)
    return tat + interval, 0


def give_back(tat: float, now: float, interval: float) -> float:
    """The instant, as if one had not been taken. At or before `now` it says nothing: all is there."""
    return max(tat - interval, now)


def rate_limit_fields(quota: Quota, exceeded: Exceeded) -> tuple[tuple[bytes, bytes], ...]:
    """What a refused client is told of its quotas (draft-ietf-httpapi-ratelimit-headers-10)."""
    policies = []
    if quota.new_keys is not None:
        burst, interval = quota.new_keys.at_once, quota.new_keys.interval
        policies.append(b'"%b";q=%d;w=%d' % (Limit.NEW_KEYS.encode(), burst, max(math.ceil(burst * interval / 1e6), 1)))
    if quota.in_flight is not None:
        policies.append(b'"%b";q=%d;qu="concurrent-requests"' % (Limit.IN_FLIGHT.encode(), quota.in_flight))
    left = b'"%b";r=0;t=%d' % (exceeded.limit.encode(), exceeded.retry_after)
    return ((POLICY_FIELD, b", ".join(policies)), (LIMIT_FIELD, left))
