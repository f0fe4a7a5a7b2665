"""`dev` as its user runs it: a process, what it printed, and the commands of its tour as requests."""

import http.client
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from gateway.devtools.embedded.ports import free_port
from gateway.devtools.embedded.postgres import children
from tests.devtools.embedded.leftovers import gone
from tests.support.gateway import NO_AUTHORITIES

PATIENCE = 60.0
LAST_LINE = "Ctrl-C stops everything"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Curl:
    """One curl command of the tour."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None

    def send(self) -> Answer:
        url = urlsplit(self.url)
        connection = http.client.HTTPConnection(url.netloc, timeout=PATIENCE)
        try:
            connection.request(self.method, url.path + (f"?{url.query}" if url.query else ""), self.body, self.headers)
            response = connection.getresponse()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
        finally:
            connection.close()


def curls(text: str) -> list[Curl]:
    """The curl commands of a tour, in order. Fails on one that uses an option that is not known here."""
    return [curl(match[0]) for match in re.finditer(r"\bcurl [^|\n]*", text)]


def curl(command: str) -> Curl:
    words = shlex.split(command.rstrip(" &"))[1:]
    method, urls, headers, body = "GET", [], {}, None
    while words:
        match words.pop(0):
            case "-i" | "-s":
                pass
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                method, body = "POST", words.pop(0).encode()
            case "-X":
                words.pop(0)
            case url:
                assert url.startswith("http://"), url
                urls.append(url)
    assert len(urls) == 1, command
    return Curl(method, urls[0], headers, body)


class Dev:
    """A running `idempotency-gateway dev`. On exit of the block it is killed if it still runs."""

    def __init__(self, data: Path, *arguments: str, port: int = 0, admin_port: int = 0, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.output = ""
        ports = [] if "--config" in arguments else ["--port", str(port), "--admin-port", str(admin_port)]
        argv = [sys.executable, "-P", "-m", "gateway", "dev", "--data", str(data), *ports, *arguments]
        file, name = tempfile.mkstemp(prefix="idempotency-gateway-tests-")
        self.messages = Path(name)
        with open(file, "wb") as messages:
            told = {**os.environ, **NO_AUTHORITIES, **(env or {})}
            self.process = subprocess.Popen(argv, env=told, stdout=subprocess.PIPE, stderr=messages, start_new_session=True)
        self.pids: list[int] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join()
        self.messages.unlink()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.output += line.decode()

    def ready(self) -> Self:
        """Wait for the end of the tour, and remember all processes that run then."""
        wait_for(lambda: LAST_LINE in self.output or self.process.poll() is not None)
        assert LAST_LINE in self.output, self.said()
        found = [self.process.pid]
        for pid in found:
            found += children(pid)
        self.pids = found
        return self

    @property
    def gateway(self) -> str:
        match = re.search(r"The gateway is on (http://\S+),", self.output)
        assert match
        return match[1]

    @property
    def sample(self) -> str:
        match = re.search(r"sample payments API on (http://[^\s]+)\.\n", self.output)
        assert match
        return match[1]

    @property
    def port(self) -> int:
        port = urlsplit(self.gateway).port
        assert port
        return port

    def said(self) -> str:
        """What it told the user on stderr so far."""
        return self.messages.read_text()

    def pid_of(self, name: str) -> int:
        """The process id of one of its programs."""
        return int((self.data / f"{name}.pid").read_text().split()[0])

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ends(self) -> int:
        """Wait for its end; its exit code. Everything that it started has ended too."""
        code = self.process.wait(PATIENCE)
        self.reader.join()
        left = [pid for pid in self.pids if not gone(pid)]
        assert left == [], f"still running: {left}"
        return code


class House:
    """A data folder of several tests, and the `dev` that runs in it, always on the same ports. A test that leaves it undisturbed leaves it
    to the next one. `env` is told to each.
    """

    def __init__(self, data: Path, env: Mapping[str, str]) -> None:
        self._data = data
        self._env = env
        self._port, self._admin_port = free_port(), free_port()
        self._dev: Dev | None = None

    def dev(self) -> Dev:
        """The one that runs, ready; a new one if none does."""
        if self._dev is not None and self._dev.process.poll() is None:
            return self._dev
        self.close()
        self._dev = Dev(self._data, port=self._port, admin_port=self._admin_port, env=self._env)
        return self._dev.ready()

    def close(self) -> None:
        if self._dev is not None:
            self._dev.__exit__(None, None, None)


@contextmanager
def sample_alone() -> Iterator[str]:
    """The sample payments API as an API of the user's own. Its URL."""
    argv = [sys.executable, "-P", "-m", "gateway.devtools.sample", "--port", "0"]
    with subprocess.Popen(argv, env={**os.environ, **NO_AUTHORITIES}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def wait_for(condition: Callable[[], bool], pause: float = 0.05) -> None:
    """Wait until `condition()` is true; fails after a long time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(pause)
