"""What scopes mean, compared: what changed, which routes moved, who would be disturbed. Pure; the rows come from `registry`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TypeAlias

NAMED = 5
"""Routes that a message names, at most."""

NOT_REGISTERED = "is not registered any more"

GuardedRoute: TypeAlias = tuple[str, str, str]
"""Method, path pattern (behind its host, if it has one), upstream name."""


@dataclass(frozen=True, slots=True)
class ScopeClaim:
    """What the configuration says that a scope means.

    `principal` and `key_settings` are canonical and words for people; `secret_check` is a check value of the digest secret, not the
    secret; `routes` is `routes_text` of all that the scope guards.
    """

    scope: str
    principal: str
    key_settings: str
    secret_check: str
    routes: str = "[]"


Claims: TypeAlias = Mapping[str, ScopeClaim]


@dataclass(frozen=True, slots=True)
class Change:
    """What is not as it was in a scope, in words. `moved` are the routes that left it."""

    scope: str
    words: tuple[str, ...]
    moved: tuple[GuardedRoute, ...] = ()


def routes_text(routes: Iterable[GuardedRoute]) -> str:
    """The canonical text of a set of guarded routes: a sorted JSON list of [method, path pattern, upstream name], each once."""
    return json.dumps(sorted(set(routes)), ensure_ascii=False, separators=(",", ":"))


def claims_text(claims: Iterable[ScopeClaim]) -> str:
    """Claims as a holder's row keeps them."""
    return json.dumps([astuple(claim) for claim in claims], ensure_ascii=False, separators=(",", ":"))


def claims_of(text: str) -> Claims:
    """The claims in a holder's row, by scope."""
    return {row[0]: ScopeClaim(*row) for row in json.loads(text)}


def changes(known: Claims, claims: Claims) -> list[Change]:
    """Each scope that `known` and `claims` understand in two ways, and each that loses a route to another."""
    found = [Change(claim.scope, words) for claim in claims.values() if (words := _words(known.get(claim.scope, claim), claim))]
    return found + [
        Change(old, (f"{_names(routes)} moved to scope {new!r}",), tuple(routes)) for (old, new), routes in _moves(known, claims).items()
    ]


def differences(known: Claims, claims: Claims) -> dict[str, str]:
    """What the registry says otherwise than `claims`, or says no more, in words, by the scope of `claims` that is concerned."""
    found = {scope: [f"it {NOT_REGISTERED}"] for scope in claims if scope not in known}
    for scope, claim in claims.items():
        found.setdefault(scope, []).extend(_words(claim, known.get(scope, claim)))
    for (theirs, ours), routes in _moves(known, claims).items():
        found[ours].append(f"{_names(routes)} moved to scope {theirs!r}")
    return {scope: ", ".join(words) for scope, words in found.items() if words}


def left_behind(before: Claims, claims: Claims, different: Iterable[str]) -> Claims:
    """What a process served before and still may, beside `claims`: its last requests are under way. Not what is `different` by now, nor a
    scope of which a route is in another one.
    """
    taken = {route for claim in claims.values() for route in _routes(claim)}
    gone = before.keys() - claims.keys() - set(different)
    return {scope: before[scope] for scope in gone if taken.isdisjoint(_routes(before[scope]))}


def disturbs(change: Change, claims: Claims, held: Claims) -> bool:
    """Whether a process that serves what `held` says would go on in the old way beside one that serves `claims`."""
    theirs = held.get(change.scope)
    if theirs is None:
        return False
    if change.moved:
        return not set(change.moved).isdisjoint(_routes(theirs))
    return bool(_words(theirs, claims[change.scope]))


