"""Write docs/reference/ anew, or the same pages to the folder that is named."""

import sys
from pathlib import Path

from scripts.website.references import REFERENCES

_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"


def _write(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, page in REFERENCES.items():
        (folder / name).write_text(page(), "utf-8")


_write(Path(sys.argv[1]) if len(sys.argv) > 1 else _FOLDER)
