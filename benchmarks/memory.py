"""What the gateway's process holds while bodies are large and clients are slow.

    python -m benchmarks.memory [--gigabytes 1] [--clients 2000]

One gateway as production runs it, Postgres with fsync on, Redis, one upstream, all on this machine. Each case is a process of its own,
which has served a few requests before; `peak` is the most that was resident (VmHWM), `grown` the difference to before the case.
"""

import argparse
import asyncio
import contextlib
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.systems import Settings, config_text, migrate, newest_redis, process
from gateway.devtools.embedded import start_postgres, start_redis
from gateway.devtools.embedded.ports import free_port

PIECE = b"x" * 65536
ANSWER = 256 * 1024
SLOW_BODY = 64 * 1024
HEAD = b"Host: bench.test\r\nAuthorization: Bearer tenant-1\r\n"


@dataclass(frozen=True, slots=True)
class Figure:
    """One case. Sizes are MiB."""

    name: str
    before: float
    peak: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.name:56} {self.before:9.0f} {self.peak:9.0f} {self.peak - self.before:9.0f} {self.seconds:9.1f}"


def resident(pid: int, field: str) -> float:
    """A figure of /proc/PID/status in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{field} is not in /proc/{pid}/status")


class Upstream:
    """Takes any body; answers GET /large with `size` bytes, slow bodies with none, everything else with `ANSWER` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                left = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
                while left > 0:
                    left -= len(piece := await reader.read(min(left, 262144)))
                    self.taken += len(piece)
                size = self.size if head.startswith(b"get /large") else 0 if b"slow-body" in head else ANSWER
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % size)
                for _ in range(size // len(PIECE)):
                    writer.write(PIECE)
                    await writer.drain()
        writer.close()


async def up(port: int, size: int) -> None:
    """One upload through an unguarded route."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PUT /files/1 HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % size)
    for _ in range(size // len(PIECE)):
        writer.write(PIECE)
        await writer.drain()
    await finish(reader, writer)


async def down(port: int, size: int) -> None:
    """One download through an unguarded route, at full speed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /large HTTP/1.1\r\n" + HEAD + b"\r\n")
    await reader.readuntil(b"\r\n\r\n")
    got = 0
    while got < size:
        got += len(await reader.read(262144))
    writer.close()


async def finish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 20"):
        raise SystemExit(f"unexpected answer: {head!r}")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    writer.close()


async def slow_readers(port: int, clients: int, path: bytes) -> None:
    """Clients that ask, and take nothing until all have asked and been served as far as the gateway goes."""

    async def one(number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"POST %b HTTP/1.1\r\n" % path + HEAD + b"Idempotency-Key: slow-%d\r\nContent-Length: 2\r\n\r\n{}" % number)
        return reader, writer

    open_ones = []
    for start in range(0, clients, 100):
        open_ones += await asyncio.gather(*(one(number) for number in range(start, min(start + 100, clients))))
        await asyncio.sleep(0.25)
    await asyncio.sleep(10)
    for start in range(0, clients, 100):
        await asyncio.gather(*(finish(*pair) for pair in open_ones[start : start + 100]))


async def slow_writers(port: int, clients: int) -> None:
    """Clients whose keyed bodies of 64 KiB come in small pieces, all at the same time."""

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/charges HTTP/1.1\r\n" + HEAD + b"Idempotency-Key: slow-body-%d\r\nContent-Length: %d\r\n\r\n" % (number, SLOW_BODY)
        )
        for _ in range(16):
            writer.write(b" " * (SLOW_BODY // 16))
            await asyncio.sleep(1)
        await finish(reader, writer)

    await asyncio.gather(*(one(number) for number in range(clients)))


Case = tuple[str, Callable[[int], Awaitable[None]]]


def cases(size: int, clients: int) -> list[Case]:
    share = f"{size / 2**30:.1f} GiB"
    return [
        (f"{share} up, unguarded", lambda port: up(port, size)),
        (f"{share} down, unguarded", lambda port: down(port, size)),
        (f"{clients} slow readers of {ANSWER // 1024} KiB, unguarded", lambda port: slow_readers(port, clients, b"/files")),
        (f"{clients} slow readers of {ANSWER // 1024} KiB, guarded", lambda port: slow_readers(port, clients, b"/v1/charges")),
        (f"{clients} slow bodies of {SLOW_BODY // 1024} KiB, guarded", lambda port: slow_writers(port, clients)),
    ]


async def measure(case: Case, port: int, pid: int) -> Figure:
    name, run = case
    for number in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/charges HTTP/1.1\r\n" + HEAD + b"Idempotency-Key: warm-%d\r\nContent-Length: 2\r\n\r\n{}" % number)
        await finish(reader, writer)
    before, started = resident(pid, "VmRSS"), time.perf_counter()
    await run(port)
    return Figure(name, before, resident(pid, "VmHWM"), time.perf_counter() - started)


async def run_all(stack: ExitStack, folder: Path, size: int, clients: int) -> None:
    postgres = start_postgres(folder / "postgres")
    stack.callback(postgres.stop)
    redis = start_redis(folder / "redis", binary=newest_redis())
    stack.callback(redis.stop)
    upstream = Upstream(size)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=4096)
    behind = server.sockets[0].getsockname()[1]
    print(f"{'case':56} {'before':>9} {'peak':>9} {'grown':>9} {'seconds':>9}   (MiB)")
    for number, case in enumerate(cases(size, clients)):
        port = free_port()
        config = folder / f"{number}.yaml"
        config.write_text(config_text(postgres.dsn, redis.url, behind, port=port, settings=Settings(slots=4096)))
        migrate(config)
        with process("-m", "gateway", "serve", "--config", str(config), port=port, log=folder / f"{number}.log") as child:
            print(await measure(case, port, child.pid), flush=True)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=2000)
    chosen = parser.parse_args()
    wanted = 4 * chosen.clients + 1024
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="gateway-memory-") as folder:
        uvloop.run(run_all(stack, Path(folder), int(chosen.gigabytes * 2**30) // len(PIECE) * len(PIECE), chosen.clients))


if __name__ == "__main__":
    main()
