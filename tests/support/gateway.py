"""The real gateway as processes of its own, which run what production runs."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.devtools.embedded.ports import free_port
from tests.support.forking import Forked, nursery

START_TIMEOUT = 120.0
"""Seconds that a gateway may take to be ready: on a busy machine its imports alone take long."""

NO_AUTHORITIES = {"SSL_CERT_FILE": os.devnull}
"""aiohttp reads the system's certificates twice as it is imported, a twentieth of a start. No test trusts a public authority."""

ROUTES = """
  - id: pay
    methods: [POST]
    path: /v1/pay
    upstream: payments
    idempotency: {principal: [{header: Authorization}]}
  - {id: rest, path: /**, upstream: payments}
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a gateway is started with. Timings are short, so that tests need not wait: lease 2 s, first byte 1 s unless given."""

    postgres: str
    upstream_port: int
    redis: str = ""
    routes: str = ROUTES
    defaults: str = "{lease: 2s}"
    timeouts: str = "{connect: 1s, first_byte: 1s, read_idle: 1s, total: 20s}"
    postgres_timeout: str = "2s"
    more: str = ""
    drain: str = "{delay: 0s, timeout: 90s}"
    max_execution: str = "1s"
    health: str = ""
    listen: str = ""
    """Instead of a port of its own: `unix:/path`."""
    upstream: str = ""
    """Instead of the `url` of the upstream: `targets: [...], tls: {...}`, and what else it shall have."""
    admin_tls: str = ""
    """The `tls` of the admin listener."""
    admin_ca: Path | None = None
    """Who signed the certificate of the admin listener, where it has one."""
    redis_timeout: str = "100ms"

    def yaml(self, port: int, admin: int) -> str:
        tls = f", tls: {self.admin_tls}" if self.admin_tls else ""
        upstream = self.upstream or f'url: "http://127.0.0.1:{self.upstream_port}"'
        if self.health:
            upstream += f", health: {self.health}"
        return f"""
listen: "{self.listen or f"127.0.0.1:{port}"}"
admin: {{listen: "127.0.0.1:{admin}"{tls}}}
postgres: {{dsn: "{self.postgres}", timeout: {self.postgres_timeout}}}
redis: {{url: "{self.redis}", timeout: {self.redis_timeout}}}
digest_secret: a-secret-of-the-tests-0123456789
drain: {self.drain}
upstreams:
  payments: {{{upstream}, timeouts: {self.timeouts}, max_execution: {self.max_execution}}}
defaults: {self.defaults}
{self.more}
routes:{self.routes}"""


@dataclass(slots=True)
class Gateway:
    """One running process."""

    port: int
    admin: int
    process: asyncio.subprocess.Process | Forked
    config: Path
    log: Path
    frozen: bool = field(default=False)
    admin_tls: ssl.SSLContext | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()

    def freeze(self) -> None:
        """SIGSTOP: the process stands still while time goes on."""
        os.kill(self.pid, signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.frozen = False

    def terminate(self) -> None:
        self.process.terminate()

    async def stop(self) -> None:
        """End it, by force if it must be; afterwards no process is left."""
        if self.process.returncode is None:
            if self.frozen:
                self.thaw()
            self.process.terminate()
            try:
                await asyncio.wait_for(self.process.wait(), 20)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    async def get(self, path: str) -> tuple[int, bytes]:
        """An admin page: status and body."""
        return await asyncio.to_thread(self._get, path)

    async def post(self, path: str) -> tuple[int, bytes]:
        """An admin command: status and body."""
        return await asyncio.to_thread(self._get, path, "POST")

    def _get(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        scheme = "http" if self.admin_tls is None else "https"
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.admin}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.admin_tls) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of all series of `name` whose labels include the given ones. 0 if there are none."""
        _, text = await self.get("/metrics")
        total = 0.0
        for line in text.decode().splitlines():
            series, _, value = line.rpartition(" ")
            bare, _, inside = series.partition("{")
            if bare == name and all(f'{label}="{wanted}"' in inside for label, wanted in labels.items()):
                total += float(value)
        return total

    async def counted(self, wanted: float, name: str, **labels: str) -> None:
        """Assert that the series come to `wanted`: a request is counted just after its answer has left."""
        async with asyncio.timeout(10):
            while await self.metric(name, **labels) != wanted:
                await asyncio.sleep(0.02)

    async def logged(self, wanted: Callable[[dict[str, Any]], bool], count: int = 1) -> list[dict[str, Any]]:
        """The log's lines that are `wanted`, once there are `count` of them: a line is written just after what it tells of."""
        async with asyncio.timeout(10):
            while len(lines := [line for line in self.log_lines() if wanted(line)]) < count:
                await asyncio.sleep(0.02)
        return lines

    def log_lines(self) -> list[dict[str, Any]]:
        """The JSON lines that the process has written whole so far, access log and messages alike."""
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")]


@contextlib.asynccontextmanager
async def running(
    setup: Setup,
    folder: Path,
    name: str = "gateway",
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    *,
    whole: bool = False,
) -> AsyncIterator[Gateway]:
    """A gateway that is ready, and is gone at the end of the block. `options` are those of `serve`. Where `env` is for Python itself the
    start must be `whole`, not a fork.
    """
    port, admin = free_port(), free_port()
    config, log = folder / f"{name}.yaml", folder / f"{name}.log"
    config.write_text(setup.yaml(port, admin))
    arguments = ["serve", "--config", str(config), *options]
    with log.open("wb") as output:
        process: asyncio.subprocess.Process | Forked
        told = {**os.environ, **(env or {})}
        if whole:
            command = (sys.executable, "-m", "gateway", *arguments)
            process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output, env={**told, **NO_AUTHORITIES})
        else:
            process = await nursery().fork(arguments, output, told)
    tls = None if setup.admin_ca is None else ssl.create_default_context(cafile=str(setup.admin_ca))
    gateway = Gateway(port, admin, process, config, log, admin_tls=tls)
    try:
        await _until_ready(gateway)
        yield gateway
    finally:
        await gateway.stop()


async def _until_ready(gateway: Gateway) -> None:
    async with asyncio.timeout(START_TIMEOUT):
        while True:
            if gateway.process.returncode is not None:
                raise AssertionError(f"the gateway ended with {gateway.process.returncode}: {gateway.log.read_text()}")
            with contextlib.suppress(OSError):
                if (await gateway.get("/readyz"))[0] == 200:
                    return
            await asyncio.sleep(0.05)
