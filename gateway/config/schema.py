"""The configuration file as JSON Schema, for editors. Made from the table that the loader reads with."""

from gateway.config.fields import CONFIG
from gateway.config.kinds import Schema


def json_schema() -> Schema:
    """JSON Schema draft 2020-12 of the file as written, variables included.

    It accepts every file that `load` accepts, and also some that `load` refuses: what spans several values is left to `load`.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of the idempotency gateway",
        "$defs": {"interpolated": {"type": "string", "pattern": r"\$\{", "description": "${VAR}, ${VAR:-default} or ${VAR:?message}"}},
        **CONFIG.schema(),
    }
