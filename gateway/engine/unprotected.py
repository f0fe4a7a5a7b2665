"""`on_store_outage: forward`: the operator chose availability over the promise while Postgres is away, for this route, knowingly."""

from gateway.core.decision import Label
from gateway.core.headers import first, to_client
from gateway.core.problems import Problem
from gateway.engine.answers import Passed, Refused, Reply
from gateway.engine.attempt import Tools
from gateway.engine.request import GuardedRequest
from gateway.ports import InDoubt, NotSent, Upstream, UpstreamRequest


async def forward_unprotected(tools: Tools, request: GuardedRequest, upstream: Upstream) -> Reply:
    """Pass one request on without a record. Only called when it is certain that nothing of its reserve reached Postgres."""
    started = tools.clock.boottime()
    status: int | None = None
    framed = first(request.headers, b"content-length") is not None or first(request.headers, b"transfer-encoding") is not None
    wire = UpstreamRequest(request.method.encode(), request.target, request.upstream_headers, request.body, frame_empty=framed)
    answer: Passed | Refused
    try:
        response = await upstream.send(wire, lambda: True)
        try:
            status = response.status
            body = b"".join([chunk async for chunk in response.chunks()])
        finally:
            response.close()
        answer = Passed(response.status, response.reason, to_client(response.headers), body)
    except NotSent as failure:
        answer = Refused(Problem.UPSTREAM_UNREACHABLE, retry_after=1, members={"reason": failure.reason.value})
    except InDoubt:
        answer = Refused(Problem.UPSTREAM_FAILED)
    seconds = tools.clock.boottime() - started
    tools.observer.upstream_answered(request.route_id, status, seconds)
    return Reply(Label.UNPROTECTED, answer, upstream_seconds=seconds, upstream_status=status)
