"""The pages are readable as text, and say who does what."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
"""Those that are not made of the source."""
WIDTH = 120

_NAMELESS = re.compile(r"\b(whoever|nobody|somebody|no one|told of)\b", re.IGNORECASE)
_CODE = re.compile(r"`[^`]*`")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines outside of blocks of code, by number."""
    fenced = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_fit(page: Path) -> None:
    """Prose fits 120 columns; a row of a table is one line."""
    assert [number for number, line in prose(page) if len(line) > WIDTH and not line.startswith("|")] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_actors_have_names(page: Path) -> None:
    """A sentence names its actor: the client, the gateway, the upstream, an operator."""
    assert [(number, found[0]) for number, line in prose(page) if (found := _NAMELESS.search(_CODE.sub("", line)))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file of the project, and each anchor a heading of it."""
    for _, line in prose(page):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", _CODE.sub("", line)):
            linked = (page.parent / target).resolve() if target else page
            assert linked.exists(), target
            if anchor:
                assert anchor in anchors(linked), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings."""
    headings = [line.lstrip("#").strip().lower() for _, line in prose(page) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def test_the_map_shows_files_that_exist() -> None:
    """Every file and folder that docs/architecture.md names is there, below `gateway/` or below the project."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = {name for name in re.findall(r"`([a-z_]+/[\w./]*|[\w/]+\.(?:py|sql|lua|yaml|md))`", text) if "NAME" not in name}
    assert len(named) > 60
    assert sorted(name for name in named if not ((ROOT / "gateway" / name).exists() or (ROOT / name).exists())) == []
