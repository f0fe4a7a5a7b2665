"""From an answer to its wire form: the fields that only the gateway adds, and problem documents."""

from collections.abc import Awaitable
from functools import partial
from typing import assert_never

from gateway.core.framing import says_close
from gateway.core.model import Headers
from gateway.core.problems import Problem
from gateway.core.proxy_status import IN_DOUBT, NOT_SENT, PROBLEMS, proxy_status
from gateway.engine.answers import Passed, Refused, Relayed, Replayed, Reply, Switched
from gateway.ports import Clock, Tunnel
from gateway.problem import ProblemWriter
from gateway.proxy.call import Call
from gateway.proxy.head import METHODS
from gateway.proxy.tunnel import join
from gateway.wire import Pieces, WireResponse, WireTunnel, reason_of

_UNREAD = frozenset(
    {
        Problem.BODY_TOO_LARGE,
        Problem.METHOD_REFUSED,
        Problem.CODING_UNSUPPORTED,
        Problem.VERSION_UNSUPPORTED,
        Problem.EXPECTATION_FAILED,
        Problem.BAD_REQUEST,
        Problem.REQUEST_TIMEOUT,
        Problem.OVERLOADED,
    }
)
"""Refusals after which the connection is closed: the rest of the body could be endless, or nobody knows where it ends."""


class Renderer:
    """Makes wire responses. `closing` makes every answer the last one on its connection, for a drain."""

    def __init__(self, problems: ProblemWriter, clock: Clock) -> None:
        self.problems = problems
        self.closing = False
        self._clock = clock

    def render(self, reply: Reply, call: Call) -> WireResponse:
        """The wire form of a reply; nothing is written yet."""
        answer, edge = reply.answer, call.routing.edge
        ours: Headers = ((b"X-Request-Id", call.request_id.encode()),)
        if edge.proxy_status:
            ours += ((b"Proxy-Status", _proxy_status(edge.name.decode(), reply)),)
        match answer:
            case Passed(status, reason, headers, body):
                length = None if isinstance(body, bytes) else body.length
                return self._wire(call, status, reason, _without_request_id(headers) + ours, body, length)
            case Relayed(status, reason, headers, length, body):
                return self._wire(call, status, reason, _without_request_id(headers) + ours, body, length)
            case Replayed(status, reason, headers, body, original):
                marks = ((b"Idempotent-Replayed", b"true"), (b"Original-Request", original.encode()))
                length = None if isinstance(body, bytes) else body.length
                return self._wire(call, status, reason, headers + marks + ours, body, length)
            case Switched(_, reason, headers, tunnel):
                upgrade: Headers = ((b"Upgrade", b"websocket"),)
                return WireTunnel(reason, _without_request_id(headers) + ours + upgrade, partial(_join, call, tunnel))
            case Refused():
                return self._refusal(answer, call, ours)
            case _:
                assert_never(answer)

    def _wire(self, call: Call, status: int, reason: bytes, headers: Headers, body: bytes | Pieces, length: int | None) -> WireResponse:
        return WireResponse(
            status, reason, headers, body, length=length, close=self._ends(call), send_timeout=call.routing.edge.send_timeout
        )

    def _ends(self, call: Call) -> bool:
        """Whether this answer is the last one, also where aiohttp does not see it: it lets `keep-alive` win in HTTP/1.0."""
        return self.closing or (call.request.version.minor == 0 and says_close(call.fields))

    def _refusal(self, refused: Refused, call: Call, ours: Headers) -> WireResponse:
        status, headers, body = self.problems.render(
            refused.problem,
            request_id=call.request_id,
            status=refused.status,
            retry_after=refused.retry_after,
            detail=refused.detail,
            members=refused.members,
        )
        more: Headers = ((b"Date", self._clock.http_date()),)
        if status == 405:
            more += ((b"Allow", METHODS),)
        # Nobody knows whether a client that asked first still sends its body once it is refused (RFC 9110 section 10.1.1).
        close = self._ends(call) or refused.problem in _UNREAD or call.waited_for
        return WireResponse(
            status, reason_of(status), headers + ours + more, body, close=close, send_timeout=call.routing.edge.send_timeout
        )


def _join(call: Call, tunnel: Tunnel) -> Awaitable[int]:
    return join(call.connection.take_over(), tunnel)


def _without_request_id(headers: Headers) -> Headers:
    """The upstream's own copy goes: the one answer has one request id, and it is the one in our log."""
    return tuple([field for field in headers if len(field[0]) != 12 or field[0].lower() != b"x-request-id"])


def _proxy_status(name: str, reply: Reply) -> bytes:
    """Our member of Proxy-Status (RFC 9209): why we answered ourselves, or what the next hop said."""
    answer = reply.answer
    if not isinstance(answer, Refused):
        return proxy_status(name, received_status=reply.upstream_status)
    cause = answer.cause or ""
    error = NOT_SENT.get(cause) or IN_DOUBT.get(cause) or PROBLEMS.get(answer.problem)
    return proxy_status(name, error=error, received_status=reply.upstream_status)
