"""The plain hop: requests that no guard concerns stream through both ways, in bounded memory, and touch no store."""

from collections.abc import AsyncIterator

from gateway.core.decision import Label
from gateway.core.headers import end_to_end
from gateway.core.model import Headers
from gateway.core.problems import Problem
from gateway.engine.answers import Answer, Passed, Refused, RelayCut, Relayed, Reply
from gateway.ports import Clock, DoubtReason, InDoubt, NotSent, NotSentReason, Upstream, UpstreamRequest, UpstreamResponse
from gateway.proxy.body import expect_continue, read_body, stream_body
from gateway.proxy.call import Call

SMALL_BODY = 64 * 1024
"""Bodies announced to be at most this long are read whole first: one write instead of several."""

_STATUSES = {NotSentReason.CONNECT_TIMEOUT: 504, NotSentReason.NO_SLOT: 503, NotSentReason.SHUTTING_DOWN: 503}
_TIMEOUTS = {DoubtReason.FIRST_BYTE_TIMEOUT, DoubtReason.READ_TIMEOUT, DoubtReason.TOTAL_TIMEOUT}


async def pass_through(call: Call, wire_headers: Headers, upstream: Upstream, clock: Clock) -> Reply:
    """Forward one request and relay its answer. `wire_headers` are the fields as the upstream shall see them."""
    started = clock.boottime()
    status: int | None = None
    answer: Answer
    try:
        expect_continue(call.request, call.fields.first(b"expect"))
        response = await upstream.send(await _wire_request(call, wire_headers), _no_fence)
        status = response.status
        answer = await _answer(call.request.method, response)
    except NotSent as failure:
        members = {"reason": failure.reason.value}
        answer = Refused(Problem.UPSTREAM_UNREACHABLE, _STATUSES.get(failure.reason), retry_after=1, members=members)
    except InDoubt as failure:
        answer = Refused(Problem.UPSTREAM_FAILED, 504 if failure.reason in _TIMEOUTS else None)
    return Reply(Label.BYPASS, answer, upstream_seconds=clock.boottime() - started, upstream_status=status)


def _no_fence() -> bool:
    return True


async def _wire_request(call: Call, wire_headers: Headers) -> UpstreamRequest:
    method = call.request.method.encode()
    announced = call.fields.first(b"content-length")
    length = int(announced) if announced is not None else None
    if not call.request.body_exists:
        return UpstreamRequest(method, call.target, wire_headers, b"", frame_empty=length == 0)
    if length is not None and length <= SMALL_BODY:
        body = await read_body(call.request, length)
        return UpstreamRequest(method, call.target, wire_headers, body, frame_empty=True)
    return UpstreamRequest(method, call.target, wire_headers, stream_body(call.request), length)


async def _answer(method: str, response: UpstreamResponse) -> Answer:
    headers = end_to_end(response.headers)
    bodiless = method == "HEAD" or response.status in {204, 304}
    if not bodiless and response.content_length is not None and (body := await _read_small(response)) is not None:
        return Passed(response.status, response.reason, headers, body)
    return Relayed(response.status, response.reason, headers, response.content_length, _relay(response))


async def _read_small(response: UpstreamResponse) -> bytes | None:
    """The whole body if it is announced to be small. Whatever goes wrong meanwhile cuts the connection."""
    try:
        body = await response.read(SMALL_BODY)
    except BaseException:
        response.close()
        raise
    if body is not None:
        response.close()
    return body


async def _relay(response: UpstreamResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.chunks():
            yield chunk
    except InDoubt as error:
        raise RelayCut from error
    finally:
        response.close()
