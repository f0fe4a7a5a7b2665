"""What scopes and fingerprint policies mean, so that it cannot drift while records live by it.

A scope whose name, principal, key settings or digest secret changes moves its retries into another namespace, where they would execute
again. So the database remembers, and a start or reload compares.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TypeAlias, TypeVar

from gateway.store.postgres.lane import Connection, Lane, Refused, unavailable
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import columns

T = TypeVar("T")

LOCK = 0x1DE_4907E_5C0E
"""The advisory lock that registrations take, so that two starts see each other's."""

COUNTED = 1000
"""Live records are counted up to this many, so that a refusal does not wait for a count of millions."""

NAMED = 5
"""Routes that a message names, at most."""

GuardedRoute: TypeAlias = tuple[str, str, str]
"""Method, path pattern, upstream name."""


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


def routes_text(routes: Iterable[GuardedRoute]) -> str:
    """The canonical text of a set of guarded routes: a sorted JSON list of [method, path pattern, upstream name], each once."""
    return json.dumps(sorted(set(routes)), ensure_ascii=False, separators=(",", ":"))


class Registry:
    """Scopes and fingerprint policies, as the database knows them. Raises `StoreUnavailable` and no other error.

    Several route maps may share a database, and a scope. So a route belongs to the scope that claimed it last, and stays listed there
    until a map puts it into another scope: a map that does not mention it may not be the one that serves it, and the records that it
    made live on. A scope's list is hence what all maps ever claimed, less what was since claimed for another scope; that leaves the old
    list in the same transaction, so that a move that was written once (nothing was live, or it was accepted) is never told again.
    """

    def __init__(self, lanes: Lanes, timeout: float) -> None:
        self._lanes = lanes
        self._timeout = timeout

    async def register(
        self, scopes: Sequence[ScopeClaim], policies: Sequence[tuple[bytes, int, str]], *, accept_change: bool = False
    ) -> list[str]:
        """Write down what is new. Returns one message for each drift while records live; then nothing is written.

        Drift is a scope with live records whose settings changed, or that lists a route which `scopes` put into another scope. One
        without live records, or with `accept_change`, is written. Registered scopes that `scopes` neither mention nor take a route
        from are left alone. `policies` are (digest, version, text). One transaction.
        """
        claims = {claim.scope: claim for claim in scopes}

        async def work(connection: Connection) -> list[str]:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            known = await _known(connection)
            drift = [] if accept_change else await _drift(connection, known, claims)
            if not drift:
                await _write(connection, _changed(known, claims), policies)
            return drift

        return await self._call(lambda lane: lane.together(work))

    async def drifts(self, scopes: Sequence[ScopeClaim]) -> list[str]:
        """The messages for which `register` would refuse `scopes`. Writes nothing and waits for no other registration."""
        claims = {claim.scope: claim for claim in scopes}

        async def work(connection: Connection) -> list[str]:
            return await _drift(connection, await _known(connection), claims)

        return await self._call(lambda lane: lane.together(work))

    async def fingerprint_policy(self, digest: bytes) -> tuple[int, str] | None:
        """(version, text) of the policy with this digest, if it was ever registered."""
        rows = await self._call(lambda lane: lane.fetch(QUERIES["fingerprint_policy"], digest))
        return (rows[0]["version"], rows[0]["policy"]) if rows else None

    async def _call(self, work: Callable[[Lane], Awaitable[T]]) -> T:
        try:
            return await self._lanes.call(work, asyncio.get_running_loop().time() + self._timeout)
        except Refused as error:
            raise unavailable("error", may_have_landed=False, asked=True) from error


Claims: TypeAlias = Mapping[str, ScopeClaim]


async def _known(connection: Connection) -> Claims:
    """Every registered scope: a scope that the route map does not mention may list one of its routes."""
    return {row["scope"]: ScopeClaim(**row) for row in await connection.fetch(QUERIES["scopes"])}


