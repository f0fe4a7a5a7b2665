"""Golden vectors. What they pin is stored in databases: a change here is a new fingerprint version, never an edit."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "vectors"


def load(name: str) -> list[dict[str, Any]]:
    """The cases of one file."""
    cases: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return cases
