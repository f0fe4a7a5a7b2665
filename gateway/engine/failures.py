"""What a client is told where the upstream gave no whole answer, and what the log tells the upstream's operator."""

import math

from gateway.core.decision import RETRY_AFTER_MAX
from gateway.core.failures import FAILURES
from gateway.engine.answers import Refused
from gateway.ports import DoubtReason, NotSent, Observer


def tell_unreachable(observer: Observer, upstream: str, failure: NotSent) -> None:
    """Tell the upstream's operator why the gateway could not reach it. What this gateway decided by itself is no news
    of the upstream.
    """
    if not FAILURES[failure.reason].ours:
        cause = failure.__cause__
        observer.upstream_unreachable(upstream, failure.reason.value, None if cause is None else f"{type(cause).__name__}: {cause}")


def unreachable(failure: NotSent) -> Refused:
    """The answer when the gateway sent nothing of the request."""
    retry_after = 1 if failure.retry_after is None else min(RETRY_AFTER_MAX, max(1, math.ceil(failure.retry_after)))
    reason, known = failure.reason.value, FAILURES[failure.reason]
    return Refused(known.problem, known.status, retry_after, members={"reason": reason}, cause=reason)


def failed(cause: str | None) -> Refused:
    """What a client is told of a request without a record, of which a byte may have been sent. `cause`
    is the word of a `DoubtReason`, None where no reason is known.
    """
    known = FAILURES[DoubtReason.GATEWAY_ERROR if cause is None else cause]
    return Refused(known.problem, known.status, cause=cause)


def status_in_doubt(cause: str | None) -> int:
    return FAILURES[DoubtReason.GATEWAY_ERROR if cause is None else cause].status
