"""What `serve --workers N` runs."""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import gateway
from gateway.config import ConfigErrors, load, redact
from gateway.console import Console, Meter, mount
from gateway.observe import configure
from gateway.operate.admin import AdminPorts, Entrance, Settings, make_admin, start_admin
from gateway.operate.operations import Operator
from gateway.run.server.handover import Snapshot
from gateway.run.server.operating import operating
from gateway.run.server.process import GRACE_SLACK
from gateway.run.server.watching import Watched
from gateway.run.server.worker import ACCEPT_CLOCK, ACCEPT_SCOPE_CHANGE
from gateway.run.supervisor.fleet import Fleet
from gateway.runtime.local_files import LocalFileError
from gateway.runtime.service_manager import VARIABLES, ServiceManager
from gateway.runtime.system import SystemClock
from gateway.tls import TlsError, reload_server_context, server_context

EXIT_FAILURE, EXIT_UNAVAILABLE, EXIT_CONFIG = 1, 69, 78
_LONGEST_SOCKET_FOLDER = 80
"""Unix socket paths end at 107 bytes."""

_log = logging.getLogger(__name__)


def supervise(config_path: Path, workers: int, *, accept_scope_change: bool, accept_clock: bool, reload_on_change: bool = False) -> int:
    """Run the gateway as `workers` processes until it is told to stop; returns the exit status of the command.

    0 after a drain, 1 after a second signal, a drain that outlasted its time, or without a temporary folder, 69 if the admin listener
    cannot be opened, 69 or 78 if no worker can start. Raises `ConfigErrors`. The address of the admin listener and the drain's times
    stay those of the start.
    """
    read = Watched(lambda: _read(config_path))
    try:
        snapshot = read()
    except LocalFileError as error:  # a file that went away since it was checked
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    configure("info")
    try:
        directory = _private_folder()
    except OSError as error:
        _log.error("Workers need a temporary folder for their sockets: %s. Set TMPDIR to one that can be written", error.strerror or error)
        return EXIT_FAILURE
    try:
        return asyncio.run(
            _run(
                _Started(snapshot, read, watch=reload_on_change),
                workers,
                directory,
                accept_scope_change=accept_scope_change,
                accept_clock=accept_clock,
            )
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Started:
    """The configuration of the start, how to read it again, and whether to do so whenever its files change."""

    snapshot: Snapshot
    read: Watched[Snapshot]
    watch: bool


class _Configuration:
    """The configuration in force: what workers get, and what the admin listener goes by (its certificate, the routes' policies)."""

    def __init__(self, snapshot: Snapshot, read: Callable[[], Snapshot]) -> None:
        """Raises `TlsError`."""
        self.accepted = snapshot
        tls = snapshot.config.admin.tls
        self.context = None if tls is None else server_context(tls)
        self._read = read

    def read(self) -> Snapshot | list[str]:
        try:
            return self._read()
        except ConfigErrors as errors:
            return str(errors).splitlines()
        except LocalFileError as error:
            return [str(error)]

    def accept(self, candidate: Snapshot) -> None:
        self.accepted = candidate
        tls = candidate.config.admin.tls
        try:
            if self.context is not None and tls is not None:
                reload_server_context(self.context, tls)
        except TlsError as error:  # a file that was changed again since it was read
            _log.error("The admin listener keeps its certificate: %s", error)

    async def shown(self) -> object:
        """For the admin listener."""
        return redact(self.accepted.config)


def _read(path: Path) -> Snapshot:
    """Raises `ConfigErrors` and `LocalFileError`."""
    return Snapshot.of(load(path, os.environ))


async def _run(started: _Started, workers: int, directory: Path, *, accept_scope_change: bool, accept_clock: bool) -> int:
    config = started.snapshot.config
    try:
        source = _Configuration(started.snapshot, started.read)
    except TlsError as error:
        _log.error("%s", error)
        return EXIT_CONFIG
    # -P: a folder that happens to be called `gateway` where this was started is not what should run.
    command = (sys.executable, "-P", "-m", "gateway.run.worker")
    fleet = Fleet(
        (*command, ACCEPT_CLOCK) if accept_clock else command,
        workers,
        directory,
        source,
        grace=config.drain.delay + config.drain.timeout + GRACE_SLACK,
        first=(ACCEPT_SCOPE_CHANGE,) if accept_scope_change else (),
        environment=_environment(),
        manager=ServiceManager(os.environ),
    )
    async with operating(lambda: source.accepted.config) as operator:
        ports = replace(fleet.ports(source.shown), operator=operator)
        try:
            entrance = Entrance(lambda: Settings.of_config(source.accepted.config), ended=operator.approvals)
            app = make_admin(ports, entrance=entrance)
            mount(app, _console(source, entrance, operator, ports))
            runner = await start_admin(config.admin.listen, app, source.context)
        except OSError as error:
            _log.error("The admin listener cannot be opened on %s: %s", config.admin.listen, error.strerror)
            return EXIT_UNAVAILABLE
        watching = asyncio.ensure_future(started.read.run(fleet.reload)) if started.watch else None
        try:
            return await fleet.run()
        finally:
            if watching is not None:
                watching.cancel()
            await runner.cleanup()


def _console(source: _Configuration, entrance: Entrance, operator: Operator, ports: AdminPorts) -> Console:
    meter = Meter(SystemClock().boottime)
    return Console(lambda: source.accepted.config, entrance, operator, ports.readiness, ports.metrics, meter)


def _environment() -> dict[str, str]:
    """Ours, with the very package that runs here first on the workers' path."""
    root = str(Path(gateway.__file__).parent.parent)
    path = os.environ.get("PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**inherited, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


def _private_folder() -> Path:
    """A new folder that no other user can enter, with a path short enough for sockets."""
    short = len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_SOCKET_FOLDER
    return Path(tempfile.mkdtemp(prefix="idempotency-gateway-", dir=None if short else "/tmp"))  # noqa: S108 - mkdtemp makes it private
