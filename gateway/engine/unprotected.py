"""`on_store_outage: forward`: the operator chose availability over the promise while Postgres is away, for this route, knowingly."""

from collections.abc import AsyncIterator

from gateway.core.decision import Label
from gateway.core.headers import first, to_client
from gateway.core.problems import Problem
from gateway.engine.answers import Passed, Refused, RelayCut, Relayed, Reply
from gateway.engine.attempt import Tools
from gateway.engine.request import GuardedRequest
from gateway.ports import InDoubt, NotSent, Upstream, UpstreamRequest, UpstreamResponse


async def forward_unprotected(tools: Tools, request: GuardedRequest, upstream: Upstream) -> Reply:
    """Pass one request on without a record. Only called when it is certain that nothing of its reserve reached Postgres."""
    started = tools.clock.boottime()
    status: int | None = None
    framed = first(request.headers, b"content-length") is not None or first(request.headers, b"transfer-encoding") is not None
    wire = UpstreamRequest(request.method.encode(), request.target, request.forward(), request.body, frame_empty=framed)
    answer: Passed | Relayed | Refused
    try:
        response = await upstream.send(wire, lambda: True)
        status = response.status
        answer = await _answer(tools, request, response)
    except NotSent as failure:
        answer = Refused(Problem.UPSTREAM_UNREACHABLE, retry_after=1, members={"reason": failure.reason.value})
    except InDoubt:
        answer = Refused(Problem.UPSTREAM_FAILED)
    except Exception as error:  # a defect of ours: whether anything was sent is not known
        tools.observer.background_failed("attempt", error)
        answer = Refused(Problem.UPSTREAM_FAILED)
    seconds = tools.clock.boottime() - started
    tools.observer.upstream_answered(request.route_id, status, seconds)
    return Reply(Label.UNPROTECTED, answer, upstream_seconds=seconds, upstream_status=status)


async def _answer(tools: Tools, request: GuardedRequest, response: UpstreamResponse) -> Passed | Relayed:
    """Whole, if it is known to be small; else as it comes."""
    headers = to_client(response.headers)
    if first(headers, b"date") is None:
        headers += ((b"Date", tools.clock.http_date()),)
    if response.content_length is None or response.content_length > request.policy.limits.response_body:
        return Relayed(response.status, response.reason, headers, response.content_length, _relay(response))
    try:
        body = b"".join([chunk async for chunk in response.chunks()])
    finally:
        response.close()
    return Passed(response.status, response.reason, headers, body)


async def _relay(response: UpstreamResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.chunks():
            yield chunk
    except InDoubt as error:
        raise RelayCut from error
    finally:
        response.close()
