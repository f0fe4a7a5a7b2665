"""The contract as an OpenAPI Overlay 1.0 document, made from the route map, so that an API's own documentation can state it.

The overlay is applied to the API's OpenAPI 3 description by any tool that knows overlays. It adds to each guarded operation where the key
goes, what the gateway answers itself, what a replay looks like, and `x-idempotency` with what OpenAPI has no words for. It only adds: the
API's own texts, parameters and answers stay.

Given that description (`document`), its operations are found as requests are: by the first route that takes all of their requests, whatever
the names of path parameters. So `/**` routes are covered, and what the description already says is not said twice. Without it the paths
are taken to be spelled as in the route map. The description may be the one that an upstream gives of itself (`behind`): then its paths are
those that it gets, behind rewrites. What cannot be placed is listed under `x-idempotency-unplaced`, with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.core.key_policy import HeaderKey, QueryKey
from gateway.core.openapi_answers import Json, parameter, responses, summary, upstream_headers
from gateway.core.path_pattern import Pattern, parse_pattern
from gateway.core.pointers import at, split_pointer
from gateway.core.policy import Mode, Policy, Route
from gateway.core.rewrite import upstream_pattern

METHODS = ("GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE")
"""The methods that OpenAPI 3.0 and 3.1 have operations for."""

UNPLACED = "x-idempotency-unplaced"


@dataclass(frozen=True, slots=True)
class Behind:
    """The upstream that a description is of, and the paths of its targets' URLs, without closing slashes."""

    upstream: str
    fronts: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation of the API: its path as the description has it, and what that says of it.

    `parameters` are without references; None if there are none, nor a list of them. `statuses` are those of its responses.
    """

    path: str
    method: str
    parameters: tuple[Mapping[str, Any], ...] | None = None
    statuses: frozenset[str] = frozenset()

    @property
    def target(self) -> str:
        """Its JSONPath (RFC 9535)."""
        path = self.path.replace("\\", "\\\\").replace("'", "\\'")
        return f"$.paths['{path}']['{self.method.lower()}']"


_Placed: TypeAlias = tuple[_Operation, Route, Policy]
_Known: TypeAlias = tuple[Route, tuple[Pattern, ...]]


def overlay(
    routes: Sequence[Route],
    problem_base: str,
    *,
    title: str = "Idempotency",
    version: str = "1.0.0",
    base_path: str = "",
    document: Mapping[str, Any] | None = None,
    behind: Behind | None = None,
) -> dict[str, Json]:
    """The overlay. Pure and deterministic.

    `problem_base` is what problem types begin with. `base_path` is the path of the description's server URL, without a closing slash: the
    route map has it before each path, the description has not. `document` is the description itself, valid and parsed; it is not changed.
    Routes that only observe promise nothing yet, so nothing is said of them. `behind`: whose description it is, if not that of the API as
    clients know it; of routes to others nothing is said. Where two routes lead to one operation, the first counts.
    """
    patterns = _as_known(routes, behind)
    operations = list(_described(document, base_path) if document is not None else _written(routes, base_path))
    placed = list(_place(patterns, operations, base_path))
    first = {"target": "$.info", "description": "Where problem types begin.", "update": {"x-idempotency": {"problemTypes": problem_base}}}
    actions: list[Json] = [first]  # so that the list is never empty, as the specification asks
    for operation, route, policy in placed:
        actions += _actions(operation, route, policy, problem_base)
    result: dict[str, Json] = {"overlay": "1.0.0", "info": {"title": title, "version": version}, "actions": actions}
    known = [route for route, _ in patterns]
    unplaced = list(_unplaced(known, placed, described=document is not None))
    return {**result, UNPLACED: unplaced} if unplaced else result


def _written(routes: Sequence[Route], base_path: str) -> Iterator[_Operation]:
    """The operations that the route map itself spells out."""
    for path in dict.fromkeys(route.path for route in routes if route.policy is not None and not parse_pattern(route.path).rest):
        if path.startswith(base_path) and path[len(base_path) :].startswith("/"):
            yield from (_Operation(path[len(base_path) :], method) for method in METHODS)


def _described(document: Mapping[str, Any], base_path: str) -> Iterator[_Operation]:
    """The operations of a description whose paths a route map could have."""
    for path, item in document.get("paths", {}).items():
        try:
            parse_pattern(base_path + path)
        except ValueError:
            continue
        for method in METHODS:
            if method.lower() in item:
                said = item[method.lower()]
                listed = tuple([_follow(one, document) for one in said["parameters"]]) if "parameters" in said else None
                yield _Operation(path, method, listed, frozenset(map(str, said.get("responses", {}))))  # YAML reads 200 as a number


def _follow(said: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a local reference (RFC 6901 section 6) stands for; anything else is itself."""
    reference = said.get("$ref", "")
    if not reference.startswith("#/"):
        return said
    found = at(document, split_pointer(reference[1:]))
    return found if isinstance(found, dict) else {}


