"""The token that a command was given: who acts, where the configuration has `admin.users`."""

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., None])

TOKEN = "GATEWAY_TOKEN"  # noqa: S105 - the variable's name
_TOKEN_META = "gateway.token"  # noqa: S105 - a name in click's own notes


def token_option(command: Command) -> Command:
    """--token, for `given_token`."""
    return click.option(
        "--token",
        metavar="TOKEN",
        envvar=TOKEN,
        show_envvar=True,
        expose_value=False,
        callback=_keep_token,
        help="Who you are, where the configuration has `admin.users`. Others see what stands on a command line: prefer the variable.",
    )(command)


def given_token() -> str | None:
    """The token of the command that runs."""
    token: str | None = click.get_current_context().meta.get(_TOKEN_META)
    return token


def _keep_token(context: click.Context, _: click.Parameter, value: str | None) -> None:
    context.meta[_TOKEN_META] = value or None
