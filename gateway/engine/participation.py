"""What an upstream that takes part is told of an attempt, and what it has committed by itself."""

from dataclasses import replace

from gateway.core.attempt_token import AttemptToken, write_token
from gateway.core.hints import HintedOutcome
from gateway.core.model import Headers, Lease, Status
from gateway.core.recovery_point import RecoveryPoint, field_value
from gateway.engine.dependencies import Dependencies
from gateway.engine.outcome import Outcome, Response
from gateway.engine.request import GuardedRequest
from gateway.engine.response_packing import whole_body
from gateway.ports import NotSent, NotSentReason, StoreUnavailable, UpstreamRequest


async def last_point(deps: Dependencies, lease: Lease) -> RecoveryPoint | None:
    """Where the attempts before have stopped. Raises `NotSent`: an upstream that does not hear of it would begin anew."""
    assert deps.participation is not None, "some route takes part"
    try:
        progress = await deps.participation.progress(AttemptToken(lease.key, lease.owner))
    except StoreUnavailable as error:
        raise NotSent(NotSentReason.POINT_UNKNOWN) from error
    if progress is None:
        raise NotSent(NotSentReason.LEASE_LAPSED)
    return progress.point


def told(request: UpstreamRequest, lease: Lease, point: RecoveryPoint | None) -> UpstreamRequest:
    """The request with what the upstream is told of its attempt. No client's fields of these names come as far as this."""
    token = write_token(AttemptToken(lease.key, lease.owner)).encode()
    fields: Headers = ((b"Idempotency-Token", token), (b"Idempotency-Attempt", b"%d" % lease.attempt))
    if point is not None:
        fields += ((b"Idempotency-Recovery-Point", point.label.encode()),)
        fields += ((b"Idempotency-Recovery-Data", b"{}" if point.data is None else field_value(point.data)),)
    lines = None if request.lines is None else request.lines + b"".join([b"%b: %b\r\n" % field for field in fields])
    return replace(request, headers=request.headers + fields, lines=lines)


async def committed(deps: Dependencies, request: GuardedRequest, lease: Lease, outcome: Outcome) -> Response | None:
    """The answer that the upstream, or somebody who knows better than its answer over HTTP, has completed the record with; None: there is
    none, or nobody can tell now. Without a lock, so that a transaction that is not done yet holds nobody up.
    """
    try:
        found = await deps.store.find(lease.key)
    except StoreUnavailable:
        return None
    if found is None or found.owner != lease.owner or found.status is not Status.COMPLETED:
        return None
    kept = found.response
    if kept is None or kept.body is None:
        return None
    if isinstance(outcome, Response) and (outcome.status, outcome.digest) != (kept.status, kept.body_digest):
        deps.observer.answer_differs(request.guard.route_id, request.request_id)
    try:
        body = await whole_body(deps, kept)
    except ValueError as error:
        deps.observer.background_failed("replay", error)
        return None
    headers, length, digest = kept.headers, kept.body_length, kept.body_digest
    return Response(kept.status, kept.reason, headers, headers, body, length, digest, HintedOutcome.COMPLETED)
