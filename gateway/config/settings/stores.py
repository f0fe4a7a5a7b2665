"""Postgres and Redis, and what is encrypted there."""

from dataclasses import dataclass, field
from typing import Annotated

from gateway.config import addresses
from gateway.core.kinds import Choice, Duration, FromFile, ListOf, SetOf, Size, Text, Whole
from gateway.core.setting import Form
from gateway.core.shards import BatchBy

_ENCRYPTION_KEY = Text("text of 32 characters or more", addresses.encryption_key, secret=True)


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The authority. `timeout` bounds one statement; `allow_unsafe` names what start would otherwise refuse in the
    server.
    """

    dsn: Annotated[str, Text("text", addresses.postgres_dsn, secret=True), "postgresql://user:password@host:5432/db."] = field(repr=False)
    pool_size: Annotated[int, Whole(1, 1000), "Connections of one process."] = 8
    timeout: Annotated[float, Duration("10ms", "1m"), "For one statement, waiting for a connection included."] = 2.0
    prepared_statements: Annotated[bool, "false behind a pooler in transaction mode."] = True
    allow_unsafe: Annotated[
        frozenset[str],
        SetOf(Choice.of(("fsync_off", "synchronous_commit_off", "synchronous_commit_remote_write", "in_recovery"))),
        "Server settings that would otherwise be refused, since they can lose a committed record.",
    ] = frozenset()
    require_standby: Annotated[bool, "true: refuse a server whose commits wait for no synchronous standby."] = False
    batch_by: Annotated[BatchBy, "What the records of one statement share: nothing, their partition, or their Citus shard."] = BatchBy.ANY
    shards: Annotated[int, Whole(2, 100_000), "How many partitions or shards `batch_by` means."] = 32
    clock_skew: Annotated[float, Duration("0s", "500ms"), "By how much clocks of a distributed database's nodes may differ."] = 0.0


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The hot path. Responses over `max_value` bytes are not cached; `replay_ttl` caps how long one is."""

    url: Annotated[
        str,
        Text("text", addresses.redis_url, secret=True),
        "redis://host:6379/0, redis+sentinel://, redis+cluster://; empty: Postgres alone.",
    ] = field(default="", repr=False)
    timeout: Annotated[float, Duration("1ms", "10s"), "For one command; then Postgres answers alone."] = 0.1
    lease: Annotated[float, Duration("100ms", "5m"), "How long a key is marked as running; much shorter than a route's lease."] = 5.0
    replay_ttl: Annotated[float, Duration("1s", "7d"), "How long a completed answer is kept at most."] = 900.0
    max_value: Annotated[int, Size("64MiB"), "Answers with more bytes are not kept in Redis."] = 64 * 1024


@dataclass(frozen=True, slots=True)
class EncryptionKeys(Form[tuple[bytes, ...]]):
    """The first of them seals, and each of them opens."""

    encryption_key: Annotated[bytes | None, _ENCRYPTION_KEY, "The secret under which requests and answers are encrypted."] = field(
        default=None, repr=False
    )
    former_encryption_keys: Annotated[
        tuple[bytes, ...],
        ListOf(_ENCRYPTION_KEY, unique=False),
        "Earlier ones, for what was encrypted under them: until its records are resolved.",
    ] = field(default=(), repr=False)
    former_encryption_key_files: Annotated[
        tuple[bytes, ...] | None, ListOf(FromFile(_ENCRYPTION_KEY), at_least=1, unique=False), "Earlier ones, each in a file of its own."
    ] = field(default=None, repr=False)

    def value(self) -> tuple[bytes, ...]:
        keys = (self.encryption_key, *self.former_encryption_keys, *(self.former_encryption_key_files or ()))
        return tuple(dict.fromkeys(key for key in keys if key))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionSettings:
    """What of records is encrypted, under `encryption_key`."""

    answers: Annotated[bool, "Encrypt answers, captured values and targets of new records, in Postgres and Redis alike."] = False
