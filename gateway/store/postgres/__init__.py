"""The authority: records in Postgres."""

from gateway.store.postgres.checks import check_server
from gateway.store.postgres.registry import Registry, ScopeClaim
from gateway.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "Registry", "ScopeClaim", "check_server"]
