"""What all commands share: exit codes, messages, the configuration.

Each command imports what it runs when it runs, so that `--help` answers at once.
"""

# ruff: noqa: PLC0415 - imports inside functions: see above

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from gateway.config import Config

FAILURE = 1
UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h
BAD_CONFIG = 78  # EX_CONFIG of sysexits.h

PATH = click.Path(dir_okay=False, path_type=Path)

Command = TypeVar("Command", bound=Callable[..., None])


def config_option(*, required: bool = True) -> Callable[[Command], Command]:
    """`--config FILE`, or GATEWAY_CONFIG."""
    return click.option(
        "--config", metavar="FILE", type=PATH, required=required, envvar="GATEWAY_CONFIG", show_envvar=True, help="The configuration file."
    )


def load_config(path: Path) -> "Config":
    """Raises `ConfigErrors`."""
    from gateway.config import load

    return load(path, os.environ)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """What a user or an operator can put right becomes a message and an exit code; everything else is a bug and keeps its traceback."""
    from gateway.config import ConfigErrors
    from gateway.ports import StoreUnavailable

    try:
        yield
    except ConfigErrors as errors:
        fail(str(errors), BAD_CONFIG)
    except StoreUnavailable as error:
        fail(str(error), UNAVAILABLE)


def fail(message: str, code: int) -> NoReturn:
    """End the command with `message` on stderr."""
    click.echo(message, err=True)
    raise SystemExit(code)
