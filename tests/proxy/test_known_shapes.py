"""What is remembered of a head on many routes."""

import tracemalloc
from typing import cast

import pytest

from gateway.core.field_names import VARY
from gateway.core.fingerprint_policy import FingerprintPolicy
from gateway.core.headers import Hop
from gateway.core.policy import Policy, Route
from gateway.core.principal_source import HeaderPrincipal
from gateway.http.head_parser import HeadParser
from gateway.http.request_shapes import ReadRequest, RequestShapes
from gateway.ports import Upstream
from gateway.proxy.known_head import KnownHead, KnownShape
from gateway.proxy.routing import Edge, Place, Routing, make_routing

ROOM = 512 * 1024
ROUTES = 40
HOP = Hop(b"127.0.0.1", b"http", b"h", trusted=True, request_id=b"r")


def guarded(number: int) -> Route:
    policy = Policy(f"pay-{number}", (HeaderPrincipal("X-Account"),), fingerprint=FingerprintPolicy(headers=("If-Match",)))
    return Route(f"pay-{number}", f"/pay/{number}", "payments", policy=policy)


@pytest.fixture
def routing() -> Routing:
    return make_routing(tuple(map(guarded, range(ROUTES))), {"payments": cast("Upstream", None)}, b"secret", (), Edge())


def come(shapes: RequestShapes, raw: bytes) -> ReadRequest:
    """Until it is known, or was not for long."""
    for _ in range(40):
        found = shapes.read(raw, 100, 0)
        if found is not None:
            return found
        parser = HeadParser(100)
        parser.feed(raw)
        shapes.learn(raw, parser)
    raise LookupError


def use(found: ReadRequest, place: Place) -> KnownHead | None:
    """As a request on this route does, from either kind of peer."""
    known = found.shape.known.on(place, found.shape)
    if known is not None:
        known.reading(found.fields)
        for trusted in (False, True):
            known.lines(found.fields, HOP._replace(trusted=trusted))
    return cast("KnownHead | None", known)


@pytest.mark.parametrize(
    "extra", [b"Accept: */*", b"If-Match: " + b"a" * 1800, b"\r\n".join([b"X-%d: a" % number for number in range(44)])]
)
def test_heads_on_many_routes_take_no_more_room_than_they_may(routing: Routing, extra: bytes) -> None:
    """And those that are known stay so: one route more drives none of them out."""
    places = [Place(plan) for plan in routing.plans.values()]
    shapes = RequestShapes(VARY, ROOM)
    first: list[KnownHead | None] = []
    tracemalloc.start()
    try:
        for number in range(200):
            try:
                found = come(shapes, b"POST / HTTP/1.1\r\nHost: %d\r\nX-Account: a\r\n%b\r\n\r\n" % (number, extra))
            except LookupError:
                break
            found.shape.known = KnownShape(routing)
            known = [use(found, place) for place in places]
            first = first or known
        else:
            pytest.fail("there is room for all")
        assert tracemalloc.get_traced_memory()[0] <= ROOM
    finally:
        tracemalloc.stop()
    assert any(first)
    found = come(shapes, b"POST / HTTP/1.1\r\nHost: 0\r\nX-Account: a\r\n%b\r\n\r\n" % extra)
    assert [use(found, place) for place in places] == first


def test_what_is_forgotten_takes_no_more_room(routing: Routing) -> None:
    """A request that still has a shape of before the reload."""
    shapes, place = RequestShapes(VARY, ROOM), Place(routing.plans["pay-0"])
    found = come(shapes, b"POST / HTTP/1.1\r\nHost: a\r\n\r\n")
    found.shape.known = KnownShape(routing)
    shapes.vary(VARY)
    assert use(found, place) is None