def _as_known(routes: Sequence[Route], behind: Behind | None) -> list[_Known]:
    """The routes that a description can be of, and their paths as it has them."""
    if behind is None:
        return [(route, (parse_pattern(route.path),)) for route in routes]
    return [
        (route, tuple([upstream_pattern(route.path, route.rewrite, front) for front in behind.fronts]))
        for route in routes
        if route.upstream == behind.upstream
    ]


def _place(known: Sequence[_Known], operations: Sequence[_Operation], base_path: str) -> Iterator[_Placed]:
    """The operations that a guarded route takes, as requests are matched: the first route counts that takes all of them."""
    for operation in operations:
        wanted = parse_pattern(base_path + operation.path)
        takers = (
            route for route, patterns in known if _takes(route, operation.method) and any(pattern.covers(wanted) for pattern in patterns)
        )
        route = next(takers, None)
        if route is not None and route.policy is not None and route.policy.mode is Mode.ENFORCE:
            yield operation, route, route.policy


def _takes(route: Route, method: str) -> bool:
    return not route.methods or method in route.methods


def _actions(operation: _Operation, route: Route, policy: Policy, problem_base: str) -> Iterator[Json]:
    """Answers of the upstream first: behind them ours stand among the operation's responses too."""
    yield {
        "target": operation.target + ".responses.*",
        "description": f"{route.id}: marks on answers of the API.",
        "update": {"headers": upstream_headers(policy)},
    }
    update: dict[str, Json] = {"responses": responses(policy, problem_base, operation.statuses)}
    key = parameter(policy.key)
    if key is not None and not _has_parameter(operation, policy):
        if operation.parameters is not None:
            yield {"target": operation.target + ".parameters", "description": f"{route.id}: the key.", "update": key}
        else:
            update["parameters"] = [key]
    update["x-idempotency"] = summary(policy)
    yield {"target": operation.target, "description": f"{route.id}: the key and the gateway's own answers.", "update": update}


def _has_parameter(operation: _Operation, policy: Policy) -> bool:
    """Whether the description has the key's parameter already; two of one name and place would make it invalid."""
    parameters = operation.parameters or ()
    match policy.key.place:
        case HeaderKey():
            names = {name.lower() for name in policy.key.headers}
            return any(one.get("in") == "header" and str(one.get("name")).lower() in names for one in parameters)
        case QueryKey(name):
            return any(one.get("in") == "query" and one.get("name") == name for one in parameters)
        case _:
            return False


def _unplaced(routes: Sequence[Route], placed: Sequence[_Placed], *, described: bool) -> Iterator[Json]:
    """The guarded routes and methods of which the overlay says nothing, and why."""
    there = {(route.id, operation.method) for operation, route, _ in placed}
    for route in routes:
        if route.policy is None:
            continue
        for method in sorted(route.methods) or ["*"]:
            if (route.id, method) not in there and not (method == "*" and any(route.id == one for one, _ in there)):
                yield {"route": route.id, "method": method, "path": route.path, "reason": _reason(route, route.policy, method, described)}


def _reason(route: Route, policy: Policy, method: str, described: bool) -> str:  # noqa: FBT001 - a fact about the whole call
    if policy.mode is Mode.OBSERVE:
        return "The route only observes: it promises nothing yet."
    if method not in {*METHODS, "*"}:
        return "OpenAPI 3.1 has no operations of this method."
    if described:
        return "The description has no operation that is wholly of this route."
    if parse_pattern(route.path).rest:
        return "Which paths there are is only known with the API's description at hand."
    return "The path is outside the base path, or an earlier route takes its requests."
