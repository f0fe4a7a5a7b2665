"""`users`: tokens for people, and what each role may do."""

# ruff: noqa: PLC0415, D301 - imports inside commands, so that help answers at once; click's mark \b

import click

ROLES = ("viewer", "operator", "approver", "admin")


@click.group()
def users() -> None:
    """Named users of the admin listener, the console and the commands (`admin.users`).

    \b
      idempotency-gateway users token --name ana --role operator
    """


@users.command("token")
@click.option("--name", metavar="NAME", required=True, help="As the audit table is to name the user.")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the user may do; `users roles` lists it.")
def make_user_token(name: str, role: str) -> None:
    """Make a token. It is shown once, and for its user alone; the configuration gets the line with its digest.

    \b
      idempotency-gateway users token --name ana --role operator

    A user who has lost a token gets another one, whose line takes the old one's place; a reload ends all sessions of the old one.
    """
    import secrets

    from gateway.config.addresses import user_name
    from gateway.core.user_token import ENTROPY, digest_of, make_token, write_digest

    try:
        user_name(name)
    except ValueError as error:
        raise click.UsageError(f"--name: {error}") from None
    token = make_token(secrets.token_bytes(ENTROPY))
    click.echo(f"For {name} alone, and shown this once:", err=True)
    click.echo(token)
    click.echo("For `admin.users` of the configuration:", err=True)
    click.echo(f'- {{name: "{name}", role: {role}, token_digest: "{write_digest(digest_of(token))}"}}')


@users.command("roles")
def list_roles() -> None:
    """List what each role may do. Each may do what those before it may.

    \b
      idempotency-gateway users roles
    """
    from gateway.core.roles import NEEDED, Role

    for role in Role:
        click.echo(f"{role.value:<10}{', '.join(action.value for action, needed in NEEDED.items() if needed is role)}")
