"""`reencrypt` and `records erase`: what operators do about encrypted and personal data."""

# ruff: noqa: PLC0415, D301 - imports inside commands, so that help answers at once; click's mark \b

import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gateway.operate.commands.options import grounds_of, grounds_options
from gateway.operate.commands.records import records
from gateway.operate.commands.shared import FAILURE, UNAVAILABLE, config_option, fail, load_config, reported
from gateway.operate.commands.token import token_option

if TYPE_CHECKING:
    from gateway.run.server.secrecy import Reencryption

T = TypeVar("T")


@click.command()
@config_option()
@click.option("--rate", type=click.IntRange(1, 10_000), default=200, show_default=True, help="How many records a second at most.")
def reencrypt(config: Path, rate: int) -> None:
    """Move all that is encrypted to the present `encryption_key`, and say whether the former ones may go.

    \b
      idempotency-gateway reencrypt --config gateway.yaml

    Every gateway must have the present key first. It may be interrupted: begun anew, it goes on with what is left.
    """
    from gateway.run.server import secrecy

    with reported():
        loaded = load_config(config)
    if not loaded.encryption_keys:
        fail("There is no `encryption_key` in the configuration.", FAILURE)
    done = _run(secrecy.reencrypt(loaded, rate, _tell))
    if done.left:
        click.echo(f"{done.changed} have changed meanwhile, {done.unopened} are under a key that is not configured,", err=True)
        click.echo(f"{done.evident} hold evidence until their doubt is resolved.", err=True)
        fail(f"{done.moved} moved; {done.left} need a former key yet: run this again later", FAILURE)
    redis = loaded.redis
    wait = "" if redis is None else f" in {redis.replay_ttl:g} s, when Redis has forgotten what it held"
    click.echo(f"OK: {done.moved} moved; the former keys may go{wait}.")


def _tell(done: "Reencryption") -> None:
    click.echo(f"{done.scanned} looked at, {done.moved} moved", err=True)


@records.command("erase")
@config_option()
@click.option(
    "--principal",
    metavar="VALUE",
    multiple=True,
    help="What the caller's requests have: one value for each source of the route's `principal`, in order; user:password for Basic.",
)
@click.option("--scope-id", metavar="ID", multiple=True, help="The caller as log lines have it, instead.")
@token_option
@grounds_options
def erase_records(config: Path, principal: tuple[str, ...], scope_id: tuple[str, ...], reason: str, actor: str | None) -> None:
    """Drop what is stored of one caller: answers, captured values, targets, kept requests, archived lives. Audited.

    \b
      idempotency-gateway records erase --config gateway.yaml --principal 'Bearer tenant-a' --reason "GDPR-12"

    Their records stay until they expire, with digests and the keys: a retry is refused (`response-not-stored`), and does not run again.
    What has not ended yet is left as it is, and counted.
    """
    from gateway.core.roles import Action
    from gateway.operate.commands.acting import permitted
    from gateway.run.server import secrecy

    grounds = grounds_of(reason, actor)
    with reported():
        loaded = load_config(config)
    by = permitted(loaded, Action.ERASE).by(grounds)
    named = secrecy.scope_ids_of(loaded, [value.encode("utf-8", "surrogateescape") for value in principal]) if principal else []
    scope_ids = sorted({*named, *scope_id})
    if not scope_ids:
        raise click.UsageError("Say whose: --principal with a value for each source of a route's `principal`, or --scope-id.")
    done = _run(secrecy.erase(loaded, scope_ids, by))
    if done.redis_wait:
        click.echo(f"Redis could not be asked: it may hold copies for {done.redis_wait:g} s, which no gateway answers from.", err=True)
    if done.left:
        fail(f"{done.erased} erased; {done.left} have not ended: run this again when they have", FAILURE)
    click.echo(f"OK: {done.erased} erased")


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    from gateway.ports import StoreUnavailable
    from gateway.run.server.operating import NotReady

    logging.getLogger("gateway").addHandler(logging.NullHandler())
    with reported():
        try:
            return asyncio.run(work)
        except (NotReady, StoreUnavailable) as error:
            fail(str(error), UNAVAILABLE)
