"""Every command, as `--help` shows it."""

from collections.abc import Iterator

import click

from gateway.cli import main
from scripts.website.references.markdown import page as whole
from scripts.website.references.markdown import prose

_NAME = "idempotency-gateway"
_INTRODUCTION = """
Data goes to stdout, messages to stderr. Options that begin with `--config` may come from the variable `GATEWAY_CONFIG`
instead. Exit codes: 0 done, 1 failed, 2 wrong usage, 69 a service is unavailable, 78 the configuration is wrong.
"""


def page() -> str:
    """The page."""
    return whole("The command line", prose(_INTRODUCTION), *(f"## `{name}`\n\n```text\n{text}\n```" for name, text in _helps(main, _NAME)))


def _helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent, terminal_width=100, max_content_width=100)
    yield name, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None, word
            yield from _helps(inner, f"{name} {word}", context)
