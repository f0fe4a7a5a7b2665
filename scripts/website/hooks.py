"""What mkdocs does beside its own: pages for files that stand outside of docs/, links that lead to them, and diagrams as pictures."""

import posixpath
from pathlib import Path

from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from gateway.core.transitions import diagram
from scripts.website.diagram import picture
from scripts.website.linked import PICTURES, moved, place, targets

ROOT = Path(__file__).resolve().parents[2]
_STATES = f"```mermaid\n{diagram()}\n```\n"
_UNSEARCHED = "---\nsearch: {exclude: true}\n---\n"
_LANGUAGES = {"yml": "yaml", "tpl": "yaml", "py": "python", "service": "ini", "txt": "text", "cfg": "text", "svg": "xml"}
"""What colours a file, by its suffix, where the suffix is not the name of a language."""
_LONG = 50_000
"""Above this a file is shown without colours."""


class _Indents(Extension):
    """Lists are nested by two blanks, as GitHub takes them."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name is the library's
        md.tab_length = 2


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists of two blanks, and a place in the navigation for each page."""
    config.markdown_extensions.append(_Indents())  # mkdocs passes instances on, as it does names
    named = str(config.nav)
    pages = (page.relative_to(ROOT / "docs").as_posix() for page in sorted((ROOT / "docs").rglob("*.md")))
    heading, entries = next(iter(config.nav[-1].items()))
    config.nav[-1] = {heading: [*entries, *(page for page in pages if f"'{page}'" not in named)]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what docs/ and the README link to, and what those files link to in turn."""
    waiting = ["README.md", "CHANGELOG.md", *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).exists():  # mkdocs itself complains of a link that leads nowhere
            continue
        seen.add(path)
        if not path.startswith("docs/"):
            files.append(_added(path, config))
        waiting += _leads_to(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of documents in docs/ follow files that stand elsewhere. The diagram of states becomes a picture."""
    if page.file.generated_by is None:
        markdown = moved(markdown, f"docs/{page.file.src_uri}", _is_folder)
    return markdown.replace(_STATES, f"\n{picture()}\n\n")


def _added(path: str, config: MkDocsConfig) -> File:
    uri = place(path, folder=_is_folder(path))
    if path.endswith(PICTURES):
        return File.generated(config, uri, abs_src_path=str(ROOT / path))
    return File.generated(config, uri, content=_content(path, uri))


def _content(path: str, uri: str) -> str:
    real = ROOT / path
    if real.is_dir():
        links = (f"* [{child.rpartition('/')[2]}]({_between(uri, place(child, folder=_is_folder(child)))})\n" for child in _children(path))
        return f"{_UNSEARCHED}# {path}\n\n{''.join(links)}"
    text = real.read_text("utf-8")
    if path.endswith(".md"):
        return moved(text, path, _is_folder)
    return f"{_UNSEARCHED}# {path}\n\n````{'' if len(text) > _LONG else _language(real)}\n{text}````\n"


def _between(uri: str, other: str) -> str:
    return posixpath.relpath(other, posixpath.dirname(uri))


def _leads_to(path: str) -> list[str]:
    if _is_folder(path):
        return _children(path)
    return list(targets((ROOT / path).read_text("utf-8"), path)) if path.endswith(".md") else []


def _children(path: str) -> list[str]:
    return sorted(f"{path}/{one.name}" for one in (ROOT / path).iterdir() if not one.name.startswith((".", "__")))


def _is_folder(path: str) -> bool:
    return (ROOT / path).is_dir()


def _language(file: Path) -> str:
    suffix = file.suffix.removeprefix(".") or ("docker" if file.name == "Dockerfile" else "sh")
    return _LANGUAGES.get(suffix, suffix)
