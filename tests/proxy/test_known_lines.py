"""The field lines that are remembered for a shape of heads are those that the hop makes of each, byte for byte."""

from dataclasses import replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.headers import Forwarding, Hop, to_upstream
from gateway.core.policy import Route
from gateway.http.head_parser import HeadParser
from gateway.http.request_shapes import RequestShapes
from gateway.ports import Upstream
from gateway.proxy.known_head import KnownHead
from gateway.proxy.routing import Edge, make_routing

ROUTING = make_routing((Route("free", "/", "payments"),), {"payments": cast("Upstream", None)}, b"", (), Edge())
NAMES = st.sampled_from(
    [b"Accept", b"traceparent", b"Date", b"Cookie", b"Connection", b"X-Forwarded-For", b"X-Real-IP", b"Authorization", b"X-Request-Id"]
)
VALUES = st.sampled_from([b"a", b"%b", b"100%", b"date", b"close", b"x, traceparent", b"7", b"\\0"])
GATEWAYS = st.builds(
    Hop,
    *(st.just(b""), st.just(b""), st.just(b"a%b"), st.just(value=False), st.just(b"")),
    st.sampled_from([Forwarding.X_FORWARDED, Forwarding.NONE]),
    st.sampled_from([b"gateway", b"%b"]),
    st.sampled_from([b"1.0", b"1.1"]),
)
CLIENTS = st.fixed_dictionaries(
    {
        "peer": st.sampled_from([b"10.0.0.1", b"2001:db8::1", b"unix"]),
        "scheme": st.sampled_from([b"http", b"https"]),
        "trusted": st.booleans(),
        "request_id": st.from_regex(rb"[A-Za-z0-9._-]{1,20}", fullmatch=True),
    }
)
VARIES = frozenset({b"date", b"traceparent", b"x-request-id", b"x-forwarded-for", b"x-real-ip", b"authorization"})


@given(
    st.dictionaries(NAMES, VALUES, max_size=6),
    GATEWAYS,
    st.lists(CLIENTS, min_size=1, max_size=6),
    st.lists(st.from_regex(rb"[!-~]{1,9}", fullmatch=True), min_size=2, max_size=4),
)
def test_whatever_varies_and_whatever_stays(
    fields: dict[bytes, bytes], gateway: Hop, clients: list[dict[str, Any]], values: list[bytes]
) -> None:
    """And whoever asks, of whatever the gateway tells the upstream about it."""
    shapes, known = RequestShapes(VARIES), None
    for value in (b"first", b"second", *values):
        lines = [(name, value if name.lower() in VARIES else kept) for name, kept in fields.items()]
        raw = b"GET / HTTP/1.1\r\nHost: a%%b\r\n%b\r\n" % b"".join([b"%b: %b\r\n" % line for line in lines])
        found = shapes.read(raw, 100, 0)
        if found is None:
            parser = HeadParser(100)
            parser.feed(raw)
            shapes.learn(raw, parser)
            continue
        known = known or KnownHead(ROUTING, ROUTING.plans["free"], found.shape)
        for hop in [gateway._replace(**client) for client in clients]:
            wanted = b"".join([b"%b: %b\r\n" % field for field in to_upstream(found.fields.lines, hop)])
            assert known.lines(found.fields, hop) == wanted
    assert known is not None


def test_what_tells_of_clients_by_the_kind_of_their_address_has_no_template() -> None:
    """`Forwarded` quotes an IPv6 address."""
    shapes, raw = RequestShapes(VARIES), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for _ in range(2):
        parser = HeadParser(100)
        parser.feed(raw)
        assert shapes.read(raw, 100, 0) is None
        shapes.learn(raw, parser)
    found = shapes.read(raw, 100, 0)
    assert found is not None
    told = {}
    for forwarding in Forwarding:
        routing = replace(ROUTING, edge=Edge(forwarding=forwarding))
        told[forwarding] = KnownHead(routing, routing.plans["free"], found.shape).has_lines
    assert told == {Forwarding.X_FORWARDED: True, Forwarding.NONE: True, Forwarding.FORWARDED: False, Forwarding.BOTH: False}
