"""One gateway with three routes for each dialect, an upstream that does what a request says, and a Postgres that can be taken away."""

import asyncio
import contextlib
import json
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.dialects.files import NAMES, defaults
from tests.support.client import Answer, ask
from tests.support.faults import FaultProxy, fault_proxy
from tests.support.gateway import Gateway, Setup, running
from tests.support.services import Services
from tests.support.upstream import CountingUpstream, Exchange

CAP = 1024
"""Answers with more bytes are not kept."""
RETENTION = 1
"""Seconds, on the routes whose path ends in `/short`."""
SETTINGS = f"principal: [{{header: Authorization}}], key: {{required: true}}, in_flight: conflict, limits: {{response_body: {CAP}B}}"


def routes() -> str:
    """For each dialect: /<name>, /<name>/short, where keys expire soon, and /<name>/open, where none is required."""
    lines = []
    for name in NAMES:
        short, open_ = f"{SETTINGS}, retention: {RETENTION}s, on_expired: gone", SETTINGS.replace("required: true", "required: false")
        for path, settings in ((name, SETTINGS), (f"{name}/short", short), (f"{name}/open", open_)):
            policy = f'{{{settings}, dialect: "{name}"}}'
            lines.append(
                f'\n  - {{id: "{path.replace("/", ".")}", methods: [POST], path: "/{path}", upstream: payments, idempotency: {policy}}}'
            )
    return "".join(lines)


def request(name: str, key: str | None, do: str = "answer", note: str = "", *, path: str = "", query: str = "") -> bytes:
    """A request in a dialect, with the key where the dialect has it. `do` is what the upstream is to do, `note` is more of the body."""
    place = defaults(name)["key"]
    queries, lines = [query] if query else [], []
    body: dict[str, Any] = {"do": do, "note": note}
    if key is not None and "query" in place:
        queries.append(f"{place['query']}={key}")
    elif key is not None and "json_pointer" in place:
        inner: Any = key
        for member in reversed(place["json_pointer"].split("/")[1:]):
            inner = {member: inner}
        body |= inner
    elif key is not None:
        lines.append(f"{place['header']}: {key}")
    target, text = "?".join([f"/{path or name}", *(["&".join(queries)] if queries else [])]), json.dumps(body)
    lines = ["Host: gateway.test", "Content-Type: application/json", "Authorization: Bearer a", f"Content-Length: {len(text)}", *lines]
    return "\r\n".join([f"POST {target} HTTP/1.1", *lines, "", text]).encode()


@dataclass(slots=True)
class Stage:
    """What the tests of a module share. `running` is set, by note, once the upstream holds a request; `released` lets it answer."""

    gateway: Gateway
    upstream: CountingUpstream
    postgres: FaultProxy
    running: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    released: defaultdict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def ask(self, raw: bytes) -> Answer:
        return await ask(self.gateway.port, raw)

    async def behave(self, exchange: Exchange) -> None:
        """Execute, then do what the body says."""
        told = json.loads(exchange.seen.body)
        self.upstream.serial += 1
        thing = {"things": {"id": f"TH{self.upstream.serial}", "filling": ""}}
        match told["do"]:
            case "hang_up":
                exchange.hang_up()
                return
            case "hold":
                self.running[told["note"]].set()
                await self.released[told["note"]].wait()
            case "large":
                thing["things"]["filling"] = "x" * CAP
            case "fail":
                await exchange.answer(402, b'{"error": "no money"}')
                return
            case _:
                pass
        await exchange.answer(201, json.dumps(thing).encode())

    @contextlib.asynccontextmanager
    async def without_postgres(self) -> AsyncIterator[None]:
        """Postgres is away in the block, and back and in use after it."""
        await self.postgres.refuse()
        try:
            yield
        finally:
            await self.postgres.heal()
            async with asyncio.timeout(30):
                while (await self.gateway.get("/readyz"))[0] != 200:
                    await asyncio.sleep(0.05)


def fresh_key() -> str:
    """A key that every dialect takes: a UUID of version 4."""
    return str(uuid.uuid4())


@contextlib.asynccontextmanager
async def staged(services: Services, folder: Path) -> AsyncIterator[Stage]:
    """A stage on a database of its own, without Redis."""
    database = services.migrated_database(services.postgres())
    at = urlsplit(database)
    assert at.hostname
    assert at.port
    upstream = CountingUpstream()
    await upstream.start()
    try:
        async with fault_proxy(at.hostname, at.port) as postgres:
            dsn = database.replace(f":{at.port}/", f":{postgres.port}/")
            timeouts, health = "{connect: 2s, first_byte: 20s, total: 30s}", "{failures: 0}"
            setup = Setup(dsn, upstream.port, "", routes(), timeouts=timeouts, health=health)
            async with running(setup, folder) as gateway:
                stage = Stage(gateway, upstream, postgres)
                upstream.behave = stage.behave
                yield stage
    finally:
        await upstream.stop()
        services.drop_database(services.postgres(), database)
