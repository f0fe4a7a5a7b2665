"""Statements for as many rows as there are: each value is a parameter of its own, in a VALUES list of the batch's length.

The driver writes such parameters in C, while of an array it asks Python about each element; and the server takes them
as they are.

In the .sql files `rows(name type, …)` stands for the rows, with these columns. `terms(name type, …)` right behind it
stands for columns in which rows mostly agree: they are sent once if all rows agree, and with each row if not.

A statement is made for each of `SIZES`. A batch takes the smallest that holds it; the rows at its end are empty, and a
LIMIT cuts them off. Of a LIMIT that is a parameter the planner assumes a tenth, so that a plan made while the table was
small still looks rows up by the index. One row alone has no LIMIT: the planner then takes its values for constants.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Less than half of a statement is empty. More lengths would save little: an empty row costs ten NULLs, a statement a
third of a MiB of the server's memory for each connection.
"""

_MACRO = re.compile(r"\brows\(([^)]*)\)(?:\s+terms\(([^)]*)\))?")
_PARAMETER = re.compile(r"\$(\d+)")

Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RowStatement:
    """One statement of the .sql files, for any number of rows up to the last of `SIZES`."""

    before: str
    after: str
    columns: Columns
    terms: Columns
    fixed: int
    """How many parameters come ahead of those for the rows."""
    _made: dict[tuple[int, bool], str] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, sql: str) -> "RowStatement | None":
        """The statement, if there are rows in it. Its other parameters are numbered from 1."""
        found = _MACRO.search(sql)
        if found is None:
            return None
        fixed = max((int(number) for number in _PARAMETER.findall(sql)), default=0)
        return cls(sql[: found.start()], sql[found.end() :], _columns(found[1]), _columns(found[2] or ""), fixed)

    def bind(self, fixed: Sequence[Any], rows: Sequence[Sequence[Any]], terms: Sequence[Sequence[Any]] = ((),)) -> tuple[str, list[Any]]:
        """The statement for these rows, and its arguments. `terms`: those of each row, or one for all."""
        count = len(rows)
        size = SIZES[bisect_left(SIZES, count)]
        shared = len(terms) == 1
        arguments = [*fixed] if size == 1 else [*fixed, count]
        if shared:
            arguments += terms[0]
            for row in rows:
                arguments += row
        else:
            for row, own in zip(rows, terms, strict=True):
                arguments += row
                arguments += own
        if size > count:
            arguments += (None,) * ((size - count) * (len(self.columns) + (0 if shared else len(self.terms))))
        return self.sized(size, shared=shared), arguments

    def sized(self, size: int, *, shared: bool) -> str:
        """The statement for `size` rows, with terms for all of them (`shared`) or for each."""
        made = self._made.get((size, shared))
        if made is None:
            made = self._made[size, shared] = f"{self.before}{self._table(size, shared=shared)}{self.after}"
        return made

    def _table(self, size: int, *, shared: bool) -> str:
        limit = self.fixed + 1
        columns, first, common = list(self.columns), limit + (size > 1), ""
        if shared and self.terms:
            common = f" CROSS JOIN (VALUES {_row(self.terms, first, typed=True)}) AS t ({_names(self.terms)})"
            first += len(self.terms)
        else:
            columns += self.terms
        rows = [_row(columns, first + number * len(columns), typed=number == 0) for number in range(size)]
        values = f"SELECT * FROM (VALUES {', '.join(rows)}) AS v ({_names(columns)})"  # noqa: S608 (our own names and numbers)
        return f"({values}{f' LIMIT ${limit}::bigint' if size > 1 else ''}) AS r{common}"


def _columns(text: str) -> Columns:
    return tuple((name, kind) for name, kind in (column.split() for column in text.split(",") if column.strip()))


def _names(columns: Columns) -> str:
    return ", ".join(name for name, _ in columns)


def _row(columns: Columns, first: int, *, typed: bool) -> str:
    """The parameters of one row. The types of the first row's are those of all."""
    return f"({', '.join(f'${first + at}::{kind}' if typed else f'${first + at}' for at, (_, kind) in enumerate(columns))})"
