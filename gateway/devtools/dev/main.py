"""Starting everything in order, watching it, and stopping it in the reverse order: the gateway drains first."""

import asyncio
import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gateway.config import Config, TcpListener, load
from gateway.core.texts import upstream_url
from gateway.devtools.dev.interrupts import Interrupts, interrupts
from gateway.devtools.dev.programs import Service, check_free, end_leftovers, listens, start_gateway, start_rides, start_sample, url_of
from gateway.devtools.dev.route_map import own_map, sample_map
from gateway.devtools.dev.tour import ENV, Places, own_tour, plain_tour, sample_tour
from gateway.devtools.embedded import EmbeddedError, NotInstalled, start_postgres, start_redis
from gateway.devtools.embedded.launch import tail
from gateway.devtools.embedded.ports import LOOPBACK, free_port
from gateway.devtools.embedded.process import prepared, secret, take_folder, write_private
from gateway.store import co_commit
from gateway.store.migrate import MigrationError, migrate

DEFAULT_DATA = Path(".gateway-data")
WATCH_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class Wishes:
    """The command's options. `config` is absolute; ports are those of the configuration that is written when there is none."""

    upstream: str | None
    config: Path | None
    data: Path
    port: int
    admin_port: int


@dataclass(slots=True)
class Running:
    """What was started so far, in order."""

    services: list[tuple[str, Service]] = field(default_factory=list)

    def stop(self, told: Interrupts) -> bool:
        """Stop all, the latest first. Told to stop once more, kill what is left. Whether that was not needed."""
        try:
            for _, service in reversed(self.services):
                service.stop()
        except KeyboardInterrupt:
            told.deaf = True
            for _, service in reversed(self.services):
                service.kill()
            return False
        return True


def run(*, upstream: str | None, config: Path | None, data: Path | None, port: int, admin_port: int) -> int:
    """Run everything until told to stop; returns the exit code.

    `config` None: one is written into `data` (default `./.gateway-data`), listening on `port` and `admin_port` (0: free ones).
    A configuration finds the databases, its secret and the upstream in the environment, as GATEWAY_POSTGRES_DSN,
    GATEWAY_REDIS_URL, GATEWAY_DIGEST_SECRET, GATEWAY_ENCRYPTION_KEY and GATEWAY_UPSTREAM_URL. Raises ConfigErrors for mistakes in it.
    """
    try:
        upstream = upstream and upstream_url(upstream)
    except ValueError as error:
        say(f"--upstream: {error}")
        return 2
    wishes = Wishes(upstream, config and config.resolve(), data or DEFAULT_DATA, port or free_port(), admin_port or free_port())
    try:
        folder = prepared(wishes.data)
        with take_folder(folder, "dev"):
            return run_in(folder, wishes)
    except EmbeddedError as error:
        say(str(error))
        return 1


def run_in(data: Path, wishes: Wishes) -> int:
    """`run` for the holder of the data folder."""
    running = Running()
    with interrupts() as told:
        code = 1
        try:
            start(data, wishes, running, told)
            name, service = watch(running)
            say(f"{name} ended unexpectedly (exit code {service.returncode()}); the end of {service.log}:\n{tail(service.log)}")
        except KeyboardInterrupt:
            say("stopping (Ctrl-C again: at once)")
            code = 0
        finally:
            clean = running.stop(told)
        return code if clean else 1


