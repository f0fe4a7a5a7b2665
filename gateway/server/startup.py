"""What must be true before a process serves: a safe Postgres with the right schema, and scopes that mean what they meant."""

import asyncio
import logging

import asyncpg

from gateway.config import Config
from gateway.ports import StoreUnavailable
from gateway.server.assembly import Gateway, make_authority
from gateway.server.claims import policy_claims, scope_claims
from gateway.store.postgres import check_server

START_PATIENCE = 30.0
"""How long a starting process waits for Postgres before it gives up with exit code 69."""

_log = logging.getLogger(__name__)


class Unavailable(Exception):
    """A service that is needed cannot be reached: exit code 69."""


class Refused(Exception):
    """What was found forbids to serve: exit code 78. `problems` are sentences for people."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


async def verify(gateway: Gateway, *, accept_scope_change: bool) -> None:
    """Wait for Postgres, then check it and register what the route map claims. Raises `Unavailable` or `Refused`."""
    config = gateway.config
    await _wait_for_postgres(gateway)
    try:
        problems = await _server_problems(config)
        if problems:
            raise Refused(problems)
        drifts = await gateway.registry.register(scope_claims(config), policy_claims(config), accept_change=accept_scope_change)
    except StoreUnavailable as error:
        raise Unavailable(str(error)) from error
    if drifts:
        raise Refused([*drifts, "Start once with --accept-scope-change if retries of these live records may execute again."])


async def _wait_for_postgres(gateway: Gateway) -> None:
    waited = 0.0
    while (reason := await gateway.authority.ready()) is not None:
        if waited >= START_PATIENCE or "schema" in reason:
            raise Unavailable(f"Postgres is not ready: {reason}. Run `idempotency-gateway migrate` if the schema is behind.")
        if waited == 0:
            _log.warning("Waiting for Postgres: %s", reason)
        await asyncio.sleep(0.5)
        waited += 0.5


async def _server_problems(config: Config) -> list[str]:
    try:
        return await check_server(config.postgres.dsn, config.postgres.allow_unsafe)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable("postgres", "refused", may_have_landed=False) from error


async def check_connect(config: Config) -> list[str]:
    """What `check --connect` finds: problems of the servers as sentences, none if all is well. Changes nothing."""
    authority = make_authority(config)
    try:
        reason = await authority.ready()
        problems = [] if reason is None else [f"postgres: {reason}"]
        if reason is None or "schema" in reason:
            problems += [f"postgres: {problem}" for problem in await _server_problems(config)]
    except StoreUnavailable as error:
        problems = [f"postgres: {error.reason}"]
    finally:
        await authority.close()
    return problems + await _check_redis(config)


async def _check_redis(config: Config) -> list[str]:
    if config.redis is None:
        return []
    from redis.asyncio import Redis  # noqa: PLC0415 - only this check speaks to Redis through its high-level client
    from redis.exceptions import RedisError  # noqa: PLC0415 - as above

    client: Redis = Redis.from_url(config.redis.url, socket_timeout=2.0, socket_connect_timeout=2.0)
    try:
        await client.ping()
    except (RedisError, OSError, TimeoutError) as error:
        return [f"redis: {type(error).__name__}: {error}"]
    finally:
        await client.aclose()
    return []
