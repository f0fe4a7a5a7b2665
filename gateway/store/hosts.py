"""Connecting to Postgres where it may be at several hosts (`postgresql://user@one:5432,two:5432/db`): the one that takes writes is wanted.

The driver tries hosts in order too, but within one time limit: the first that is silent, as a host without power is, would take all of it.
Here each gets its share, and the one that was right the last time is tried first. Addresses are looked up anew each time.
"""

import re
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

_ATTRIBUTE = "target_session_attrs"
_PARTS = re.compile(r"(?P<login>[a-z]+://(?:[^/?#]*@)?)(?P<hosts>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?")


def dsn_of_each(dsn: str) -> list[str]:
    """A DSN for each host. Of several hosts only one that can be written counts, unless the DSN says otherwise."""
    # By hand: several hosts are no URL, and some versions of Python's urlsplit refuse a bracket behind the first.
    found = _PARTS.fullmatch(dsn)
    if found is None or "," not in found["hosts"]:
        return [dsn]
    query = found["query"] or ""
    if f"{_ATTRIBUTE}=" not in query:
        query = f"{query}{'&' if query else ''}{_ATTRIBUTE}=read-write"
    return [f"{found['login']}{host}{found['path'] or ''}?{query}" for host in found["hosts"].split(",")]


class Hosts:
    """Where the server of a DSN is."""

    def __init__(self, dsn: str) -> None:
        self._dsns = dsn_of_each(dsn)
        self._last = 0

    async def connect(self, timeout: float, **settings: Any) -> "Connection":
        """A connection within `timeout` seconds. Raises as `asyncpg.connect` does; what the last host said, if none will do."""
        if len(self._dsns) == 1:
            only: Connection = await asyncpg.connect(self._dsns[0], timeout=timeout, **settings)
            return only
        failed: Exception = asyncpg.CannotConnectNowError("no host was tried")
        for step in range(len(self._dsns)):
            number = (self._last + step) % len(self._dsns)
            try:
                connection: Connection = await asyncpg.connect(self._dsns[number], timeout=timeout / len(self._dsns), **settings)
            except asyncpg.exceptions.TargetServerAttributeNotMatched:
                failed = asyncpg.CannotConnectNowError("no host of the DSN takes writes")
            except (TimeoutError, OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError) as error:
                failed = error
            else:
                self._last = number
                return connection
        raise failed


async def connect(dsn: str, timeout: float, **settings: Any) -> "Connection":
    """One connection to the server of a DSN: see `Hosts.connect`."""
    return await Hosts(dsn).connect(timeout, **settings)
