"""What an observer is told of an attempt whose client has been answered before."""

from gateway.core.model import Lease
from gateway.engine.answers import Reply
from gateway.engine.dependencies import Dependencies
from gateway.engine.kept import KeptRequest
from gateway.ports import FinishedAttempt


def finished_attempt(deps: Dependencies, kept: KeptRequest, lease: Lease, waited: float, reply: Reply) -> FinishedAttempt:
    """`waited`: seconds from the acceptance to the lease."""
    return FinishedAttempt(
        request_id=kept.request_id,
        route=kept.guard.route_id,
        decision=reply.label,
        method=kept.method,
        record_id=lease.record_id,
        scope_id=lease.key.scope_id,
        key_digest=None if deps.digest is None else deps.digest(lease.key),
        attempt=lease.attempt,
        settlement=reply.settlement,
        reason=reply.reason,
        waited=waited,
        total_seconds=deps.clock.boottime() - lease.started,
        started=lease.started,
        upstream_started=reply.upstream_started,
        upstream_seconds=reply.upstream_seconds,
        upstream_status=reply.upstream_status,
        traceparent=kept.fields.first(b"traceparent"),
    )
