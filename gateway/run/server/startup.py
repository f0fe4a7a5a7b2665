"""What must be true before a process serves: a safe Postgres with the right schema, and scopes that mean what they
meant.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg

from gateway.config import Config
from gateway.core.conninfo import DsnError
from gateway.core.units import format_duration
from gateway.ports import StoreUnavailable
from gateway.run.server.claims import participants, scope_claims
from gateway.run.server.gateway import Gateway
from gateway.run.server.stores import make_authority
from gateway.store import co_commit
from gateway.store.hosts import connect
from gateway.store.migrate import pending
from gateway.store.postgres import PostgresStore, check_server
from gateway.store.postgres.checks import problems_of
from gateway.store.redis.servers import faults_of

START_PATIENCE = 30.0
"""How long a starting process waits for Postgres before it gives up with exit code 69."""

_HOPELESS = frozenset({"28", "3D"})
"""Classes of SQLSTATE that no waiting mends: the login is refused, the database is not there."""

_LOST = frozenset({"08", "53", "57"})
"""Classes of SQLSTATE of a server that goes away, or has no room now."""

_DRIVER_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ValueError)

_log = logging.getLogger(__name__)


class Unavailable(Exception):
    """A service that is needed cannot be reached: exit code 69."""


class StartRefused(Exception):
    """The process must not serve: exit code 78. `problems` are sentences for people."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why Postgres is not ready, in a sentence that holds no secret; `final` if waiting cannot mend it."""

    sentence: str
    final: bool


async def verify(gateway: Gateway, *, accept_scope_change: bool) -> None:
    """Wait for Postgres, then check it and register what the route map claims. Raises `Unavailable` or `StartRefused`.

    It waits again for a server that goes away between two of these steps; all of it has `START_PATIENCE`.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + START_PATIENCE
    while True:
        await _wait_for_postgres(gateway, until)
        try:
            problems = await _server_problems(gateway.config)
            problems = problems or await gateway.scopes.register(gateway.config, accept_change=accept_scope_change)
            if not problems:
                await gateway.authority.participation.register(participants(gateway.config))
                for warning in await participation_warnings(gateway.config):
                    _log.warning("%s", warning)
        except (Unavailable, StoreUnavailable) as error:
            if loop.time() >= until or not _went_away(error):
                raise Unavailable(str(error)) from error
            _log.warning("Waiting for Postgres: %s", error)
            await asyncio.sleep(0.5)
        else:
            if problems:
                raise StartRefused(problems)
            gateway.authority.hold_to(lambda row: _problems(gateway.config, row))
            return


async def unfitness(authority: PostgresStore) -> str | None:
    """Why Postgres cannot serve, in words; None if it can. What a start would refuse is refused later, too: a failover may have led to
    another server, or a person changed its settings.
    """
    reason = await authority.ready()
    if reason is not None:
        return reason
    try:
        return await authority.unfit()
    except StoreUnavailable as error:
        return f"Postgres is unreachable: {error.reason}"


def _went_away(error: Unavailable | StoreUnavailable) -> bool:
    """Whether the server was lost on the way. What it said itself (no permission) is said again the next time."""
    if isinstance(error, StoreUnavailable):
        return error.reason in {"refused", "timeout", "disconnected"}
    cause = error.__cause__
    return not isinstance(cause, asyncpg.PostgresError) or (cause.sqlstate or "")[:2] in _LOST


async def _wait_for_postgres(gateway: Gateway, until: float) -> None:
    loop = asyncio.get_running_loop()
    told = None
    while (reason := await gateway.authority.ready()) is not None:
        trouble = await _diagnose(gateway.config, reason)
        if trouble.final or loop.time() >= until:
            raise Unavailable(f"Postgres is not ready: {trouble.sentence}")
        if trouble.sentence != told:
            _log.warning("Waiting for Postgres: %s", trouble.sentence)
            told = trouble.sentence
        await asyncio.sleep(0.5)


async def _diagnose(config: Config, reason: str) -> _Trouble:
    """What is behind a store that is not ready for `reason`: for one that cannot be asked, what the driver says when it
    is tried once.
    """
    if "unreachable" not in reason:
        return _Trouble(reason, final="schema" in reason)
    timeout = config.postgres.timeout
    try:
        async with asyncio.timeout(2 * timeout):
            connection = await connect(config.postgres.dsn, timeout, statement_cache_size=0)
            try:
                await pending(connection)
            finally:
                await connection.close(timeout=1)
    except _DRIVER_ERRORS as error:
        sqlstate = (error.sqlstate or "") if isinstance(error, asyncpg.PostgresError) else ""
        return _Trouble(_sentence(error, timeout), final=sqlstate[:2] in _HOPELESS)
    return _Trouble(reason, final=False)


def _sentence(error: Exception, timeout: float) -> str:
    """The driver's words in one line."""
    match error:
        case TimeoutError():
            return f"no answer within {format_duration(timeout)}"
        case ValueError() if not isinstance(error, asyncpg.InterfaceError | OSError | DsnError):
            # Of Python's own making, about a piece of the DSN, which it repeats.
            return f"the DSN cannot be used ({type(error).__name__})"
        case _:
            return " ".join(str(error).split()) or type(error).__name__


