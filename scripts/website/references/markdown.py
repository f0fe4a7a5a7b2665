"""Pieces of a page: tables, headings, paragraphs that fit."""

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 120
_CODE = re.compile(r"(`[^`]*`)")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """One line a row; what would end a cell is escaped."""
    lines = [headings, ["---"] * len(headings), *([cell(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def cell(text: str) -> str:
    """A text as a cell of a table. Signs that would be markup outside of code are escaped."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([<*])", r"\\\1", part) for part in parts).replace("|", "\\|")


def prose(text: str) -> str:
    """A paragraph, at most `WIDTH` columns wide."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def anchor(heading: str) -> str:
    """The anchor that GitHub and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def code(text: object) -> str:
    """A text as code, also where it has backquotes or is empty."""
    return f"`{text}`" if text and "`" not in str(text) else f"`` {text} ``" if text else ""


def page(title: str, *parts: str) -> str:
    """A page of parts, which an empty line separates."""
    made = f"# {title}\n\n<!-- Made by `python3 scripts/docs --references`: change the source instead. -->\n"
    return "\n".join([made, *(part if part.endswith("\n") else f"{part}\n" for part in parts)])
