"""Rows as parameters: what is sent is what the server reads, for any number of rows."""

import re
import secrets
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.postgres.batching import ROWS_MAX
from gateway.store.postgres.row_statements import SIZES, RowStatement

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]  # generic only in its stubs

SQL = "SELECT r.*, $1::text AS fixed FROM rows(a text, b bytea, c float8) terms(d smallint, e boolean)"
TEXTS = ["", "a", "€", "'\"\\", "\x01", "\U0001f511", "NULL", None]


def statement(sql: str = SQL) -> RowStatement:
    parsed = RowStatement.parse(sql)
    assert parsed is not None
    return parsed


def row(number: int) -> tuple[Any, ...]:
    return TEXTS[number % len(TEXTS)], secrets.token_bytes(number % 5), number / 3 if number % 7 else None


@given(st.integers(1, ROWS_MAX), st.booleans(), st.integers(0, 3))
def test_every_parameter_is_given_once(count: int, shared: bool, fixed: int) -> None:
    """The statement's parameters are numbered without a gap, and there are as many arguments; the given ones stand in order."""
    made = statement("SELECT " + "".join(f"${number + 1}, " for number in range(fixed)) + "1 FROM rows(a text, b bytea) terms(c int)")
    rows = [(f"a{number}", bytes([number])) for number in range(count)]
    terms = [(number,) for number in range(1 if shared else count)]
    sql, arguments = made.bind(range(fixed), rows, terms)
    numbers = {int(number) for number in re.findall(r"\$(\d+)", sql)}
    assert numbers == set(range(1, len(arguments) + 1))
    values = [0, *chain(*rows)] if len(terms) == 1 else [*chain(*[(*each, *own) for each, own in zip(rows, terms, strict=True)])]
    wanted = [*range(fixed), *([count] if count > 1 else []), *values]
    assert arguments[: len(wanted)] == wanted
    assert set(arguments[len(wanted) :]) <= {None}


def test_the_largest_batch_has_a_statement_of_its_size() -> None:
    """No batch is larger than the largest statement, and less than half of one is empty."""
    assert SIZES[-1] == ROWS_MAX
    assert all(size - smaller - 1 < size / 2 for smaller, size in pairwise(SIZES))


def test_a_statement_without_rows_is_none() -> None:
    """Most of the statements are for one row, or for whatever there is."""
    assert RowStatement.parse("SELECT 1 WHERE EXISTS (SELECT FROM narrows(1))") is None


@pytest.mark.parametrize("shared", [True, False])
async def test_the_server_reads_what_was_sent(connection: "Connection", shared: bool) -> None:
    """Every value of every row, and no row more, for batches of any length."""
    for count in [*range(1, 10), 33, 64, 97, ROWS_MAX]:
        rows = [row(number) for number in range(count)]
        terms = [(number, number % 2 == 0) for number in range(1 if shared else count)]
        sql, arguments = statement(SQL.replace("r.*", "*")).bind(["x"], rows, terms)
        read = [tuple(each) for each in await connection.fetch(sql, *arguments)]
        assert read == [(*each, *own, "x") for each, own in zip(rows, terms * (count if shared else 1), strict=True)]
