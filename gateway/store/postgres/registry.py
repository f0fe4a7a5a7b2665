"""What scopes and fingerprint policies mean, so that it cannot drift while records live by it.

A scope whose name, principal, key settings or digest secret changes moves its retries into another namespace, where they would execute
again. So the database remembers, and a start or reload compares.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from gateway.store.postgres.lane import Connection, Lane, Refused, unavailable
from gateway.store.postgres.lanes import Lanes
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import columns

T = TypeVar("T")

LOCK = 0x1DE_4907E_5C0E
"""The advisory lock that registrations take, so that two starts see each other's."""

_FACTS = {"principal": "principal", "key_settings": "key settings", "secret_check": "digest secret"}


@dataclass(frozen=True, slots=True)
class ScopeClaim:
    """What the configuration says that a scope means. `secret_check` is a check value of the digest secret, not the secret."""

    scope: str
    principal: str
    key_settings: str
    secret_check: str


class Registry:
    """Scopes and fingerprint policies, as the database knows them. Raises `StoreUnavailable` and no other error."""

    def __init__(self, lanes: Lanes, timeout: float) -> None:
        self._lanes = lanes
        self._timeout = timeout

    async def register(
        self, scopes: Sequence[ScopeClaim], policies: Sequence[tuple[bytes, int, str]], *, accept_change: bool = False
    ) -> list[str]:
        """Write down what is new. Returns one message for each scope that changed while records of it live; then nothing is written.

        A change without live records, or with `accept_change`, is written. `policies` are (digest, version, text). One transaction.
        """

        async def work(connection: Connection) -> list[str]:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            drift = [] if accept_change else await _drift(connection, scopes)
            if not drift:
                await _write(connection, scopes, policies)
            return drift

        return await self._call(lambda lane: lane.together(work))

    async def fingerprint_policy(self, digest: bytes) -> tuple[int, str] | None:
        """(version, text) of the policy with this digest, if it was ever registered."""
        rows = await self._call(lambda lane: lane.fetch(QUERIES["fingerprint_policy"], digest))
        return (rows[0]["version"], rows[0]["policy"]) if rows else None

    async def _call(self, work: Callable[[Lane], Awaitable[T]]) -> T:
        try:
            return await self._lanes.call(work, asyncio.get_running_loop().time() + self._timeout)
        except Refused as error:
            raise unavailable("error", may_have_landed=True) from error


async def _drift(connection: Connection, scopes: Sequence[ScopeClaim]) -> list[str]:
    known = {row["scope"]: row for row in await connection.fetch(QUERIES["scopes"], [claim.scope for claim in scopes])}
    messages: list[str] = []
    for claim in scopes:
        row = known.get(claim.scope)
        changed = [words for fact, words in _FACTS.items() if row is not None and row[fact] != getattr(claim, fact)]
        if changed and await connection.fetchval(QUERIES["scope_is_live"], claim.scope):
            messages.append(f"scope {claim.scope!r} has live records, but its {' and '.join(changed)} changed: retries would run again")
    return messages


async def _write(connection: Connection, scopes: Sequence[ScopeClaim], policies: Sequence[tuple[bytes, int, str]]) -> None:
    if scopes:
        by_name = {claim.scope: astuple(claim) for claim in scopes}
        await connection.execute(QUERIES["register_scopes"], *columns(by_name.values()))
    if policies:
        by_digest = {digest: (digest, version, text) for digest, version, text in policies}
        await connection.execute(QUERIES["register_policies"], *columns(by_digest.values()))
