"""A plain head: method, target and Host say all that the judgement of the head and the search for its route go by."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cors import preflight_of
from gateway.core.headers import Fields
from gateway.core.policy import Route
from gateway.http.request_body import NO_BODY
from gateway.proxy.call import Call
from gateway.proxy.head import is_plain, judge_head
from gateway.proxy.routing import Edge, Routing, make_routing
from tests.support.connected import Connected
from tests.support.requests import NoUpstream

ROUTING = make_routing(
    (Route("a", "/a", "payments", hosts=("a.example",)), Route("rest", "/**", "payments")),
    {"payments": NoUpstream()},
    b"",
    (),
    Edge(name=b"here"),
)
NAMES = (b"Host", b"Transfer-Encoding", b"Content-Length", b"Expect", b"Via", b"Max-Forwards", b"Origin", b"Access-Control-Request-Method")
VALUES = (b"a.example", b"b.example:80", b"no host", b"", b"chunked", b"gzip", b"3", b"0", b"100-continue", b"1.1 here", b"POST", b"x")
LINES = st.lists(st.tuples(st.sampled_from((*NAMES, b"X-Other")), st.sampled_from(VALUES)), max_size=5).map(tuple)
METHODS = st.sampled_from(("GET", "POST", "OPTIONS", "TRACE", "CONNECT"))
TARGETS = st.sampled_from((b"/a", b"/b?x=1", b"/" + b"c" * 600, b"*", b"http://a.example/a", b"http:///a", b"a.example:443"))
VERSIONS = st.sampled_from(((1, 1), (1, 0), (2, 0)))


def call_of(routing: Routing, method: str, target: bytes, version: tuple[int, int], lines: tuple[tuple[bytes, bytes], ...]) -> Call:
    call = Call(Connected(), method, target, version, Fields(lines), NO_BODY, True)
    call.begin(routing, "request-1", 0.0)
    return call


def verdict(call: Call) -> tuple[object, ...]:
    """All that the way to the plan goes by."""
    stopped = judge_head(call)
    found = call.routing.find(call.method, call.target, call.effective_host)
    return (None if stopped is None else (stopped.label, stopped.answer)), call.hops, preflight_of(call.method, call.fields), found


@given(METHODS, TARGETS, VERSIONS, LINES, st.sampled_from(VALUES))
def test_the_other_fields_of_a_plain_head_change_nothing(
    method: str, target: bytes, version: tuple[int, int], lines: tuple[tuple[bytes, bytes], ...], host: bytes
) -> None:
    call = call_of(ROUTING, method, target, version, (*lines, (b"Host", host)))
    if is_plain(call):
        assert verdict(call) == verdict(call_of(ROUTING, method, target, (1, 1), ((b"Host", call.effective_host),)))


def test_ordinary_heads_are_plain() -> None:
    lines = ((b"Host", b"a.example"), (b"Content-Type", b"application/json"), (b"Content-Length", b"2"), (b"traceparent", b"00-1-2-01"))
    assert is_plain(call_of(ROUTING, "POST", b"/a?b=c", (1, 1), lines))


def test_what_is_remembered_is_bounded_in_length() -> None:
    assert not is_plain(call_of(ROUTING, "POST", b"/" + b"a" * 600, (1, 1), ((b"Host", b"a.example"),)))
