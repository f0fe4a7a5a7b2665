"""A worker as the supervisor sees one, without the gateway in it. Run with a folder in which it leaves marks and finds orders.

Orders are files: `exit` (exit at the start with this status), `stubborn` (ignore SIGTERM), `reload-fails`, `adopt-fails-0`, `not-ready`.
Marks are files `<what>-<worker>-<pid>`; `word-…` holds the configuration that the worker has. `figures` and `figures-after-refusal`
hold what it counts, packed by another process.

It imports nothing but what comes with Python: a test starts several, and the gateway's imports would be nearly all of their CPU.
"""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
INDEX = os.environ["GATEWAY_WORKER"]


def mark(what: str) -> None:
    with (FOLDER / f"{what}-{INDEX}-{os.getpid()}").open("a") as file:
        file.write(" ".join(["once", *sys.argv[2:]]) + "\n")


def has(word: str) -> None:
    """Leave a mark of the configuration in use."""
    (FOLDER / f"word-{INDEX}-{os.getpid()}").write_text(word)


def ordered(what: str) -> bool:
    return (FOLDER / what).exists()


class Worker:
    def __init__(self) -> None:
        self.figures = "figures"
        self.stop = asyncio.Event()
        self.draining = False
        self.prepared = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, as the supervisor sends it."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        status, document = self.answer(head.split(b" ")[1].decode(), body)
        packed = json.dumps(document).encode()
        fields = b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close" % len(packed)
        writer.write(b"HTTP/1.1 %d -\r\n%b\r\n\r\n%b" % (status, fields, packed))
        await writer.drain()
        writer.close()

    def answer(self, path: str, body: bytes) -> tuple[int, object]:
        match path:
            case "/readyz":
                return self.readiness()
            case "/worker/prepare":
                return self.prepare(body.decode())
            case "/worker/adopt":
                return self.adopt()
            case "/worker/abandon":
                return self.abandon()
            case "/worker/metrics":
                return 200, {**json.loads((FOLDER / self.figures).read_bytes()), "pid": os.getpid()}
            case _:
                return 404, {}

    def readiness(self) -> tuple[int, object]:
        """As that of every admin listener."""
        checks = {"postgres": "timeout" if ordered("not-ready") else "ok", "draining": "stopping" if self.draining else "ok"}
        ready = set(checks.values()) == {"ok"}
        return 200 if ready else 503, {"status": "ready" if ready else "not ready", "checks": checks}

    def prepare(self, word: str) -> tuple[int, object]:
        mark("prepared")
        self.prepared = word
        errors = [f"bad in {INDEX}"] if ordered(f"reload-fails-{INDEX}") else ["bad"] if ordered("reload-fails") else []
        return 422 if errors else 200, {"errors": errors}

    def adopt(self) -> tuple[int, object]:
        if ordered(f"adopt-fails-{INDEX}"):
            return 422, {"errors": ["no"]}
        has(self.prepared)
        return 200, {"errors": []}

    def abandon(self) -> tuple[int, object]:
        mark("abandoned")
        self.figures = "figures-after-refusal"
        return 200, {"errors": []}

    def told_to_stop(self) -> None:
        mark("terminated")
        self.draining = True
        if not ordered("stubborn"):
            self.stop.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.told_to_stop)
        loop.add_signal_handler(signal.SIGHUP, mark, "hung-up")
        loop.add_reader(int(os.environ["GATEWAY_WORKER_PARENT_FD"]), self.orphaned)
        server = await asyncio.start_unix_server(self.serve, os.environ["GATEWAY_WORKER_SOCKET"])
        with os.fdopen(int(os.environ["GATEWAY_WORKER_CONFIG_FD"])) as snapshot:
            has(snapshot.read())
        mark("running")
        await self.stop.wait()
        server.close()

    def orphaned(self) -> None:
        asyncio.get_running_loop().remove_reader(int(os.environ["GATEWAY_WORKER_PARENT_FD"]))
        mark("orphaned")
        self.stop.set()


if ordered("exit"):
    mark("exited")
    sys.exit(int((FOLDER / "exit").read_text()))


async def main() -> None:
    await Worker().run()


asyncio.run(main())
