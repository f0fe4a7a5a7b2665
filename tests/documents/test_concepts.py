"""The page of concepts shows the states as they are."""

from gateway.core.transitions import CHANGES, diagram
from tests.documents.test_prose import ROOT


def test_the_diagram_is_the_table() -> None:
    """The diagram of the page is made of the table of changes, byte for byte."""
    assert f"```mermaid\n{diagram()}\n```\n" in (ROOT / "docs" / "concepts.md").read_text("utf-8")
    assert diagram().count("-->") == len({(change.source, change.target) for change in CHANGES})
