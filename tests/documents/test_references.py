"""The reference pages are what the source says now."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.website.references import REFERENCES
from scripts.website.references.markdown import anchor, cell, table
from tests.documents.test_prose import ROOT

FOLDER = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def anew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as a process of their own makes them: commands remember how they were first asked for help."""
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, "-m", "scripts.website.references", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", REFERENCES)
def test_the_page_is_up_to_date(anew: Path, name: str) -> None:
    """A setting, metric, field, answer, operation or command has changed: the page is made anew, and read."""
    assert (FOLDER / name).read_text("utf-8") == (anew / name).read_text("utf-8"), "python3 scripts/docs --references"


def test_there_is_no_other_page() -> None:
    """What is there is made of the source."""
    assert {page.name for page in Path(FOLDER).iterdir()} == set(REFERENCES)


def test_cells_are_whole() -> None:
    """What is no code cannot end a cell, begin a tag or a stress; code stays as it is."""
    assert cell("a | b <c> *d* `e*|f`") == r"a \| b \<c> \*d\* `e*\|f`"
    assert table(("a", "b"), [("", "c\nd")]) == "| a | b |\n| --- | --- |\n| | c d |\n"


def test_anchors_are_those_of_github() -> None:
    """Letters, digits, hyphens and underscores stay."""
    assert anchor("`routes[].request_headers`") == "routesrequest_headers"
