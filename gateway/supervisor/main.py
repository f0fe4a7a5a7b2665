"""What `serve --workers N` runs."""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import gateway
from gateway.admin import make_admin, start_admin
from gateway.config import Config, ConfigErrors, load
from gateway.observe import configure
from gateway.server.operating import operating
from gateway.supervisor.fleet import Fleet
from gateway.tls import TlsError, reload_server_context, server_context

EXIT_UNAVAILABLE, EXIT_CONFIG = 69, 78
GRACE_SLACK = 5.0
"""What workers may take beyond the configured drain, for their last writes and for exiting."""
_LONGEST_SOCKET_FOLDER = 80
"""Unix socket paths end at 107 bytes."""

_log = logging.getLogger(__name__)


def supervise(config_path: Path, workers: int, *, accept_scope_change: bool, accept_clock: bool) -> int:
    """Run the gateway as `workers` processes until it is told to stop; returns the exit status of the command.

    0 after a drain, 1 after a second signal or a drain that outlasted its time, 69 if the admin listener cannot be opened, 69 or 78 if
    no worker can start. Raises `ConfigErrors`. The admin listener, its token and the drain's times stay those of the start.
    """
    config = load(config_path, os.environ)
    configure("info")
    directory = _private_folder()
    try:
        return asyncio.run(
            _run(config, config_path, workers, directory, accept_scope_change=accept_scope_change, accept_clock=accept_clock)
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _AdminSide:
    """What the admin listener goes by: its certificate, and the routes' policies. Both follow the workers' reloads; a file that cannot be
    used they report themselves.
    """

    def __init__(self, config: Config, path: Path) -> None:
        self.config = config
        self.context = None if config.admin.tls is None else server_context(config.admin.tls)
        self._path = path

    def renew(self) -> None:
        try:
            self.config = load(self._path, os.environ)
            if self.context is not None and self.config.admin.tls is not None:
                reload_server_context(self.context, self.config.admin.tls)
        except (ConfigErrors, TlsError) as error:
            _log.error("The admin listener keeps its certificate and its policies: %s", error)


async def _run(config: Config, config_path: Path, workers: int, directory: Path, *, accept_scope_change: bool, accept_clock: bool) -> int:
    try:
        side = _AdminSide(config, config_path)
    except TlsError as error:
        _log.error("%s", error)
        return EXIT_CONFIG
    # -P: a folder that happens to be called `gateway` where this was started is not what should run.
    command = (sys.executable, "-P", "-m", "gateway", "serve", "--config", str(config_path), "--workers", "1")
    fleet = Fleet(
        (*command, "--accept-clock") if accept_clock else command,
        workers,
        directory,
        grace=config.drain.delay + config.drain.timeout + GRACE_SLACK,
        first=("--accept-scope-change",) if accept_scope_change else (),
        environment=_environment(),
        on_reload=side.renew,
    )
    async with operating(lambda: side.config) as operator:
        ports = replace(fleet.ports, operator=operator)
        try:
            runner = await start_admin(config.admin.listen, make_admin(ports, config.admin.token), side.context)
        except OSError as error:
            _log.error("The admin listener cannot be opened on %s: %s", config.admin.listen, error.strerror)
            return EXIT_UNAVAILABLE
        try:
            return await fleet.run()
        finally:
            await runner.cleanup()


def _environment() -> dict[str, str]:
    """Ours, with the very package that runs here first on the workers' path."""
    root = str(Path(gateway.__file__).parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


def _private_folder() -> Path:
    """A new folder that nobody else can enter, with a path short enough for sockets."""
    short = len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_SOCKET_FOLDER
    return Path(tempfile.mkdtemp(prefix="idempotency-gateway-", dir=None if short else "/tmp"))  # noqa: S108 - mkdtemp makes it private
