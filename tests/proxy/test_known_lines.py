"""The field lines that are remembered for a shape of heads are those that the hop makes of each, byte for byte."""

from functools import partial
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.headers import Forwarding, Hop, to_upstream
from gateway.core.policy import Route
from gateway.http.head_parser import HeadParser
from gateway.http.request import Connection
from gateway.http.request_shapes import RequestShapes
from gateway.ports import Upstream
from gateway.proxy.known_head import KnownHead
from gateway.proxy.routing import Edge, make_routing

ROUTING = make_routing((Route("free", "/", "payments"),), {"payments": cast("Upstream", None)}, b"", (), Edge())
NAMES = st.sampled_from(
    [b"Accept", b"traceparent", b"Date", b"Cookie", b"Connection", b"X-Forwarded-For", b"Authorization", b"X-Request-Id"]
)
VALUES = st.sampled_from([b"a", b"%b", b"100%", b"date", b"close", b"x, traceparent", b"7", b"\\0"])
HOPS = st.builds(
    Hop,
    st.sampled_from([b"10.0.0.1", b"2001:db8::1", b"unix"]),
    st.sampled_from([b"http", b"https"]),
    st.just(b"a%b"),
    st.booleans(),
    st.from_regex(rb"[A-Za-z0-9._-]{1,20}", fullmatch=True),
    st.sampled_from(list(Forwarding)),
    st.sampled_from([b"gateway", b"%b"]),
    st.sampled_from([b"1.0", b"1.1"]),
)
VARIES = frozenset({b"date", b"traceparent", b"x-request-id"})


class Peer:
    """A client's connection, as far as a hop goes by it."""

    def __init__(self, hop: Hop) -> None:
        self.address = hop.peer.decode()
        self.secure = hop.scheme == b"https"


def _same(hop: Hop) -> Hop:
    return hop


@given(
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.lists(HOPS, min_size=1, max_size=4, unique_by=lambda hop: (hop.peer, hop.scheme)),
    st.lists(st.from_regex(rb"[!-~]{1,9}", fullmatch=True), min_size=2, max_size=4),
)
def test_whatever_varies_and_whatever_stays(fields: dict[bytes, bytes], hops: list[Hop], values: list[bytes]) -> None:
    shapes, known = RequestShapes(VARIES), None
    for value in (b"first", b"second", *values):
        lines = [(name, value if name.lower() in VARIES else kept) for name, kept in fields.items()]
        raw = b"GET / HTTP/1.1\r\nHost: a%%b\r\n%b\r\n" % b"".join([b"%b: %b\r\n" % line for line in lines])
        found = shapes.read(raw, 100, None)
        if found is None:
            parser = HeadParser(100)
            parser.feed(raw)
            shapes.learn(raw, parser)
            continue
        shape = found[0].known
        known = known or KnownHead(ROUTING, ROUTING.plans["free"], shape)
        for hop in hops:
            made = known.lines(cast("Connection", Peer(hop)), found[1], partial(_same, hop), hop.request_id.decode())
            assert made == b"".join([b"%b: %b\r\n" % field for field in to_upstream(found[1].lines, hop)])
    assert known is not None
