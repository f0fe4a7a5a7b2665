"""The statements of `queries.sql`, by name."""

from importlib.resources import files

_ONLY, _ALL = "-- only ", "-- all"


def _load() -> dict[str, str]:
    """Split the file at its `-- name:` lines."""
    _, *sections = files(__package__).joinpath("queries.sql").read_text("utf-8").split("-- name: ")
    queries: dict[str, str] = {}
    for section in sections:
        names, _, text = section.partition("\n")
        for name in names.strip().split(", "):
            queries[name] = f"/* idempotency-gateway: {name} */\n" + "\n".join(_lines(name, text))
    return queries


def _lines(name: str, text: str) -> list[str]:
    """What of a section belongs to the statement. Comments go, the name stays: it is what a DBA sees in `pg_stat_activity`."""
    lines: list[str] = []
    mine = True
    for line in text.splitlines():
        if line.startswith(_ONLY):
            mine = line.removeprefix(_ONLY) == name
        elif line == _ALL:
            mine = True
        elif mine and line.strip() and not line.lstrip().startswith("--"):
            lines.append(line)
    return lines


QUERIES = _load()
