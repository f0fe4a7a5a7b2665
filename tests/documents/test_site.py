"""The site builds strictly and without a network, and no page of it asks another host for anything."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.website.diagram import picture
from scripts.website.linked import moved, targets
from tests.documents.test_prose import ROOT
from tests.support.services import missing

_OFFLINE = """
import socket, sys

def refuse(*_):
    raise AssertionError("the build asks for the network")

socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once: a link or anchor that leads nowhere, or a page outside of the navigation, fails here."""
    if find_spec("mkdocs") is None:
        missing("mkdocs, of the group `docs`")
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-c", _OFFLINE, "build", "--config-file", "scripts/website/mkdocs.yml", "--site-dir", str(folder)]
    built = subprocess.run(argv, check=False, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    """The README is the first page; each document has one, and so has each file that they link to."""
    pages = {page.stem for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.stem for page in site.rglob("*.html")}
    assert "Two commands" in (site / "index.html").read_text()
    assert "postgres" in (site / "source/config/gateway.yaml.html").read_text()


def test_no_page_asks_another_host(site: Path) -> None:
    """Scripts, styles, fonts and pictures are the site's own; no block is left for a program that the theme would fetch."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert re.findall(r'<(?:script|img|iframe|source)[^>]*src="(?:https?:)?//', text) == [], page
        assert [tag for tag in re.findall(r"<link[^>]*>", text) if re.search(r'href="(?:https?:)?//', tag)] == [], page
        assert 'class="mermaid"' not in text, page
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()) == [], style


def test_the_states_are_a_picture(site: Path) -> None:
    """Every state and every reason of a change stands in it."""
    assert sum(picture() in page.read_text() for page in site.glob("*.html")) == 1


def test_links_follow_the_files() -> None:
    """What is no document is shown by a page of its own; blocks of code keep what they have."""
    text = "[a](../config/x.yaml#top) and [b](y.md)\n```\n[c](../z)\n```\n[d](https://example.com) [e](#here) [f](../deploy)\n"
    moves = "[a](source/config/x.yaml.md#top) and [b](y.md)\n```\n[c](../z)\n```\n[d](https://example.com) [e](#here)"
    assert list(targets(text, "docs/p.md")) == ["config/x.yaml", "docs/y.md", "deploy"]
    assert moved(text, "docs/p.md", "deploy".__eq__) == f"{moves} [f](source/deploy/index.md)\n"
    assert moved("[a](../docs/p.md) [b](x.svg)", "benchmarks/README.md", "x".__eq__) == "[a](../../p.md) [b](x.svg)"
