"""What a client is told where the upstream gave no whole answer, and what whoever runs the upstream is told of it."""

import math

from gateway.core.decision import RETRY_AFTER_MAX
from gateway.core.failures import STATUSES
from gateway.core.problems import Problem
from gateway.engine.answers import Refused
from gateway.ports import DoubtReason, NotSent, NotSentReason, Observer

_OUR_OWN = {NotSentReason.LEASE_LAPSED, NotSentReason.SHUTTING_DOWN, NotSentReason.CIRCUIT_OPEN, NotSentReason.SCOPE_UNCONFIRMED}


def tell_unreachable(observer: Observer, upstream: str, failure: NotSent) -> None:
    """Why the upstream could not be reached, for whoever runs it. What this gateway decided by itself is no news of the upstream."""
    if failure.reason not in _OUR_OWN:
        cause = failure.__cause__
        observer.upstream_unreachable(upstream, failure.reason.value, None if cause is None else f"{type(cause).__name__}: {cause}")


def unreachable(failure: NotSent) -> Refused:
    """What a client is told when nothing of its request was sent."""
    retry_after = 1 if failure.retry_after is None else min(RETRY_AFTER_MAX, max(1, math.ceil(failure.retry_after)))
    reason = failure.reason
    return Refused(Problem.UPSTREAM_UNREACHABLE, STATUSES[reason.value], retry_after, members={"reason": reason.value}, cause=reason.value)


def failed(cause: str | None) -> Refused:
    """What a client is told of a request that nobody keeps a record of, and of which a byte may have been sent. `cause` is the word of a
    `DoubtReason`, None where nobody knows.
    """
    return Refused(Problem.UPSTREAM_FAILED, status_in_doubt(cause), cause=cause)


def status_in_doubt(cause: str | None) -> int:
    return STATUSES[DoubtReason.GATEWAY_ERROR.value if cause is None else cause]
