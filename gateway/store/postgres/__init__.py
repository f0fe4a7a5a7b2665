"""The authority: records in Postgres."""

from gateway.store.postgres.checks import check_server
from gateway.store.postgres.meanings import ScopeClaim
from gateway.store.postgres.registry import Registry
from gateway.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "Registry", "ScopeClaim", "check_server"]
