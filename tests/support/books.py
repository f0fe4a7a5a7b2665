"""The sample payments API as a process of its own: an upstream that executes, and can be asked what it executed."""

import asyncio
import contextlib
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.devtools.embedded.ports import free_port


@dataclass(frozen=True, slots=True)
class Books:
    """One running sample API."""

    port: int

    async def get(self, path: str) -> Any:
        """A page of it, as JSON."""
        return await asyncio.to_thread(self._ask, path, None)

    async def post(self, path: str, body: object) -> Any:
        return await asyncio.to_thread(self._ask, path, json.dumps(body).encode())

    async def executions(self, key: str) -> int:
        """How often this key was executed: the truth, whatever lookups say."""
        answer = await self.get(f"/v1/executions?idempotency_key={key}")
        return int(answer["executions"])

    def _ask(self, path: str, body: bytes | None) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())


@contextlib.asynccontextmanager
async def keeping_books(folder: Path, *arguments: str) -> AsyncIterator[Books]:
    """The sample API, ready; gone at the end of the block."""
    port = free_port()
    with (folder / "sample.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.devtools.sample", "--port", str(port), *arguments), stdout=log, stderr=log
        )
    books = Books(port)
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError):
                    await books.get("/")
                    break
                await asyncio.sleep(0.05)
        yield books
    finally:
        process.terminate()
        await process.wait()
