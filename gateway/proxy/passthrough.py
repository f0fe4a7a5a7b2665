"""Requests on unguarded routes, or without a key where none is required. They stream both ways at the pace of the slower side, with bounded
memory, and touch no store.
"""

from collections.abc import AsyncIterator
from functools import partial

from gateway.core.decision import Label
from gateway.core.headers import cross, to_client, upgrade_of
from gateway.core.model import Headers
from gateway.engine.answers import Answer, Passed, Relayed, Reply, Switched
from gateway.engine.failures import failed, tell_unreachable, unreachable
from gateway.engine.streams import UpstreamStream
from gateway.http.body import ClientGone, ClientSilent, stream_body
from gateway.http.response import send_informational
from gateway.plan import RoutePlan
from gateway.ports import Clock, DoubtReason, InDoubt, NotSent, Observer, UpstreamRequest, UpstreamResponse
from gateway.proxy.call import Call

SMALL_BODY = 64 * 1024
"""Bodies announced to be at most this long are read whole first: one write instead of several."""


async def pass_through(call: Call, plan: RoutePlan, wire_headers: Headers, clock: Clock, observer: Observer) -> Reply:
    """Forward one request to its route's upstream, and relay the answer. `wire_headers` are the fields as the upstream shall see them.

    Raises `ClientGone` and `ClientSilent` when the request never becomes whole; cancelled, it cuts the upstream's connection.
    """
    started = clock.boottime()
    status: int | None = None
    reason: str | None = None
    answer: Answer
    try:
        call.go_on()
        response = await plan.upstream.send(await _wire_request(call, plan, wire_headers), _no_fence)
        status = response.status
        answer = await _answer(call.method, response, clock, plan)
    except NotSent as failure:
        tell_unreachable(observer, plan.route.upstream, failure)
        answer, reason = unreachable(failure), failure.reason.value
    except InDoubt as failure:
        reason = failure.reason.value
        answer = failed(reason)
    except (ClientGone, ClientSilent):
        raise
    except Exception as error:  # a defect of ours: whether anything was sent is not known
        observer.background_failed("attempt", error)
        reason = DoubtReason.GATEWAY_ERROR.value
        answer = failed(reason)
    seconds = clock.boottime() - started
    return Reply(Label.BYPASS, answer, reason=reason, upstream_seconds=seconds, upstream_status=status, upstream_started=started)


def _no_fence() -> bool:
    return True


async def _wire_request(call: Call, plan: RoutePlan, wire_headers: Headers) -> UpstreamRequest:
    method = call.method.encode()
    target = call.origin_form if plan.rewriting is None else plan.rewriting.apply(call.origin_form)
    announced = call.fields.first(b"content-length")
    length = int(announced) if announced is not None else None
    if call.body_read:
        return _read_already(call, method, target, wire_headers)
    framed = False
    body: bytes | AsyncIterator[bytes] = b""
    if not call.body.exists:
        framed = length == 0
    elif length is not None and length <= SMALL_BODY:
        body, framed = await _whole(call), True
    else:
        body = stream_body(call, call.pace())
    return UpstreamRequest(
        method,
        target,
        wire_headers,
        body,
        length,
        framed,
        lasting=True,
        upgrade=_upgrade(call),
        informational=partial(send_informational, call),
    )


async def _whole(call: Call) -> bytes:
    """The body, which mostly came along with its head."""
    if call.body.complete:
        return call.body.take()
    return b"".join([piece async for piece in stream_body(call, call.pace())])


def _read_already(call: Call, method: bytes, target: bytes, headers: Headers) -> UpstreamRequest:
    """A request whose body was read in search of a key."""
    body = call.payload
    if isinstance(body, bytes):
        return UpstreamRequest(method, target, headers, body, frame_empty=True, lasting=True)
    return UpstreamRequest(method, target, headers, body.pieces(), body.length, lasting=True)


def _upgrade(call: Call) -> bytes | None:
    return upgrade_of(call.method, call.fields, b"%d.%d" % call.version) if call.connection.upgradable else None


async def _answer(method: str, response: UpstreamResponse, clock: Clock, plan: RoutePlan) -> Answer:
    """Whole, if it is announced to be small; else as it comes. RFC 9110 section 6.6.1: what has no Date gets the date of its receipt."""
    if response.status == 101:
        headers = tuple([field for field in to_client(response.headers) if field[0].lower() != b"x-request-id"])
        return Switched(response.status, response.reason, headers, response.tunnel())
    headers = cross(response.headers, clock.http_date(), removed=plan.removed, added=plan.added).to_client
    bodiless = method == "HEAD" or response.status in {204, 304}
    if not bodiless and response.content_length is not None and (body := await _read_small(response)) is not None:
        return Passed(response.status, response.reason, headers, body)
    return Relayed(response.status, response.reason, headers, response.content_length, UpstreamStream(response))


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