def _problems(config: Config, row: Mapping[str, object]) -> list[str]:
    return problems_of(row, config.postgres.allow_unsafe, standby=config.postgres.require_standby)


async def _server_problems(config: Config) -> list[str]:
    try:
        postgres = config.postgres
        return await check_server(postgres.dsn, postgres.allow_unsafe, standby=postgres.require_standby)
    except _DRIVER_ERRORS as error:
        raise Unavailable(f"Postgres is not ready: {_sentence(error, 10.0)}") from error


async def participation_warnings(config: Config) -> list[str]:
    """What upstreams that complete records themselves will miss, as sentences. Raises `Unavailable`.

    No reason to refuse a start: only those upstreams call the functions, and without them roll back what they began. A
    rolling change may install them after the gateways are there, and a restart must not depend on another's setup.
    """
    policies = [(route.id, route.policy) for route in config.routes if route.policy is not None]
    routes = [name for name, policy in policies if policy.takes_part and policy.participate.co_commit]
    try:
        if not routes or await co_commit.is_installed(config.postgres.dsn):
            return []
    except _DRIVER_ERRORS as error:
        raise Unavailable(f"Postgres is not ready: {_sentence(error, 10.0)}") from error
    names = ", ".join(routes)
    return [f"co_commit ({names}): its functions are not installed; run `idempotency-gateway migrate --co-commit-role NAME`"]


async def check_connect(config: Config) -> list[str]:
    """What `check --connect` finds: all for which `serve` would not start, as sentences; none if all is well. Changes
    nothing.
    """
    # What stores log is for processes that serve. Without any handler, Python would print warnings among the findings.
    logging.getLogger("gateway").addHandler(logging.NullHandler())
    authority = make_authority(config)
    problems: list[str] = []
    try:
        reason = await authority.ready()
        if reason is not None:
            problems.append(f"postgres: {(await _diagnose(config, reason)).sentence}")
        if reason is None or "schema" in reason:
            problems += [f"postgres: {problem}" for problem in await _server_problems(config)]
        if reason is None:
            problems += await authority.registry.drifts(scope_claims(config))
    except StoreUnavailable as error:
        problems.append(f"postgres: {error.reason}")
    except Unavailable as error:
        problems.append(f"postgres: {error}")
    finally:
        await authority.close()
    return problems + await _check_redis(config)


async def _check_redis(config: Config) -> list[str]:
    """Whether Redis can serve: what entries need, and quotas where a route has one, is tried with keys of our own."""
    if config.redis is None:
        return []
    quotas = any(route.policy is not None and route.policy.quota is not None for route in config.routes)
    return [f"redis: {fault}" for fault in await faults_of(config.redis.url, quotas=quotas)]