def registered(known: Claims, claims: Claims) -> list[ScopeClaim]:
    """The rows to write: what a registration of `claims` turns the registry into, where that differs from what it is."""
    merged = {scope: set(_routes(claim)) for scope, claim in known.items()}
    claimed = {scope: set(_routes(claim)) for scope, claim in claims.items()}
    for (old, _), routes in _moves(known, claims).items():
        merged[old] -= set(routes) - claimed.get(old, set())
    for scope, claim in claims.items():
        merged[scope] = merged.get(scope, set()) | set(_routes(claim))
    rows = [replace({**known, **claims}[scope], routes=routes_text(routes)) for scope, routes in merged.items()]
    return [row for row in rows if row != known.get(row.scope)]


def _words(old: ScopeClaim, new: ScopeClaim) -> tuple[str, ...]:
    words: list[str] = []
    if old.principal != new.principal:
        words.append(f"the principal changed from {old.principal!r} to {new.principal!r}")
    if not _finds_what_it_did(old.key_settings, new.key_settings):
        words.append(f"the key settings changed from {old.key_settings!r} to {new.key_settings!r}")
    if old.secret_check != new.secret_check:
        words.append("the digest secret changed")
    return tuple(words)


def _finds_what_it_did(old: str, new: str) -> bool:
    """Whether key settings find each key that others found. A further header name (`header a or b, lenient`) takes none away."""
    if old == new:
        return True
    (old_place, _, old_rest), (new_place, _, new_rest) = old.partition(", "), new.partition(", ")
    headers = old_place.startswith("header ") and new_place.startswith("header ")
    return headers and old_rest == new_rest and set(old_place[7:].split(" or ")) < set(new_place[7:].split(" or "))


def _moves(known: Claims, claims: Claims) -> dict[tuple[str, str], list[GuardedRoute]]:
    """Routes that a registered scope lists and that the claims put elsewhere, by (old scope, new scope)."""
    home = {route: claim.scope for claim in claims.values() for route in _routes(claim)}
    moves: dict[tuple[str, str], list[GuardedRoute]] = {}
    fresh = _fresh(known, home)
    for old in known.values():
        for route in _routes(old):
            kept = home.get(route) == old.scope
            news = {home.get(route, old.scope)}
            news |= {scope for host, scope in fresh.get(_anywhere(route), ()) if _takes_from(host, _host(route), kept=kept)}
            for new in sorted(news - {old.scope}):
                moves.setdefault((old.scope, new), []).append(route)
    return moves


def _fresh(known: Claims, home: Mapping[GuardedRoute, str]) -> dict[GuardedRoute, list[tuple[str, str]]]:
    """Host and scope of each route that its scope did not list before, by the route without its host."""
    listed = {scope: set(_routes(claim)) for scope, claim in known.items()}
    fresh: dict[GuardedRoute, list[tuple[str, str]]] = {}
    for route, scope in home.items():
        if route not in listed.get(scope, ()):
            fresh.setdefault(_anywhere(route), []).append((_host(route), scope))
    return fresh


def _takes_from(new: str, old: str, *, kept: bool) -> bool:
    """Whether a route that was not there before takes requests of one that is alike but for its host. One for fewer hosts does; one for
    more of them only if the other is not there any more (not `kept`), since it stands behind it.
    """
    return new != old and (_below(new, old) or (not kept and _below(old, new)))


def _below(host: str, other: str) -> bool:
    """Whether `other` names each host that `host` names; nothing names them all."""
    return other in {"", host} or (other.startswith("*.") and host.endswith(other[1:]))


def _host(route: GuardedRoute) -> str:
    return route[1].partition("/")[0]


def _anywhere(route: GuardedRoute) -> GuardedRoute:
    return route[0], route[1].removeprefix(_host(route)), route[2]


def _routes(claim: ScopeClaim) -> list[GuardedRoute]:
    return [(method, path, upstream) for method, path, upstream in json.loads(claim.routes)]


def _names(routes: Sequence[GuardedRoute]) -> str:
    named = ", ".join(f"{method} {path} (upstream {upstream})" for method, path, upstream in routes[:NAMED])
    more = f" and {len(routes) - NAMED} more" if len(routes) > NAMED else ""
    return f"{'routes' if len(routes) > 1 else 'route'} {named}{more}"
