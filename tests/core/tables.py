"""A small route map, and the verdict on a target in one word."""

from gateway.core.policy import Policy, Route
from gateway.core.routes import Matched, NoRoute, RefusedTarget, RouteTable

POST = frozenset({"POST"})


def guarded(path: str, methods: frozenset[str] = POST) -> Route:
    return Route(f"guarded {path}", path, "up", methods, Policy(path, ()))


PAY, REFUND = guarded("/v1/pay"), guarded("/v1/{id}/refund")
REST = Route("rest", "/**", "up")
TABLE = RouteTable((PAY, REFUND, REST))


def match(target: bytes, table: RouteTable = TABLE, method: str = "POST") -> object:
    """The id of the route that a target belongs to, `refused`, or None."""
    found = table.match(method, target)
    match found:
        case Matched(route):
            return route.id
        case RefusedTarget():
            return "refused"
        case NoRoute():
            return None
