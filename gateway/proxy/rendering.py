"""From an answer to its wire form: the fields that only the gateway adds, and problem documents."""

from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from typing import assert_never, cast

from orjson import OPT_APPEND_NEWLINE, dumps

from gateway.core.accepted import operation_id
from gateway.core.cors import expose, first_opened, opened, origin_of, replay_opened
from gateway.core.decision import DOUBT, Label
from gateway.core.dialect import answer_to, conflict_answer, mark_first, mark_replay, render
from gateway.core.dialect_template import PLACEHOLDERS
from gateway.core.framing import says_close
from gateway.core.model import Headers
from gateway.core.policy import Execution, Policy
from gateway.core.problems import Problem, Retry, retry_of
from gateway.core.proxy_status import error_of, proxy_status
from gateway.core.status_headers import DUPLICATE, EXPIRES, MARKS, RETRY, STATUS, expires, exposed, mark
from gateway.engine.answers import Passed, Promised, Refused, Relayed, Replayed, Reply, Switched
from gateway.http.problem import ProblemWriter
from gateway.http.response import Patience, Pieces, WireResponse, WireTunnel, beginning, lines_of, reason_of
from gateway.http.tunnel import join
from gateway.ports import Body, Clock, Tunnel
from gateway.proxy.call import Call
from gateway.proxy.head import METHODS

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
        ours = b"X-Request-Id: %b\r\n" % call.request_id.encode()
        if edge.proxy_status:
            ours += b"Proxy-Status: %b\r\n" % _proxy_status(edge.name.decode(), reply)
        match answer:
            case Passed(status, reason, headers, body):
                length = None if isinstance(body, bytes) else body.length
                return self._wire(call, status, beginning(status, reason, self._first(headers, call, reply)) + ours, body, length)
            case Relayed(status, reason, headers, length, body):
                return self._wire(call, status, beginning(status, reason, self._first(headers, call, reply)) + ours, body, length)
            case Replayed():
                return self._replay(answer, call, reply, ours)
            case Switched(_, reason, headers, tunnel):
                return WireTunnel(beginning(101, reason, headers) + ours + b"Upgrade: websocket\r\n", partial(_join, call, tunnel))
            case Refused():
                return self._refusal(answer, call, reply, ours)
            case Promised():
                return self._promised(answer, call, reply, ours)
            case _:
                assert_never(answer)

    def _first(self, headers: Headers, call: Call, reply: Reply) -> Headers:
        """The fields of an answer that comes from the upstream."""
        fields = self._marked_first(headers, call, reply)
        return fields if call.cors is None else first_opened(fields, call.cors, origin_of(call.fields), _to_see(call))

    def _marked_first(self, headers: Headers, call: Call, reply: Reply) -> Headers:
        if call.unlisted is not None:
            return marked(headers, call.unlisted, exposed(call.unlisted), reply)
        if not call.guarded or call.guard.observes:
            return headers
        guard = call.guard
        dialect = guard.policy.dialect
        if dialect.first_headers and reply.label in (Label.EXECUTE, Label.EXECUTE_RETRY, Label.REEXECUTE):
            headers = mark_first(headers, dialect, Values(call, reply))
        return marked(headers, guard.policy, guard.exposed, reply) if guard.marks else headers

    def _replay(self, answer: Replayed, call: Call, reply: Reply, ours: bytes) -> WireResponse:
        guard, origin, remembered = call.guard, origin_of(call.fields), answer.remembered
        if remembered is not None and guard.replays_alike and origin is None and call.cors is None:
            if remembered.wire is None or remembered.wire_for is not guard:
                fields = self._marked_replay(answer.headers, call, reply)
                remembered.wire, remembered.wire_for = beginning(answer.status, answer.reason, fields), guard
            return self._wire(call, answer.status, remembered.wire + ours, answer.body, None)
        policy = guard.policy
        whole = answer.body if isinstance(answer.body, bytes) else None
        conflict = conflict_answer(policy.dialect, answer.status, whole)
        if conflict is not None:
            template, stored = conflict
            date = self._clock.http_date()
            status, headers, body = render(template, {**Values(call, reply), **stored, "date": date.decode()})
            fields = _opened(marked(headers, policy, guard.exposed, reply), call)
            return self._wire(call, status, b"%b%bDate: %b\r\n" % (beginning(status, reason_of(status), fields), ours, date), body, None)
        length = None if whole is not None else cast("Body", answer.body).length
        kept = answer.headers
        if origin is not None and call.cors is None:
            kept = replay_opened(kept, None, origin, ())
        fields = self._marked_replay(kept, call, reply)
        if call.cors is not None:
            fields = replay_opened(fields, call.cors, origin, _to_see(call))
        return self._wire(call, answer.status, beginning(answer.status, answer.reason, fields) + ours, answer.body, length)

    def _marked_replay(self, kept: Headers, call: Call, reply: Reply) -> Headers:
        guard = call.guard
        fields = mark_replay(kept, guard.policy.dialect, Values(call, reply))
        return marked(fields, guard.policy, guard.exposed, reply) if guard.marks else fields

    def _wire(self, call: Call, status: int, begun: bytes, body: bytes | Pieces, length: int | None) -> WireResponse:
        return WireResponse(status, begun, body, length=length, close=self._ends(call), patience=_patience(call))

    def _ends(self, call: Call) -> bool:
        """Whether this answer is the last one, also where the parser does not see it: it lets `keep-alive` win in HTTP/1.0.

        After CONNECT, whatever it was refused for, the client may send what is no HTTP (RFC 9110 section 9.3.6).
        """
        return self.closing or call.method == "CONNECT" or (call.version[1] == 0 and says_close(call.fields))

    def _promised(self, answer: Promised, call: Call, reply: Reply, ours: bytes) -> WireResponse:
        """Where the client can look how its operation stands."""
        guard, at = call.guard, location(call, answer.key.key)
        told: Headers = (
            (b"Content-Type", b"application/json"),
            (b"Location", at),
            (b"Link", b'<%b>; rel="monitor"' % at),
            (b"Retry-After", b"%d" % answer.retry_after),
            (b"Cache-Control", b"no-store"),
        )
        if guard.policy.execution is Execution.PREFER:
            told += ((b"Preference-Applied", b"respond-async"), (b"Vary", b"Prefer"))
        if guard.marks:
            told = marked(told, guard.policy, guard.exposed, reply)
        body = dumps({"status": answer.status.value, "operation": at.decode()}, option=OPT_APPEND_NEWLINE)
        told = (*_opened(told, call), (b"Date", self._clock.http_date()))
        begun = beginning(202, reason_of(202), told) + ours
        return WireResponse(202, begun, body, close=self._ends(call), patience=_patience(call))

    def _refusal(self, refused: Refused, call: Call, reply: Reply, ours: bytes) -> WireResponse:
        guard, date = call.guard if call.guarded else None, self._clock.http_date()
        retry = _retry(refused, call)
        template = None if guard is None else answer_to(guard.policy.dialect, refused.problem)
        if template is not None:
            values = {**Values(call, reply), "date": date.decode()}
            status, headers, body = render(template, values, None if refused.problem is Problem.KEY_REUSED else refused.status)
        else:
            status, headers, body = self.problems.render(
                refused.problem,
                request_id=call.request_id,
                status=refused.status,
                retry_after=refused.retry_after,
                detail=refused.detail,
                members=refused.members,
                challenges=refused.challenges,
                retry=retry,
            )
        more: Headers = () if any(name.lower() == b"date" for name, _ in headers) else ((b"Date", date),)
        more += refused.fields
        if status == 405:
            more += ((b"Allow", refused.allow or METHODS),)
        if guard is not None and guard.marks:
            headers = marked(headers, guard.policy, guard.exposed, reply, retry)
        headers = _opened(headers, call)
        # Nobody knows whether a client that asked first still sends its body once it is refused (RFC 9110 section 10.1.1).
        close = self._ends(call) or refused.problem in _UNREAD or call.waited_for
        begun = beginning(status, reason_of(status), headers) + ours + lines_of(more)
        return WireResponse(status, begun, body, close=close, patience=_patience(call))


