"""A replay that is told from memory is written byte for byte as any other."""

from dataclasses import replace
from typing import cast
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cors import Cors
from gateway.core.decision import Label
from gateway.core.dialect_model import Dialect, Replay
from gateway.core.dialect_template import PLACEHOLDERS
from gateway.core.headers import Fields
from gateway.core.model import Fingerprint, Record, RecordKey, Status
from gateway.core.policy import Policy, Route
from gateway.engine.answers import Replayed, Reply
from gateway.http.problem import ProblemWriter
from gateway.http.request_body import NO_BODY
from gateway.ports import Remembered
from gateway.proxy.call import Call
from gateway.proxy.rendering import Renderer
from gateway.proxy.routing import Edge, Routing, make_routing
from gateway.runtime.system import SystemClock
from tests.dialects.files import NAMES, dialect
from tests.support.connected import Connected
from tests.support.requests import NoUpstream

STORED = (
    (b"Content-Type", b"application/json"),
    (b"Idempotent-Replayed", b"no"),
    (b"Access-Control-Allow-Origin", b"https://shop.example"),
    (b"Idempotency-Status", b"the upstream's"),
)
POLICY = Policy("payments", ())
OPENED = (None, Cors(frozenset({"https://shop.example"}), credentials=True), Cors(frozenset({"*"})))


def routing_of(policy: Policy, cors: Cors | None, edge: Edge) -> Routing:
    route = Route("charge", "/v1/charges", "payments", policy=policy, cors=cors)
    return make_routing((route,), {"payments": NoUpstream()}, b"", (), edge)


def written(renderer: Renderer, routing: Routing, method: str, origin: bytes | None, remembered: Remembered | None) -> bytes:
    """What a client gets, whose key is `k-1`."""
    lines = ((b"Host", b"shop.example"), *(() if origin is None else ((b"Origin", origin),)))
    connection = Connected()
    call = Call(connection, method, b"/v1/charges", (1, 1), Fields(lines), NO_BODY, True)
    call.begin(routing, "request-2", 0.0)
    plan = routing.plans["charge"]
    assert plan.guard is not None
    call.guard, call.guarded, call.cors, call.key, call.key_digest = plan.guard, True, plan.cors, RecordKey("s", "k-1"), "d"
    answer = Replayed(201, b"Created", STORED, b'{"id":"ch_1"}', "request-1", 1_900_000_000_000_000, remembered)
    response = renderer.render(Reply(Label.REPLAY, answer, expires_at_us=answer.expires_at_us), call)
    assert response.send(call)
    return connection.wire.written


MARKS = st.lists(
    st.tuples(
        st.sampled_from(("Idempotent-Replayed", "X-Mark", "Original-Request")),
        st.one_of(st.just("true"), st.sampled_from(tuple(PLACEHOLDERS)).map("of {{{}}}".format)),
    ),
    max_size=3,
).map(tuple)
DIALECTS = st.one_of(
    st.sampled_from([dialect(name) for name in NAMES]),
    MARKS.map(lambda marks: Dialect(replay_headers=marks)),
    st.just(Dialect(replay=Replay.CONFLICT)),
)


@given(
    told=DIALECTS,
    marks=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    cors=st.sampled_from(OPENED),
    proxy_status=st.booleans(),
    asked=st.lists(st.tuples(st.sampled_from(("POST", "HEAD")), st.sampled_from((None, b"https://shop.example", b"null")))),
)
def test_it_is_written_as_any_other(
    told: Dialect,
    marks: tuple[bool, bool, bool],
    cors: Cors | None,
    proxy_status: bool,
    asked: list[tuple[str, bytes | None]],
) -> None:
    """Whatever its route adds, whoever asks, and whoever has asked before."""
    status_fields, mark_duplicates, expose_headers = marks
    policy = replace(POLICY, dialect=told, status_fields=status_fields, mark_duplicates=mark_duplicates, expose_headers=expose_headers)
    routing, renderer = routing_of(policy, cors, Edge(proxy_status=proxy_status)), Renderer(ProblemWriter(), SystemClock())
    record = Record(RecordKey("s", "k-1"), UUID(int=1), 0, Status.COMPLETED, Fingerprint(3, b"", b""), b"", 1, "request-1")
    remembered = Remembered(record)
    for method, origin in [*asked, ("POST", None), ("POST", None)]:
        assert written(renderer, routing, method, origin, remembered) == written(renderer, routing, method, origin, None)


def test_a_reload_makes_it_anew() -> None:
    """Another plan may have another dialect."""
    renderer, remembered = Renderer(ProblemWriter(), SystemClock()), Remembered(cast("Record", None))
    for mark in ("one", "two", "one"):
        routing = routing_of(replace(POLICY, dialect=Dialect(replay_headers=(("X-Mark", mark),))), None, Edge())
        assert b"X-Mark: %b\r\n" % mark.encode() in written(renderer, routing, "POST", None, remembered)
