"""Write docs/reference/ anew."""

from pathlib import Path

from scripts.website.references import REFERENCES

_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
_FOLDER.mkdir(exist_ok=True)
for _name, _page in REFERENCES.items():
    (_FOLDER / _name).write_text(_page(), "utf-8")