def location(call: Call, key: str) -> bytes:
    """Where an operation of this route is."""
    return (call.routing.edge.operations or b"") + b"/" + operation_id(call.guard.policy.scope, key).encode()


def _retry(refused: Refused, call: Call) -> Retry:
    return refused.retry or retry_of(refused.problem, retry_after=refused.retry_after, method=call.method)


def _opened(headers: Headers, call: Call) -> Headers:
    """An answer of our own, for the page that asked."""
    return headers if call.cors is None else opened(headers, call.cors, origin_of(call.fields), _to_see(call))


def _to_see(call: Call) -> tuple[bytes, ...]:
    """The fields of ours that a page's script needs to see."""
    return call.guard.exposed if call.guarded else _PLAIN


_PLAIN = (b"Retry-After", b"X-Request-Id")


class Values(Mapping[str, str]):
    """What a dialect's placeholders stand for in one answer; each is made when it is asked for."""

    __slots__ = ("_call", "_reply")

    def __init__(self, call: Call, reply: Reply) -> None:
        self._call = call
        self._reply = reply

    def __getitem__(self, name: str) -> str:
        answer, call, expires_at_us = self._reply.answer, self._call, self._reply.expires_at_us
        match name:
            case "key":
                return call.key.key if call.key_digest is not None else ""
            case "request_id":
                return call.request_id
            case "original_request":
                return (answer.original_request or "") if isinstance(answer, Replayed | Refused) else call.request_id
            case "expires" if expires_at_us is not None:
                return expires(expires_at_us).decode()
            case "original_status" if isinstance(answer, Replayed):
                return str(answer.status)
            case "retry" if isinstance(answer, Refused):
                return _retry(answer, call).value
            case _ if isinstance(answer, Refused):
                return _of_refusal(answer, name)
            case _:
                raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in PLACEHOLDERS if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _of_refusal(refused: Refused, name: str) -> str:
    match name:
        case "detail":
            return refused.detail or refused.problem.value.detail
        case "retry_after":
            return "" if refused.retry_after is None else str(refused.retry_after)
        case "original_status":
            return str(refused.members.get("original_status", ""))
        case _:
            raise KeyError(name)


