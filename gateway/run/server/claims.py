"""What a scope and a fingerprint policy mean by a route map, as the registry keeps it.

A changed claim while live records exist would move retries into another namespace, where they execute again: the
registry refuses it.
"""

import re
from collections.abc import Iterator
from typing import assert_never

from gateway.config import Config
from gateway.core.fingerprint import policy_digest, policy_text
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, KeyPlace, QueryKey
from gateway.core.policy import Policy, Route
from gateway.core.scope import secret_check_value
from gateway.ports import Retention
from gateway.ports.participation import Participant
from gateway.principal import claim_text
from gateway.store.postgres import ScopeClaim
from gateway.store.postgres.meanings import GuardedRoute, routes_text

_PARAMETER = re.compile(r"\{[^}]*\}")


def scope_claims(config: Config) -> list[ScopeClaim]:
    """One claim for each scope name, with all routes that the scope guards; the configuration has made sure that they
    agree.
    """
    policies = {policy.scope: policy for policy in guarded(config)}
    routes: dict[str, list[GuardedRoute]] = {scope: [] for scope in policies}
    for route in config.routes:
        if route.policy is not None:
            routes[route.policy.scope] += _guarded_routes(route)
    return [_claim(policies[scope], config.digest_secret or b"", routes_text(routes[scope])) for scope in sorted(policies)]


def policy_claims(config: Config) -> list[tuple[bytes, int, str]]:
    """Digest, fingerprint version and full text of each fingerprint policy in use."""
    texts = sorted({policy_text(policy.fingerprint) for policy in guarded(config)})
    return [(policy_digest(text, config.fingerprint_version), config.fingerprint_version, text) for text in texts]


def participants(config: Config) -> list[Participant]:
    """The routes whose upstreams take part, as the authority is to know them."""
    routes = [(route.id, route.policy) for route in config.routes if route.policy is not None]
    return [
        Participant(name, policy.lease, Retention.of(policy), policy.limits.response_body, policy.participate.co_commit)
        for name, policy in routes
        if policy.takes_part
    ]


def guarded(config: Config) -> Iterator[Policy]:
    """The policies of the guarded routes, once."""
    return (route.policy for route in config.routes if route.policy is not None)


def _guarded_routes(route: Route) -> list[GuardedRoute]:
    """A route as the registry lists it: on each of its hosts, which stands before the path. How its parameters are
    called is left out, since it changes no request's way.
    """
    path = _PARAMETER.sub("{}", route.path)
    return [(method, host + path, route.upstream) for host in route.hosts or ("",) for method in route.methods]


def meaning(policy: Policy) -> tuple[str, str]:
    """Principal and key settings. Canonical, and words that a message can show: a comma is in no header name."""
    key = f"{_place(policy.key.place)}, {policy.key.mode.value}" + (", letter case aside" if policy.key.fold_case else "")
    return claim_text(policy), key


def _claim(policy: Policy, secret: bytes, routes: str) -> ScopeClaim:
    return ScopeClaim(policy.scope, *meaning(policy), secret_check_value(secret), routes)


def _place(place: KeyPlace) -> str:
    match place:
        case HeaderKey():
            return f"header {' or '.join(sorted(map(str.lower, place.names)))}"
        case QueryKey(name):
            return f"query parameter {name}"
        case BodyKey(pointer):
            return f"body {pointer}"
        case FormKey(name):
            return f"form field {name}"
        case _:
            assert_never(place)