def start(data: Path, wishes: Wishes, running: Running, told: Interrupts) -> None:
    """Start everything and print the tour."""
    (data / ".gitignore").write_text("*\n", "utf-8")  # it holds secrets
    with told.shield():
        end_leftovers(data)
    if wishes.config is None:
        check_free(TcpListener(LOOPBACK, wishes.port), "name another port with --port")
        check_free(TcpListener(LOOPBACK, wishes.admin_port), "name another port with --admin-port")
    say("starting Postgres and Redis")
    with told.shield():
        postgres = start_postgres(data)
        running.services.append(("Postgres", postgres))
    redis = start_redis_if_there(data, running, told)
    upstream, rides = wishes.upstream, ""
    progress_port = free_port()
    if upstream is None:
        with told.shield():
            sample, upstream = start_sample(data)
            running.services.append(("the sample API", sample))
        with told.shield():
            second, rides = start_rides(data, postgres.dsn, upstream, f"http://127.0.0.1:{progress_port}")
            running.services.append(("the sample rides API", second))
    elif not listens(upstream):
        say(f"nothing listens on {upstream} yet: requests fail until your API is there")
    variables = {
        "GATEWAY_POSTGRES_DSN": postgres.dsn,
        "GATEWAY_REDIS_URL": redis,
        "GATEWAY_DIGEST_SECRET": secret(data / "digest.secret"),
        "GATEWAY_ENCRYPTION_KEY": secret(data / "encryption.secret"),
        "GATEWAY_UPSTREAM_URL": upstream,
        "GATEWAY_RIDES_URL": rides,
    }
    file = wishes.config or data / "gateway.yaml"
    told_to_commands = {**variables, "GATEWAY_CONFIG": str(file)}
    write_private(data / ENV, "".join(f"{name}={shlex.quote(value)}\n" for name, value in told_to_commands.items()))
    config = configuration(file, wishes, progress_port, {**os.environ, **variables})
    if wishes.config is not None:
        check_free(config.listen, "change `listen` of the configuration")
        check_free(config.admin.listen, "change `admin.listen` of the configuration")
    migrate_ours(config, postgres.dsn)
    say("starting the gateway")
    with told.shield():
        gateway = start_gateway(data, file, config, {**os.environ, **variables})
        running.services.append(("the gateway", gateway))
    print(tour(Places(url_of(config.listen), url_of(config.admin.listen), upstream, data), wishes), flush=True)


def start_redis_if_there(data: Path, running: Running, told: Interrupts) -> str:
    """Start Redis; its URL, or nothing when this machine has no server: then Postgres alone decides, as it does anyway."""
    try:
        with told.shield():
            redis = start_redis(data)
            running.services.append(("Redis", redis))
    except NotInstalled:
        say("there is no Redis for this machine in the `embedded` extra, and none on the PATH: going on without")
        return ""
    return redis.url


def configuration(file: Path, wishes: Wishes, progress_port: int, env: Mapping[str, str]) -> Config:
    """The configuration that the gateway will serve, loaded; written first, unless it is the user's own. Raises ConfigErrors."""
    if wishes.config is None:
        ports = wishes.port, wishes.admin_port
        file.write_text(sample_map(*ports, progress_port) if wishes.upstream is None else own_map(*ports), "utf-8")
    return load(file, env)


def migrate_ours(config: Config, dsn: str) -> None:
    """Bring the embedded database's schema up to date; one that is not ours is left alone."""
    if config.postgres.dsn != dsn:
        say("the configuration names a Postgres of its own: it is not migrated (GATEWAY_POSTGRES_DSN is the embedded one)")
        return
    try:
        asyncio.run(_migrate(dsn))
    except MigrationError as error:
        raise EmbeddedError(f"migrate: {error}") from error


async def _migrate(dsn: str) -> None:
    """With the functions for upstreams that take part, for the one role that there is."""
    await migrate(dsn)
    await co_commit.install(dsn, unquote(urlsplit(dsn).username or ""))


def watch(running: Running) -> tuple[str, Service]:
    """Wait until one of the services has ended; its name, and itself."""
    while True:
        for name, service in running.services:
            if service.returncode() is not None:
                return name, service
        time.sleep(WATCH_INTERVAL)


def tour(places: Places, wishes: Wishes) -> str:
    if wishes.config is not None:
        return plain_tour(places, wishes.config)
    return own_tour(places) if wishes.upstream is not None else sample_tour(places, f"tour-{secrets.token_hex(3)}")


def say(message: str) -> None:
    """A message for people; stdout is for the tour."""
    print(f"dev: {message}", file=sys.stderr, flush=True)
