"""In which part of a divided database a scope's records are: Postgres' own hash functions, so that a batch can be made of
records that belong together.

The gateway never relies on it: a batch that is spread over several parts is as correct, and slower.
"""

import enum
import struct
from collections.abc import Callable
from typing import assert_never

from gateway.core.memo import Memo

_MASK = 0xFFFFFFFF
_LONG = 0xFFFFFFFFFFFFFFFF
_PARTITION_SEED = 0x7A5B22367996DCFD
_COMBINE = 0x49A0F4DD15E5A8E3
_REMEMBERED = 65536

ShardOf = Callable[[str], int]
"""The part of a scope id."""


class BatchBy(enum.StrEnum):
    """What the records of one statement have in common."""

    ANY = "any"
    PARTITION = "partition"
    CITUS_SHARD = "citus_shard"


def shard_finder(by: BatchBy, count: int) -> ShardOf | None:
    """How to find the part of a scope, of `count`; None where parts do not matter."""
    match by:
        case BatchBy.ANY:
            return None
        case BatchBy.PARTITION:
            return _remembering(partition_of, count)
        case BatchBy.CITUS_SHARD:
            return _remembering(citus_shard_of, count)
        case _:
            assert_never(by)


def hash_bytes(data: bytes, seed: int = 0) -> int:
    """`hash_bytes_extended` of Postgres (Bob Jenkins' lookup3): 64 bits. The lower 32 are `hash_bytes` where `seed` is 0."""
    a = b = c = (0x9E3779B9 + len(data) + 3923095) & _MASK
    if seed:
        a, b, c = _mix((a + (seed >> 32)) & _MASK, (b + (seed & _MASK)) & _MASK, c)
    whole = len(data) // 12 * 12
    for x, y, z in struct.iter_unpack("<III", data[:whole]):
        a, b, c = _mix((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)
    rest = data[whole:]
    x, y = struct.unpack("<II", rest[:8].ljust(8, b"\0"))
    z = int.from_bytes(rest[8:], "little") << 8  # its lowest byte is kept for the length
    return _final((a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK)


def partition_of(scope_id: str, partitions: int) -> int:
    """The remainder by which `PARTITION BY HASH (scope_id)` finds a row's partition."""
    combined = (hash_bytes(_bytes(scope_id), _PARTITION_SEED) + _COMBINE) & _LONG
    return combined % partitions


def citus_shard_of(scope_id: str, shards: int) -> int:
    """Which of so many equal ranges of `hashtext` a scope is in, as Citus divides a table that is distributed by it."""
    token = (hash_bytes(_bytes(scope_id)) + 2**31) & _MASK
    return min(token // (2**32 // shards), shards - 1)


def _remembering(shard_of: Callable[[str, int], int], count: int) -> ShardOf:
    """The part by scope id, of `count`, computed once for each of the latest scopes."""
    seen: Memo[str, int] = Memo(_REMEMBERED)

    def find(scope_id: str) -> int:
        known = seen.get(scope_id)
        return seen.keep(scope_id, shard_of(scope_id, count)) if known is None else known

    return find


def _bytes(scope_id: str) -> bytes:
    return scope_id.encode("utf-8", "surrogatepass")  # what cannot be stored is the statement's to refuse


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):
        a = ((a - c) & _MASK) ^ _rotate(c, bits)
        c = (c + b) & _MASK
        a, b, c = b, c, a
    return a, b, c


def _final(a: int, b: int, c: int) -> int:
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotate(b, bits)) & _MASK
        a, b, c = b, c, a
    return (a << 32) | b
