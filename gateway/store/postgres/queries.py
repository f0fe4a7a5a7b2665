"""The statements of `queries.sql`, by name."""

from importlib.resources import files


def _load() -> dict[str, str]:
    """Split the file at its `-- name:` lines. Comments go, the name stays: it is what a DBA sees in `pg_stat_activity`."""
    _, *sections = files(__package__).joinpath("queries.sql").read_text("utf-8").split("-- name: ")
    queries: dict[str, str] = {}
    for section in sections:
        name, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        queries[name.strip()] = f"/* idempotency-gateway: {name.strip()} */\n" + "\n".join(lines)
    return queries


QUERIES = _load()
