"""The statements of this package's .sql files, by name."""

from importlib.resources import files

_ONLY, _ALL = "-- only ", "-- all"


def _load() -> dict[str, str]:
    """Split each file at its `-- name:` lines."""
    queries: dict[str, str] = {}
    for entry in files(__package__).iterdir():
        if not entry.name.endswith(".sql"):
            continue
        _, *sections = entry.read_text("utf-8").split("-- name: ")
        for section in sections:
            names, _, text = section.partition("\n")
            for name in names.strip().split(", "):
                assert name not in queries, f"{entry.name}: {name} has this name already"
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
