"""Memory while many slow requests are under way: each with a key, a lease, a connection of its client's and one to the upstream."""

import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar, cast

import uvloop

from benchmarks.load import request
from benchmarks.systems import HERE, Settings, Stage, children_of, resident, start_gateway
from gateway.devtools.embedded.ports import free_port

AT_A_TIME = 200
SETTLE = 3.0
SPARE = 1000
"""Files that a gateway needs besides."""
ANSWER = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"


class _Slow(asyncio.Protocol):
    """Keeps what it is asked until it is told to answer, which a connection that sends `now` does."""

    waiting: ClassVar[set["_Slow"]] = set()

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        if data == b"count":
            self.transport.write(b"%d" % len(self.waiting))
        elif data == b"now":
            for one in self.waiting:
                if one.transport is not None:
                    one.transport.write(ANSWER)
            self.waiting.clear()
        else:
            self.waiting.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.discard(self)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Slow, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


async def _open(port: int, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    opened = []
    for first in range(0, count, AT_A_TIME):
        wanted = range(first, min(first + AT_A_TIME, count))
        opened += await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in wanted))
    return opened


async def _measure(port: int, pids: list[int], upstream: int, count: int) -> tuple[float, float, float]:
    """KiB of the gateway's processes before, with idle connections, and with a request under way on each."""
    control, tell = await asyncio.open_connection("127.0.0.1", upstream)
    before = sum(map(resident, pids))
    opened = await _open(port, count)
    await asyncio.sleep(SETTLE)
    idle = sum(map(resident, pids))
    for first in range(0, count, AT_A_TIME):
        for number, (_, writer) in enumerate(opened[first : first + AT_A_TIME], first):
            writer.write(request(b"/v1/charges", b"slow", number, number))
        reached = 0
        for _ in range(1200):
            tell.write(b"count")
            reached = int(await control.read(16))
            if reached >= min(first + AT_A_TIME, count):
                break
            await asyncio.sleep(0.05)
        else:
            raise SystemExit(f"the upstream has only {reached} requests of {count}")
    await asyncio.sleep(SETTLE)
    busy = sum(map(resident, pids))
    tell.write(b"now")
    statuses = [(await reader.readuntil(b"\r\n\r\n"))[9:12] for reader, _ in opened]
    if statuses.count(b"201") != count:
        raise SystemExit(f"{count - statuses.count(b'201')} of {count} requests failed")
    for _, writer in opened:
        writer.close()
    return before, idle, busy


def _serving(pid: int, workers: int) -> list[int]:
    """The processes that serve: this one, or its workers, once all of them are there."""
    if workers == 1:
        return [pid]
    for _ in range(200):
        children = children_of(pid)
        if len(children) == workers:
            time.sleep(SETTLE)
            return children
        time.sleep(0.05)
    raise SystemExit(f"the supervisor has no {workers} workers")


def run(on: Stage, count: int, tree: Path | None, workers: int) -> str:
    """A table in Markdown."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    share = count if workers == 1 else count // workers + count // 10  # the kernel deals connections out by chance
    if 2 * share + SPARE > files:
        raise SystemExit(f"{count} requests take two files each, and a process may have {files}: take fewer, or more --workers")
    port = free_port()
    words = (sys.executable, "-m", "benchmarks.in_flight", str(port))
    with subprocess.Popen(words, cwd=HERE.parent) as slow:
        try:
            settings = Settings(
                more=f"client: {{max_connections: {count + 1000}}}\nworkers: {workers}",
                slots=count + 100,
                target=", timeouts: {first_byte: 300s, total: 600s}, max_execution: 700s",
            )
            gateway = start_gateway(on, "slow", upstream=port, tree=tree, settings=settings)
            before, idle, busy = uvloop.run(_measure(gateway.port, _serving(gateway.pid, workers), port, count))
        finally:
            slow.terminate()
    each = ((idle - before) / count, (busy - before) / count)
    return (
        f"{count} connections, then a slow new key on each; {workers} {'process' if workers == 1 else 'processes'}\n\n"
        f"| | MiB | KiB each |\n| --- | ---: | ---: |\n"
        f"| before | {before / 1024:.0f} | |\n| idle connections | {idle / 1024:.0f} | {each[0]:.1f} |\n"
        f"| requests in flight | {busy / 1024:.0f} | {each[1]:.1f} |"
    )


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
