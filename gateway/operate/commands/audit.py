"""`audit`: who did what, and why."""

# ruff: noqa: PLC0415, D301, FBT001 - imports inside commands, so that help answers at once; click's mark \b; click passes flags by name

from pathlib import Path

import click

from gateway.operate.commands.options import json_option, limit_option
from gateway.operate.commands.shared import config_option
from gateway.operate.commands.token import token_option


@click.group()
def audit() -> None:
    """What operators did, in the append-only audit table. The key of a record that was deleted since is shown by its digest.

    \b
      idempotency-gateway audit list --config gateway.yaml
    """


@audit.command("list")
@config_option()
@token_option
@click.option("--after", metavar="LINE", type=click.IntRange(0, 2**63 - 1), default=0, help="Only lines after this one.")
@click.option("--newest", is_flag=True, help="The newest first.")
@limit_option("lines")
@json_option
def list_audit(config: Path, after: int, limit: int, newest: bool, as_json: bool) -> None:
    """List who did what, when and why, in order.

    \b
      idempotency-gateway audit list --config gateway.yaml --after 1200 --json
      idempotency-gateway audit list --config gateway.yaml --newest --limit 20
    """
    from gateway.operate.commands import work

    work.audit(config, after, limit, newest=newest, as_json=as_json)
