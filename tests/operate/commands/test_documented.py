"""What the documents tell people to type is what the commands take."""

import re
import shlex
from pathlib import Path

import click
import pytest

from gateway.cli import main

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def typed() -> list[str]:
    """Every command line of ours in a block of shell, without what follows a pipe or goes to a file."""
    blocks = [
        block.replace("\\\n", " ")
        for document in DOCUMENTS
        for block in re.findall(r"```(?:sh|console)\n(.*?)```", document.read_text(), re.DOTALL)
    ]
    command = re.compile(r"^(?:\$ )?(idempotency-gateway .*?)(?:\s*[|>].*)?$", re.MULTILINE)
    return [line for block in blocks for line in command.findall(block)]


@pytest.mark.parametrize("line", sorted(set(typed())))
def test_it_is_a_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word and option is known, and nothing that is required is left out; the page for whoever is on call names the file once."""
    monkeypatch.setenv("GATEWAY_CONFIG", "gateway.yaml")
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = main
    context = click.Context(main, info_name="idempotency-gateway")
    while isinstance(command, click.Group):
        assert words, "a group alone does nothing"
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, context, name)
    command.make_context(context.info_name, words, context.parent)


def test_the_documents_have_commands() -> None:
    """A block that is written otherwise would not be looked at."""
    assert len(typed()) > 15
