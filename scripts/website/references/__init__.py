"""The pages of docs/reference/, made of what the program itself reads: each setting, metric, log field, answer, admin operation and command
has its text where it is declared. `python3 scripts/docs --references` writes them anew; a test says when that is due.
"""

from collections.abc import Callable, Mapping
from typing import Final

from scripts.website.references import admin, commands, log, metrics, problems, settings

REFERENCES: Final[Mapping[str, Callable[[], str]]] = {
    "settings.md": settings.page,
    "problems.md": problems.page,
    "metrics.md": metrics.page,
    "log.md": log.page,
    "admin-api.md": admin.page,
    "commands.md": commands.page,
}
"""What makes each page, by the name of its file."""
