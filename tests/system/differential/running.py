"""Servers as processes, and requests to them as raw bytes."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.system.differential.apps import installed
from tests.system.differential.spellings import Request

PROGRAMS = Path(__file__).parent / "programs"
_RAN = re.compile(rb"\r\nx-ran: *(\w+)", re.IGNORECASE)


def commands(node_modules: Path | None = None) -> dict[str, list[str]]:
    """How each server that is installed is started; a port comes behind. Those of Node need a folder with their packages."""
    found = {name: [sys.executable, "-m", "tests.system.differential.apps", name] for name in installed()}
    if php := shutil.which("php"):
        found["php"] = [php, str(PROGRAMS / "app.php")]
    if ruby := shutil.which("ruby"):
        found["sinatra"] = [ruby, str(PROGRAMS / "app.rb")]
    node = shutil.which("node")
    if node and node_modules is not None:
        found |= {f"node {name}": [node, str(PROGRAMS / "app.cjs"), name] for name in ("express4", "express5", "fastify", "koa")}
    return found


@contextlib.contextmanager
def serving(command: list[str], folder: Path, node_modules: Path | None = None) -> Iterator[int]:
    """One server, from when it takes connections."""
    port = _free_port()
    arguments = [command[0], "-S", f"127.0.0.1:{port}", command[1]] if command[0].endswith("php") else [*command, str(port)]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3]), "NODE_PATH": str(node_modules or "")}
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log, env=environment)
        try:
            _wait(port, process, folder / f"{port}.log")
            yield port
        finally:
            process.terminate()
            process.wait(10)


def ran(port: int, request: Request) -> str | None:
    """The operation that the server ran for a request, if any. A server that answers nothing ran nothing."""
    lines = [b"%b %b HTTP/1.1" % (request.method, request.target), b"Host: h", *(b"%b: %b" % line for line in request.headers)]
    raw = b"\r\n".join([*lines, b"Content-Length: %d" % len(request.body), b"Connection: close"]) + b"\r\n\r\n" + request.body
    data = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(raw)
            while b"\r\n\r\n" not in data and (piece := client.recv(65536)):
                data += piece
    except (ConnectionError, TimeoutError):
        return None
    found = _RAN.search(data.partition(b"\r\n\r\n")[0])
    return None if found is None else found[1].decode()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not serve: {log.read_text(errors='replace')[-2000:]}")
