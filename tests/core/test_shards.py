"""Which part of a divided database a scope is in. That Postgres says the same is tested at its partitions (tests/store/postgres)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.shards import BatchBy, citus_shard_of, hash_bytes, partition_of, shard_finder

SCOPES = st.text(max_size=80)
COUNTS = st.integers(2, 1000)


@given(SCOPES, COUNTS)
def test_each_scope_is_in_one_of_the_parts(scope_id: str, count: int) -> None:
    assert 0 <= partition_of(scope_id, count) < count
    assert 0 <= citus_shard_of(scope_id, count) < count


@given(st.lists(SCOPES, max_size=8), COUNTS)
def test_what_is_remembered_is_what_is_computed(scopes: list[str], count: int) -> None:
    """A scope stays where it is, however often it is asked for."""
    for by, compute in ((BatchBy.PARTITION, partition_of), (BatchBy.CITUS_SHARD, citus_shard_of)):
        find = shard_finder(by, count)
        assert find is not None
        assert [find(scope) for scope in scopes * 2] == [compute(scope, count) for scope in scopes * 2]


@given(st.binary(max_size=60), st.integers(0, 2**64 - 1))
def test_a_hash_has_64_bits(data: bytes, seed: int) -> None:
    assert 0 <= hash_bytes(data, seed) < 2**64


def test_a_scope_that_cannot_be_stored_is_in_some_part() -> None:
    """It is the statement's to refuse it."""
    assert 0 <= partition_of("x:\ud800", 4) < 4


def test_parts_do_not_matter_by_default() -> None:
    assert shard_finder(BatchBy.ANY, 4) is None