def marked(headers: Headers, policy: Policy, to_see: tuple[bytes, ...], reply: Reply, retry: Retry | None = None) -> Headers:
    """With what the route wants its clients to be told of their keys, and browsers to be shown: the fields `to_see`. `retry` is what a
    refusal says.
    """
    if policy.status_fields or policy.mark_duplicates:
        headers = tuple([field for field in headers if field[0].lower() not in MARKS])
    said = mark(reply.label, doubtful=_in_doubt(reply)) if policy.status_fields else None
    if said is not None:
        headers += ((STATUS, said.value.encode()),)
    if policy.status_fields and reply.expires_at_us is not None:
        headers += ((EXPIRES, expires(reply.expires_at_us)),)
    if policy.status_fields and retry is not None:
        headers += ((RETRY, retry.value.encode()),)
    if policy.mark_duplicates and reply.duplicate:
        headers += ((DUPLICATE, b"true"),)
    return expose(headers, to_see) if policy.expose_headers else headers


def _in_doubt(reply: Reply) -> bool:
    """Also where the doubt is not settled yet: the client is told of it all the same."""
    told = isinstance(reply.answer, Refused) and reply.answer.problem is Problem.OUTCOME_UNKNOWN
    return told or reply.settlement == DOUBT


def _patience(call: Call) -> Patience:
    edge = call.routing.edge
    return edge.half_closed_patience if call.connection.half_closed else edge.patience


def _join(call: Call, tunnel: Tunnel) -> Awaitable[int]:
    return join(call.connection.take_over(), tunnel)


def _proxy_status(name: str, reply: Reply) -> bytes:
    """Our member of Proxy-Status (RFC 9209): why we answered ourselves, or what the next hop said."""
    answer = reply.answer
    if not isinstance(answer, Refused):
        return proxy_status(name, received_status=reply.upstream_status)
    return proxy_status(name, error=error_of(answer.problem, answer.cause), received_status=reply.upstream_status)
