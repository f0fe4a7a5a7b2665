"""The session's servers are what they say they are."""

import asyncpg

from gateway.devtools.embedded import PostgresServer, RedisServer
from tests.support.services import redis_command


async def test_every_postgres_is_durable(every_postgres: PostgresServer) -> None:
    """Each Postgres of the matrix runs with fsync and synchronous_commit on."""
    connection = await asyncpg.connect(every_postgres.dsn)
    try:
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await connection.close()


async def test_an_empty_database_has_no_table(empty_database: str) -> None:
    """A test's own database starts without tables."""
    connection = await asyncpg.connect(empty_database)
    try:
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    finally:
        await connection.close()


def test_every_redis_is_empty(every_redis: RedisServer, every_redis_db: str) -> None:
    """A test's Redis holds nothing that an earlier test wrote."""
    assert every_redis_db == every_redis.url
    assert redis_command(every_redis, "DBSIZE") == b":0"
