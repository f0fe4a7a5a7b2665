"""What scopes and fingerprint policies mean, so that it cannot drift while records live by it, or while somebody serves it.

A scope whose name, principal, key settings or digest secret changes moves its retries into another namespace, where they would execute
again. So the database remembers, and a start or reload compares. A scope without a live record may get one at any moment from a process
that serves it; so each process holds its scopes as it understands them, for a while (`HELD_FOR`), and looks again before that is over.
Whoever wants another meaning waits until nobody holds the old one: the first who registered wins.

Registrations lock each other out, and looks lock registrations out (an advisory lock, shared by looks). A look that began after a
registration hence sees it, and a registration that began after a look sees its holder.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from gateway.core.timeline import Limits
from gateway.store.postgres.clock import DatabaseClock
from gateway.store.postgres.lane import Connection, DataRefused, Lane, unavailable
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.meanings import Claims, ScopeClaim, changes, claims_of, claims_text, differences, disturbs, registered
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import columns

T = TypeVar("T")

LOCK = 0x1DE_4907E_5C0E
"""The advisory lock that registrations take alone, and looks together."""

COUNTED = 1000
"""Live records and tombstones are counted up to this many, so that a refusal does not wait for a count of millions."""

HELD_FOR = 30.0
"""Seconds for which a registration or a look holds scopes: several looks may fail meanwhile, and a killed process is soon over."""

NOBODY = UUID(int=0)
"""The holder that commands are: they hold nothing, and all others are others."""


class Registry:
    """Scopes and fingerprint policies, as the database knows them. Raises `StoreUnavailable` and no other error.

    Several route maps may share a database, and a scope. So a route belongs to the scope that claimed it last, and stays listed there
    until a map puts it into another scope: a map that does not mention it may not be the one that serves it, and the records that it
    made live on. A scope's list is hence what all maps ever claimed, less what was since claimed for another scope; that leaves the old
    list in the same transaction, so that a move that was written once (nothing was live, or it was accepted) is never told again.
    """

    def __init__(self, lanes: Lanes, timeout: float, clock: DatabaseClock) -> None:
        self._lanes = lanes
        self._timeout = timeout
        self._clock = clock

    async def register(
        self,
        scopes: Sequence[ScopeClaim],
        policies: Sequence[tuple[bytes, int, str]],
        *,
        accept_change: bool = False,
        holder: UUID = NOBODY,
    ) -> list[str]:
        """Write down what is new, and that `holder` serves `scopes` from now on. Returns one message for each drift that something is in
        the way of; then nothing is written.

        Drift is a scope whose settings changed, or that lists a route which `scopes` put into another scope. In its way are live
        records, tombstones, and other processes that hold the scope in its old meaning. One that nothing is in the way of, or with
        `accept_change`, is written. Registered scopes that `scopes` neither mention nor take a route from are left alone. `policies` are
        (digest, version, text). One transaction.
        """
        claims = {claim.scope: claim for claim in scopes}

        async def work(connection: Connection) -> list[str]:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            known, limits = await _known(connection), self._clock.limits()
            drift = [] if accept_change else await _drift(connection, known, claims, holder, limits)
            if not drift:
                await _write(connection, registered(known, claims), policies)
                await connection.execute(QUERIES["forget_holders"], limits)
                if holder != NOBODY:
                    await connection.execute(QUERIES["hold"], holder, claims_text(scopes), HELD_FOR)
            return drift

        return await self._call(lambda lane: lane.together(work))

    async def drifts(self, scopes: Sequence[ScopeClaim]) -> list[str]:
        """The messages for which `register` would refuse `scopes`. Writes nothing and waits for no other registration."""
        claims = {claim.scope: claim for claim in scopes}

        async def work(connection: Connection) -> list[str]:
            return await _drift(connection, await _known(connection), claims, NOBODY, self._clock.limits())

        return await self._call(lambda lane: lane.together(work))

    async def hold(self, scopes: Sequence[ScopeClaim], holder: UUID) -> str:
        """Hold `scopes` for `HELD_FOR` more, and return a digest of the whole registry as it is meanwhile.

        What nobody registered stays so. While the digest is the one of a registry without `differences`, all is as `scopes` say.
        """

        async def work(connection: Connection) -> str:
            await connection.execute("SELECT pg_advisory_xact_lock_shared($1)", LOCK)
            if not await connection.fetchval(QUERIES["keep_holding"], holder, HELD_FOR):
                await connection.execute(QUERIES["hold"], holder, claims_text(scopes), HELD_FOR)
            return str(await connection.fetchval(QUERIES["scopes_digest"]))

        return await self._call(lambda lane: lane.together(work))

    async def differences(self, scopes: Sequence[ScopeClaim]) -> dict[str, str]:
        """What the registry says otherwise than `scopes`, or does not say, in words, by the scope of `scopes` that is concerned."""
        known = await self._call(lambda lane: lane.together(_known))
        return differences(known, {claim.scope: claim for claim in scopes})

    async def let_go(self, holder: UUID) -> None:
        """`holder` serves nothing any more."""
        await self._call(lambda lane: lane.fetch(QUERIES["let_go"], holder))

    async def fingerprint_policy(self, digest: bytes) -> tuple[int, str] | None:
        """(version, text) of the policy with this digest, if it was ever registered."""
        rows = await self._call(lambda lane: lane.fetch(QUERIES["fingerprint_policy"], digest))
        return (rows[0]["version"], rows[0]["policy"]) if rows else None

    async def _call(self, work: Callable[[Lane], Awaitable[T]]) -> T:
        try:
            return await self._lanes.call(work, asyncio.get_running_loop().time() + self._timeout)
        except DataRefused as error:
            raise unavailable("error", may_have_landed=False, asked=True) from error


async def _known(connection: Connection) -> Claims:
    """Every registered scope: a scope that the route map does not mention may list one of its routes."""
    return {row["scope"]: ScopeClaim(**row) for row in await connection.fetch(QUERIES["scopes"])}


async def _drift(connection: Connection, known: Claims, claims: Claims, holder: UUID, limits: Limits) -> list[str]:
    found = changes(known, claims)
    rows = await connection.fetch(QUERIES["other_holders"], holder, limits) if found else []
    others = [(claims_of(row["claims"]), row["held_until"]) for row in rows]
    messages: list[str] = []
    for change in found:
        live = await _live(connection, change.scope, limits)
        serving = _served([until for held, until in others if disturbs(change, claims, held)])
        reasons = "; ".join(reason for reason in (live, serving) if reason)
        if reasons:
            messages.append(f"scope {change.scope!r}: {', '.join(change.words)}; {reasons}")
    return messages


def _served(until: Sequence[datetime]) -> str | None:
    """Who serves the scope as it was, and how to go on, in words; None if nobody does."""
    if not until:
        return None
    who = "1 other process serves" if len(until) == 1 else f"{len(until)} other processes serve"
    return (
        f"{who} it as it was: a key would execute once in each meaning. Undo the change, or stop them first (one that was killed "
        f"counts until {max(until):%H:%M:%S} UTC)"
    )


async def _live(connection: Connection, scope: str, limits: Limits) -> str | None:
    """What lives in a scope, what a change would do to it and how to go on, in words; None if nothing lives."""
    row = await connection.fetchrow(QUERIES["live_records"], scope, COUNTED, limits)
    tombstones = await connection.fetchrow(QUERIES["live_tombstones"], scope, COUNTED, limits)
    assert row is not None
    assert tombstones is not None
    found = [(row["found"], "record"), (tombstones["found"], "tombstone")]
    if not any(count for count, _ in found):
        return None
    things = " and ".join(_counted(count, thing) for count, thing in found if count)
    verb = "is" if sum(count for count, _ in found) == 1 else "are"
    latest = None if row["endless"] else max(last for last in (row["last"], tombstones["last"]) if last is not None)
    last = "expires never by itself (in progress or unknown)" if latest is None else f"expires at {latest:%Y-%m-%d %H:%M:%S} UTC"
    wait = "" if latest is None else "wait until then, "
    return (
        f"{things} {verb} live, the last of which {last}: their retries would execute again. Undo the change, {wait}"
        "or restart once with --accept-scope-change if their retries may execute again"
    )


def _counted(count: int, thing: str) -> str:
    most = f"at least {count}" if count >= COUNTED else str(count)
    return f"{most} {thing}{'' if count == 1 else 's'}"


async def _write(connection: Connection, scopes: Sequence[ScopeClaim], policies: Sequence[tuple[bytes, int, str]]) -> None:
    if scopes:
        await connection.execute(QUERIES["register_scopes"], *columns(astuple(claim) for claim in scopes))
    if policies:
        by_digest = {digest: (digest, version, text) for digest, version, text in policies}
        await connection.execute(QUERIES["register_policies"], *columns(by_digest.values()))