async def _drift(connection: Connection, known: Claims, claims: Claims) -> list[str]:
    found = [(claim.scope, _changes(known.get(claim.scope, claim), claim)) for claim in claims.values()]
    found += [(old, [f"{_names(routes)} moved to scope {new!r}"]) for (old, new), routes in _moves(known, claims).items()]
    messages: list[str] = []
    for scope, changes in found:
        live = await _live(connection, scope) if changes else None
        if live is not None:
            messages.append(f"scope {scope!r}: {', '.join(changes)}; {live}")
    return messages


def _changes(old: ScopeClaim, new: ScopeClaim) -> list[str]:
    changes: list[str] = []
    if old.principal != new.principal:
        changes.append(f"the principal changed from {old.principal!r} to {new.principal!r}")
    if old.key_settings != new.key_settings:
        changes.append(f"the key settings changed from {old.key_settings!r} to {new.key_settings!r}")
    if old.secret_check != new.secret_check:
        changes.append("the digest secret changed")
    return changes


def _moves(known: Claims, claims: Claims) -> dict[tuple[str, str], list[GuardedRoute]]:
    """Routes that a registered scope lists and that the claims put elsewhere, by (old scope, new scope)."""
    home = {route: claim.scope for claim in claims.values() for route in _routes(claim)}
    moves: dict[tuple[str, str], list[GuardedRoute]] = {}
    for old in known.values():
        for route in _routes(old):
            new = home.get(route, old.scope)
            if new != old.scope:
                moves.setdefault((old.scope, new), []).append(route)
    return moves


def _changed(known: Claims, claims: Claims) -> list[ScopeClaim]:
    """The rows to write: what `register` turns the registry into, where that differs from what it is."""
    merged = {scope: set(_routes(claim)) for scope, claim in known.items()}
    for (old, _), routes in _moves(known, claims).items():
        merged[old] -= set(routes)
    for scope, claim in claims.items():
        merged[scope] = merged.get(scope, set()) | set(_routes(claim))
    rows = [replace({**known, **claims}[scope], routes=routes_text(routes)) for scope, routes in merged.items()]
    return [row for row in rows if row != known.get(row.scope)]


def _routes(claim: ScopeClaim) -> list[GuardedRoute]:
    return [(method, path, upstream) for method, path, upstream in json.loads(claim.routes)]


def _names(routes: Sequence[GuardedRoute]) -> str:
    named = ", ".join(f"{method} {path} (upstream {upstream})" for method, path, upstream in routes[:NAMED])
    more = f" and {len(routes) - NAMED} more" if len(routes) > NAMED else ""
    return f"{'routes' if len(routes) > 1 else 'route'} {named}{more}"


async def _live(connection: Connection, scope: str) -> str | None:
    """What lives in a scope, what a change would do to it and how to go on, in words; None if nothing lives."""
    row = await connection.fetchrow(QUERIES["live_records"], scope, COUNTED)
    assert row is not None
    count = row["found"]
    if count == 0:
        return None
    records = "1 record is" if count == 1 else f"{f'at least {count}' if count == COUNTED else count} records are"
    last = "expires never by itself (in progress or unknown)" if row["endless"] else f"expires at {row['last']:%Y-%m-%d %H:%M:%S} UTC"
    wait = "" if row["endless"] else "wait until then, "
    return (
        f"{records} live, the last of which {last}: their retries would execute again. Undo the change, {wait}"
        "or restart once with --accept-scope-change if their retries may execute again"
    )


async def _write(connection: Connection, scopes: Sequence[ScopeClaim], policies: Sequence[tuple[bytes, int, str]]) -> None:
    if scopes:
        await connection.execute(QUERIES["register_scopes"], *columns(astuple(claim) for claim in scopes))
    if policies:
        by_digest = {digest: (digest, version, text) for digest, version, text in policies}
        await connection.execute(QUERIES["register_policies"], *columns(by_digest.values()))
