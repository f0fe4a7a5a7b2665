"""What benchmarks start and stop: stores, an upstream, gateways and other proxies, each a process of its own."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import asyncpg

from gateway.devtools.embedded import start_postgres, start_redis
from gateway.devtools.embedded.ports import free_port

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")
POLICY = "principal: [{header: Authorization}]"
CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
postgres: {{dsn: "{dsn}"}}
redis: {{url: "{redis}"}}
digest_secret: a-secret-of-the-benchmark-0123456789
drain: {{delay: 0s, timeout: 700s}}
{more}
upstreams: {{payments: {{url: "http://127.0.0.1:{upstream}", max_connections: {slots}{target}}}}}
routes:
  - id: create-charge
    methods: [POST]
    path: /v1/charges
    upstream: payments
    {route}
    idempotency: {{{policy}}}
  - {{id: rest, path: /**, upstream: payments}}
"""


@dataclass(frozen=True, slots=True)
class System:
    """Something to measure. `keys` None: a new key for each request, else so many are stored before and replayed in turn.
    `tenants`: how many callers there are.
    """

    name: str
    port: int
    pid: int
    path: bytes = b"/v1/charges"
    keys: int | None = None
    tenants: int = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """What systems stand on. `upstream` is a port."""

    stack: ExitStack
    folder: Path
    dsn: str
    redis: str
    upstream: int

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def database(self, name: str) -> str:
        """The DSN of a new, empty database."""

        async def create() -> None:
            connection = await asyncpg.connect(self.dsn)
            await connection.execute(f'CREATE DATABASE "{name}"')
            await connection.close()

        asyncio.run(create())
        return self.dsn.rpartition("/")[0] + "/" + name


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, and that have not ended."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, its threads and the processes that it has started included."""
    ticks = 0
    for each in (pid, *children_of(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def resident(pid: int) -> int:
    """KiB of a process in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split(maxsplit=1)[0])


@contextmanager
def command(
    *words: str, port: int, log: Path, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; ready once `port` accepts."""
    with (
        log.open("wb") as output,
        subprocess.Popen(words, stdout=output, stderr=output, env={**os.environ, **(environment or {})}, cwd=folder) as child,
    ):
        try:
            for _ in range(400):
                if child.poll() is not None:
                    raise RuntimeError(f"{words} ended: {log.read_text()}")
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield child
        finally:
            child.terminate()


@contextmanager
def process(*arguments: str, port: int, log: Path, folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module until the block ends; ready once `port` accepts. `folder`: a source tree other than this one."""
    with command(sys.executable, *arguments, port=port, log=log, folder=folder) as child:
        yield child


def newest_redis() -> Path | None:
    """A `redis-server` of version 7 or newer on the PATH, which needs no script for a reserve; else None: the extra's."""
    found = shutil.which("redis-server")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout if found else ""
    version = re.search(r"v=(\d+)", told)
    return Path(found) if found and version and int(version[1]) >= 7 else None


@contextmanager
def stage() -> Iterator[Stage]:
    """Postgres with fsync on, Redis, and an upstream that costs little; all gone at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-benchmark-")))
        folder.chmod(0o755)
        postgres = start_postgres(folder / "postgres")
        stack.callback(postgres.stop)
        redis = start_redis(folder / "redis", binary=newest_redis())
        stack.callback(redis.stop)
        upstream = free_port()
        stack.enter_context(process("-m", "benchmarks.upstream", str(upstream), port=upstream, log=folder / "upstream.log"))
        yield Stage(stack, folder, postgres.dsn, redis.url, upstream)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a gateway is told besides: in the guarded route's `idempotency`, in that route, in the upstream, and in the file."""

    policy: str = POLICY
    route: str = ""
    target: str = ""
    slots: int = 256
    more: str = ""


PLAIN = Settings()


def config_text(dsn: str, redis: str, upstream: int, *, port: int, settings: Settings) -> str:
    """A gateway's configuration."""
    told = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return CONFIG.format(port=port, admin=free_port(), dsn=dsn, redis=redis, upstream=upstream, **told)


def migrate(config: Path, tree: Path | None = None) -> None:
    """Bring the schema of a configuration's database to this version, or to that of another source tree."""
    words = [sys.executable, "-m", "gateway", "migrate", "--config", str(config)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tree)
    if done.returncode:
        raise RuntimeError(done.stderr or done.stdout)


def start_gateway(
    on: Stage,
    name: str,
    *,
    dsn: str | None = None,
    redis: str | None = None,
    upstream: int | None = None,
    tree: Path | None = None,
    settings: Settings = PLAIN,
) -> System:
    """Start one gateway as production runs it, its schema migrated; the access log goes to a file. `tree`: another source tree's."""
    port, config = free_port(), on.folder / f"{name}.yaml"
    dsn, redis, upstream = dsn or on.dsn, on.redis if redis is None else redis, upstream or on.upstream
    config.write_text(config_text(dsn, redis, upstream, port=port, settings=settings))
    migrate(config, tree)
    serve = process("-m", "gateway", "serve", "--config", str(config), port=port, log=on.log(name), folder=tree)
    return System(name, port, on.stack.enter_context(serve).pid)


def start_plain_proxy(on: Stage) -> System:
    """The bare aiohttp proxy that everything is compared with."""
    port = free_port()
    words = ("-m", "benchmarks.plain_proxy", str(port), f"http://127.0.0.1:{on.upstream}")
    return System("bare aiohttp proxy", port, on.stack.enter_context(process(*words, port=port, log=on.log("plain"))).pid)
