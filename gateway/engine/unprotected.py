"""`on_store_outage: forward`: the operator chose availability over the promise while Postgres is away, for this route, knowingly."""

from gateway.core.decision import Label
from gateway.core.packing import INLINE
from gateway.core.upstream_answer import answer_fields
from gateway.engine.answers import Passed, Refused, Relayed, Reply
from gateway.engine.dependencies import Dependencies
from gateway.engine.failures import failed, tell_unreachable, unreachable
from gateway.engine.request import GuardedRequest, to_send
from gateway.engine.streams import UpstreamStream
from gateway.ports import DoubtReason, InDoubt, NotSent, UpstreamResponse


async def forward_unprotected(deps: Dependencies, request: GuardedRequest, label: Label = Label.UNPROTECTED) -> Reply:
    """Pass one request on without a record, under this label.

    On a route that enforces, only called when it is certain that nothing of its reserve reached Postgres.
    """
    started = deps.clock.boottime()
    status: int | None = None
    reason: str | None = None
    answer: Passed | Relayed | Refused
    try:
        response = await request.guard.upstream.send(to_send(request), lambda: True)
        status = response.status
        answer = await _answer(deps, request, response)
    except NotSent as failure:
        tell_unreachable(deps.observer, request.guard.upstream_name, failure)
        answer, reason = unreachable(failure), failure.reason.value
    except InDoubt as failure:
        reason = failure.reason.value
        answer = failed(reason)
    except Exception as error:  # a defect of ours: whether anything was sent is not known
        deps.observer.background_failed("attempt", error)
        reason = DoubtReason.GATEWAY_ERROR.value
        answer = failed(reason)
    seconds = deps.clock.boottime() - started
    deps.observer.upstream_answered(request.guard.route_id, status, seconds)
    return Reply(label, answer, reason=reason, upstream_seconds=seconds, upstream_status=status)


async def _answer(deps: Dependencies, request: GuardedRequest, response: UpstreamResponse) -> Passed | Relayed:
    """Whole, if it is small; else as it comes."""
    guard, date = request.guard, deps.clock.http_date()
    headers = answer_fields(request.method, response.status, response.headers, guard.removed, date, guard.added).to_client
    try:
        body = None if response.content_length is None else await response.read(INLINE)
    except BaseException:
        response.close()
        raise
    if body is None:
        return Relayed(response.status, response.reason, headers, response.content_length, UpstreamStream(response))
    response.close()
    return Passed(response.status, response.reason, headers, body)
