"""Where a file of the project stands in the site, and how links follow it there. Pure: files are read by scripts/website/hooks.py."""

import posixpath
import re
from collections.abc import Callable, Iterator

PICTURES = (".svg", ".png")
_LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^ *(```|~~~)")


def place(path: str, *, folder: bool = False) -> str:
    """The source in the site of a file or folder of the project: the README is the first page; what is no document becomes a page that
    shows it.
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    if path == "CHANGELOG.md":
        return "changelog.md"
    if folder:
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith((".md", *PICTURES)) else f"source/{path}.md"


def targets(text: str, page: str) -> Iterator[str]:
    """The files and folders of the project that a document at the path `page` links to."""
    for line, fenced in _lines(text):
        if not fenced:
            for _, target, _, _ in _LINK.findall(line):
                yield _resolved(target, page)


def moved(text: str, page: str, is_folder: Callable[[str], bool]) -> str:
    """The document, with links that are right where the site has it."""
    base = posixpath.dirname(place(page))

    def follow(found: re.Match[str]) -> str:
        path = _resolved(found[2], page)
        return f"{found[1]}{posixpath.relpath(place(path, folder=is_folder(path)), base or '.')}{found[3] or ''}{found[4]}"

    return "".join(line if fenced else _LINK.sub(follow, line) for line, fenced in _lines(text))


def _resolved(target: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to a block of code."""
    fenced = False
    for line in text.splitlines(keepends=True):
        fence = bool(_FENCE.match(line))
        yield line, fenced or fence
        fenced = fenced != fence
