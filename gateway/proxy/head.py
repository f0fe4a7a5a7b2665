"""What a request's head decides on any route, before any route is looked for: its framing, loops, and who is to answer it. Pure."""

from gateway.core.decision import Label
from gateway.core.framing import judge_framing
from gateway.core.headers import hops_left, looped
from gateway.core.host import sound_authority
from gateway.core.model import Headers
from gateway.core.problems import Problem
from gateway.engine.answers import Passed, Refused, Reply
from gateway.proxy.call import Call

METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE"

_SHOWN = frozenset(
    {b"host", b"via", b"max-forwards", b"connection", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"cache-control"}
)
"""What a TRACE shows. Nobody knows what a proxy in front of us has added: addresses, certificates, tokens (RFC 9110 section 9.3.8)."""


_ASKING = frozenset({"OPTIONS", "TRACE", "CONNECT"})
_TELLING = frozenset({b"transfer-encoding", b"expect", b"via"})
_REMEMBERED = 512


def is_plain(call: Call) -> bool:
    """Whether method, target and Host are all of a head that `judge_head` and the search for its route go by, and short enough to be
    remembered.
    """
    return (
        call.version == (1, 1)
        and call.method not in _ASKING
        and call.target.startswith(b"/")
        and len(call.target) + len(call.effective_host) <= _REMEMBERED
        and call.fields.single(b"host") is not None
        and _TELLING.isdisjoint(call.fields.names())
    )


def judge_head(call: Call) -> Reply | None:
    """The answer to a request that goes no further, or None."""
    fields = call.fields
    problem = judge_framing(call.version, fields)
    if problem is not None:
        return Reply(Label.REFUSED_REQUEST, Refused(problem))
    if not (call.target.startswith(b"/") or sound_authority(call.target)):
        return Reply(Label.REFUSED_REQUEST, Refused(Problem.BAD_REQUEST))
    if fields.first(b"via") is not None and looped(fields, call.routing.edge.name):
        return Reply(Label.REFUSED_REQUEST, Refused(Problem.PROXY_LOOP))
    call.hops = hops_left(call.method, fields)
    if call.hops == 0:
        return Reply(Label.BYPASS, _answer_here(call))
    return None


def _answer_here(call: Call) -> Passed:
    """The last hop of OPTIONS or TRACE (RFC 9110 section 7.6.2). TRACE shows of what came in the fields that are no secret."""
    if call.method == "OPTIONS":
        return Passed(200, b"OK", ((b"Allow", METHODS),), b"")
    shown = _SHOWN - call.routing.kept
    lines: Headers = tuple([field for field in call.fields.lines if field[0].lower() in shown])
    start = b"TRACE %b HTTP/%d.%d\r\n" % (call.target, *call.version)
    echo = start + b"".join([b"%b: %b\r\n" % field for field in lines]) + b"\r\n"
    return Passed(200, b"OK", ((b"Content-Type", b"message/http"),), echo)
