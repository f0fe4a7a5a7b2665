"""A gateway for an SDK: one route in a dialect, GET let through, and an upstream that keeps what it makes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from gateway.devtools.embedded.ports import free_port
from tests.support.faults import FaultProxy
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import Services
from tests.support.upstream import CountingUpstream, Exchange

T = TypeVar("T")


@dataclass(slots=True)
class Shop:
    """`front` stands before the gateway, `made` is what the upstream has made, by id, `fields` what its answers carry besides."""

    gateway: Gateway
    upstream: CountingUpstream
    front: FaultProxy
    envelope: str = ""
    fields: tuple[bytes, ...] = ()
    status: int = 201
    made: dict[str, dict[str, object]] = field(default_factory=dict)
    running: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event | None = None

    @property
    def base(self) -> str:
        """Where the SDK finds the API: through the fault proxy."""
        return f"http://127.0.0.1:{self.front.port}"

    @contextlib.asynccontextmanager
    async def busy_with(self, work: Coroutine[Any, Any, T]) -> AsyncIterator["asyncio.Task[T]"]:
        """The upstream is at this work of a client in the block; afterwards the client has its answer."""
        self.held = asyncio.Event()
        first = asyncio.ensure_future(work)
        try:
            await asyncio.wait_for(self.running.wait(), 20)
            yield first
        finally:
            self.held.set()
            await first

    async def behave(self, exchange: Exchange) -> None:
        """POST makes a thing of the body, in the collection that the path names; GET gives it back."""
        path = exchange.seen.target.partition(b"?")[0].decode().strip("/").split("/")
        if exchange.seen.method == b"GET":
            thing = self.made[path[-1]]
        else:
            thing = {"id": f"TH{len(self.made) + 1}", "object": "thing", **_told(exchange.seen.body)}
            self.made[str(thing["id"])] = thing
            self.running.set()
            if self.held is not None:
                await self.held.wait()
        if self.status >= 500 and exchange.seen.method == b"POST":
            await exchange.answer(self.status, b'{"error": {"type": "api_error", "message": "it broke"}}', fields=self.fields)
            return
        body = {self.envelope: thing} if self.envelope else thing
        status = 200 if exchange.seen.method == b"GET" else self.status
        await exchange.answer(status, json.dumps(body).encode(), fields=self.fields)


def _told(body: bytes) -> dict[str, object]:
    """What a JSON or form body asks for."""
    if not body.startswith(b"{"):
        return {name: values[0] for name, values in parse_qs(body.decode()).items()}
    document = json.loads(body)
    return dict(next(iter(document.values())))


@contextlib.asynccontextmanager
async def shop(services: Services, folder: Path, dialect: str, path: str, envelope: str = "") -> AsyncIterator[Shop]:
    """A shop on a database of its own, whose POSTs below `path` are guarded in a dialect."""
    database = services.migrated_database(services.postgres())
    upstream = CountingUpstream()
    await upstream.start()
    policy = f'{{principal: [{{header: Authorization}}], dialect: "{dialect}"}}'
    routes = f"""
  - {{id: guarded, methods: [POST], path: "{path}/**", upstream: payments, idempotency: {policy}}}
  - {{id: rest, path: /**, upstream: payments}}"""
    try:
        timeouts = "{connect: 2s, first_byte: 20s, total: 30s}"
        async with running(Setup(database, upstream.port, "", routes, timeouts=timeouts), folder) as gateway:
            front = FaultProxy("127.0.0.1", gateway.port, free_port())
            await front.heal()
            found = Shop(gateway, upstream, front, envelope)
            upstream.behave = found.behave
            yield found
            await front.close()
    finally:
        await upstream.stop()
        services.drop_database(services.postgres(), database)
