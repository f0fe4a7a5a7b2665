"""The statements of this package's .sql files, by name."""

import re
from importlib.resources import files

from gateway.store.postgres.row_statements import RowStatement

_ONLY, _ALL = "-- only ", "-- all"
_PARAMETER = re.compile(r"\$(\d+)")
_JUDGES = {"lapse_now()": 1, "expiry_now()": 2}
"""What stands in the files for the earlier of now() and a limit, and which of `gateway.core.timeline.Limits` that is."""


def _load() -> tuple[dict[str, str], frozenset[str], dict[str, RowStatement]]:
    """Split each file at its `-- name:` lines."""
    queries: dict[str, str] = {}
    judging: set[str] = set()
    for_rows: dict[str, RowStatement] = {}
    for entry in files(__package__).iterdir():
        if not entry.name.endswith(".sql"):
            continue
        _, *sections = entry.read_text("utf-8").split("-- name: ")
        for section in sections:
            names, _, text = section.partition("\n")
            for name in names.strip().split(", "):
                assert name not in {**queries, **for_rows}, f"{entry.name}: {name} has this name already"
                sql = "\n".join(_lines(name, text))
                if any(word in sql for word in _JUDGES):
                    sql = _limited(sql, scalars=RowStatement.parse(sql) is not None)
                    judging.add(name)
                sql = f"/* idempotency-gateway: {name} */\n{sql}"
                if (statement := RowStatement.parse(sql)) is not None:
                    for_rows[name] = statement
                else:
                    queries[name] = sql
    return queries, frozenset(judging), for_rows


def _lines(name: str, text: str) -> list[str]:
    """What of a section belongs to the statement. Comments go, the name stays: it is what a DBA sees in `pg_stat_activity`."""
    lines: list[str] = []
    mine = True
    for line in text.splitlines():
        if line.startswith(_ONLY):
            mine = name in line.removeprefix(_ONLY).split(", ")
        elif line == _ALL:
            mine = True
        elif mine and line.strip() and not line.lstrip().startswith("--"):
            lines.append(line)
    return lines


def _limited(sql: str, *, scalars: bool) -> str:
    """The statement with one parameter more behind its own, the limits of what it judges, or (`scalars`) with two."""
    last = max((int(number) for number in _PARAMETER.findall(sql)), default=0) + 1
    for word, which in _JUDGES.items():
        limit = f"${last + which - 1}::float8" if scalars else f"(${last}::float8[])[{which}]"
        sql = sql.replace(word, f"least(now(), to_timestamp({limit}))")
    return sql


QUERIES, JUDGING, ROWS = _load()
"""ROWS: the statements for any number of rows. JUDGING: those that judge by the clock. Their last argument is
`DatabaseClock.limits()` of the moment at which they are sent; in ROWS they are the last two ahead of the rows.
"""
