"""The two programs of our own that `dev` runs beside the databases: the sample API and the gateway."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from gateway.config import Config, Listener, TcpListener, UnixListener
from gateway.devtools.embedded.launch import Plan, launch
from gateway.devtools.embedded.ports import LOOPBACK
from gateway.devtools.embedded.process import EmbeddedError, Steps, end, end_leftover_of

START_TIMEOUT = 30.0
DRAIN_MARGIN = 5.0
PYTHON = (sys.executable, "-P")  # a package named `gateway` in the current folder is not ours
QUICK: Steps = ((signal.SIGTERM, 5.0),)
LEFTOVER: Steps = ((signal.SIGTERM, 20.0),)
WILDCARDS = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - compared with, not bound


class Service(Protocol):
    """Something that runs, whichever kind it is."""

    @property
    def log(self) -> Path: ...
    def returncode(self) -> int | None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Program:
    """A running program of ours. `steps` end it."""

    process: subprocess.Popen[bytes]
    log: Path
    steps: Steps

    def returncode(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        end(self.process, self.steps)

    def kill(self) -> None:
        end(self.process, ())


def end_leftovers(data: Path) -> None:
    """Stop the programs that a killed run left, the gateway first. Only for the holder of the folder's lock."""
    end_leftover_of(data / "gateway.pid", LEFTOVER)
    end_leftover_of(data / "rides.pid", QUICK)
    end_leftover_of(data / "sample.pid", QUICK)


def start_sample(data: Path) -> tuple[Program, str]:
    """Start the sample API on a free port; its books are kept in `data`. Returns its URL too."""
    books = data / "sample.json"
    plan = Plan(
        name="the sample API",
        command=lambda port: [*PYTHON, "-m", "gateway.devtools.sample", "--port", str(port), "--state", str(books)],
        ready=lambda _, port: accepts(TcpListener(LOOPBACK, port)),
        stop=QUICK,
        log=data / "sample.log",
        account=None,
        port_taken="address already in use",
        timeout=START_TIMEOUT,
        pid_file=data / "sample.pid",
        env=os.environ,
    )
    process, port = launch(plan, None)
    return Program(process, plan.log, QUICK), f"http://{LOOPBACK}:{port}"


def start_rides(data: Path, dsn: str, provider: str, progress: str) -> tuple[Program, str]:
    """Start the sample's second face on a free port: it takes part, and has its tables in the database at `dsn`. Returns its URL too."""
    options = ("--provider", provider, "--progress", progress, "--co-commit")
    plan = Plan(
        name="the sample rides API",
        command=lambda port: [*PYTHON, "-m", "gateway.devtools.sample.rides", "--port", str(port), *options],
        ready=lambda _, port: accepts(TcpListener(LOOPBACK, port)),
        stop=QUICK,
        log=data / "rides.log",
        account=None,
        port_taken="address already in use",
        timeout=START_TIMEOUT,
        pid_file=data / "rides.pid",
        env={**os.environ, "GATEWAY_POSTGRES_DSN": dsn},
    )
    process, port = launch(plan, None)
    return Program(process, plan.log, QUICK), f"http://{LOOPBACK}:{port}"


def start_gateway(data: Path, file: Path, config: Config, env: Mapping[str, str]) -> Program:
    """Start the gateway as production does, `serve --config`, and wait until its admin listener calls it ready."""
    steps = ((signal.SIGTERM, config.drain.delay + config.drain.timeout + DRAIN_MARGIN),)
    plan = Plan(
        name="the gateway",
        command=lambda _: [*PYTHON, "-m", "gateway", "serve", "--config", str(file)],
        ready=lambda _, __: is_ready(config.admin.listen),
        stop=steps,
        log=data / "gateway.log",
        account=None,
        port_taken="address already in use",
        timeout=START_TIMEOUT,
        pid_file=data / "gateway.pid",
        env=env,
    )
    process, _ = launch(plan, config.listen.port if isinstance(config.listen, TcpListener) else 0)
    return Program(process, plan.log, steps)


def check_free(listener: Listener, remedy: str) -> None:
    """Raises EmbeddedError, with `remedy`, if a process listens on the address."""
    if not isinstance(listener, TcpListener):
        return
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((listener.host, listener.port))
    except OSError as error:
        raise EmbeddedError(f"{listener} cannot be listened on ({error.strerror}): {remedy}") from error


def connect(listener: Listener) -> socket.socket:
    """A connection to a listener on this machine. Raises OSError."""
    match listener:
        case TcpListener(host, port):
            return socket.create_connection((WILDCARDS.get(host, host), port), 2.0)
        case UnixListener(path):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(2.0)
            connection.connect(path)
            return connection


def accepts(listener: Listener) -> bool:
    try:
        connect(listener).close()
    except OSError:
        return False
    return True


def listens(upstream: str) -> bool:
    """Whether an upstream, `http://`, `https://` or `unix:`, can be connected to."""
    if upstream.startswith("unix:"):
        return accepts(UnixListener(upstream.removeprefix("unix:")))
    url = urlsplit(upstream)
    assert url.hostname is not None
    return accepts(TcpListener(url.hostname, url.port or (443 if url.scheme == "https" else 80)))


def is_ready(listener: Listener) -> bool:
    """Whether the admin listener's `/readyz` says 200."""
    try:
        with connect(listener) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def url_of(listener: Listener) -> str:
    """Where a client on this machine finds a TCP listener; a Unix socket's path as curl takes it."""
    match listener:
        case TcpListener(host, port):
            return f"http://{TcpListener(WILDCARDS.get(host, host), port)}"
        case UnixListener(path):
            return f"--unix-socket {path} http://localhost"
