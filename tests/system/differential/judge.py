"""What the gateway makes of a request: held (guarded or refused), or passed on, and as what."""

from gateway.core.headers import Fields, Hop, to_upstream
from gateway.core.overrides import make_overrides, may_ask_in_body, methods_asked, methods_asked_in
from gateway.core.policy import Policy, Route
from gateway.core.routes import Matched, RefusedTarget, RouteTable, split_target
from tests.system.differential.spellings import Request

_GUARDS = (("pay", "POST", "/v1/pay"), ("refund", "POST", "/v1/{id}/refund"), ("change", "PATCH", "/v1/orders/{id}"))
ROUTES = (
    *(Route(name, path, "up", frozenset({method}), Policy(name, ())) for name, method, path in _GUARDS),
    Route("rest", "/**", "up"),
)
TABLE = RouteTable(ROUTES)
OVERRIDES = make_overrides([route.policy for route in ROUTES if route.policy is not None])
HOP = Hop(b"127.0.0.1", b"http", b"h", trusted=False, request_id=b"r")


def passed_on(request: Request) -> Request | None:
    """The request as its upstream gets it, unguarded; None where it is guarded, refused, or no request that a proxy takes."""
    found = TABLE.match(request.method.decode(), request.target)
    if not isinstance(found, Matched) or found.route.policy is not None:
        return None
    fields = Fields(request.headers)
    cleaned = OVERRIDES.clean(fields)
    fields = fields if cleaned is None else cleaned.fields
    asked = methods_asked(request.method.decode(), fields, request.target)
    if may_ask_in_body(request.method.decode(), fields):
        asked |= methods_asked_in(request.body)
    if any(_is_held(TABLE.match(method, request.target)) for method in asked):
        return None
    lines = tuple([line for line in to_upstream(fields.lines, HOP) if line[0] != b"Host"])
    return Request(request.method, split_target(request.target)[2], lines, request.body)


def _is_held(found: object) -> bool:
    return isinstance(found, RefusedTarget) or (isinstance(found, Matched) and found.route.policy is not None)
