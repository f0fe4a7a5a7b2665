"""One gateway for a module's tests: its route map, its requests, and what its upstream saw."""

import asyncio
import base64
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from tests.support.client import Answer, ask
from tests.support.gateway import Gateway, Setup
from tests.support.upstream import CountingUpstream, Exchange, Seen

BODY = b'{"amount":100,"currency":"EUR"}'
TENANT_A = b"tenant-a"
TENANT_B = b"tenant-b"
OURS = frozenset({b"x-request-id", b"date", b"original-request", b"idempotency-expires"})
"""Fields that differ between any two answers: ids and dates."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a module's gateway is started with: routes, further lines of `upstreams`, and further lines at the top."""

    routes: str
    upstreams: str = ""
    more: str = ""
    defaults: str = "{lease: 2s, principal: [{header: X-Account}]}"


@dataclass(frozen=True, slots=True)
class PlannedSetup(Setup):
    """A setup with more upstreams than the one."""

    upstreams: str = ""

    def yaml(self, port: int, admin: int) -> str:
        return Setup.yaml(self, port, admin).replace("\ndefaults:", f"\n{self.upstreams}\ndefaults:", 1)


@dataclass(slots=True)
class House:
    """A running gateway, its setup, and its upstream."""

    gateway: Gateway
    setup: Setup
    upstream: CountingUpstream = field(default_factory=CountingUpstream)

    async def ask(
        self,
        path: bytes,
        key: bytes | None = None,
        body: bytes = BODY,
        *,
        account: bytes | None = TENANT_A,
        media_type: bytes = b"application/json",
        more: tuple[bytes, ...] = (),
    ) -> Answer:
        """POST to a route, by default as tenant A."""
        return await ask(self.gateway.port, post(path, key, body, account=account, media_type=media_type, more=more))

    @property
    def seen(self) -> list[Seen]:
        """The requests that reached the upstream in this test, oldest first."""
        return self.upstream.requests

    @property
    def last(self) -> Seen:
        return self.upstream.requests[-1]

    async def reload(self, routes: str) -> None:
        """Make the gateway use this route map."""
        changed = replace(self.setup, routes=routes)
        self.gateway.config.write_text(changed.yaml(self.gateway.port, self.gateway.admin))
        status, body = await self.gateway.post("/admin/v1/reload")
        assert status == 200, body

    async def settled(self, path: bytes, key: bytes | None, body: bytes = BODY) -> Answer:
        """The answer to a request that executes, once its record is settled: an observed answer waits for that but briefly."""
        route = path[1:].decode()
        before = await self.gateway.metric("idempotency_settlements_total", route=route)
        answer = await self.ask(path, key, body)
        await self.gateway.counted(before + 1, "idempotency_settlements_total", route=route)
        return answer

    async def query(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        """Rows of the gateway's database."""
        connection = await asyncpg.connect(self.setup.postgres, timeout=10)
        try:
            return list(await connection.fetch(sql, *arguments))
        finally:
            await connection.close()

    async def records(self, key: bytes) -> list[asyncpg.Record]:
        """The records under this key, in all scopes."""
        return await self.query("SELECT * FROM gateway_records WHERE idempotency_key = $1", key.decode())

    async def expired(self, key: bytes) -> None:
        """Wait until the records under this key have expired."""
        sql = "SELECT count(*) FILTER (WHERE expires_at > now()) AS live FROM gateway_records WHERE idempotency_key = $1"
        async with asyncio.timeout(10):
            while (await self.query(sql, key.decode()))[0]["live"]:
                await asyncio.sleep(0.1)

    async def line(self, answer: Answer) -> dict[str, Any]:
        """The access log's line of an answer."""
        request_id = answer.field("x-request-id") or b"no request id"
        return (await self.told(b'"msg":"request"', b'"request_id":"%b"' % request_id))[0]

    async def told(self, *texts: bytes) -> list[dict[str, Any]]:
        """The lines of the log that hold all of these texts, once there are any. One that is still being written is none yet."""
        async with asyncio.timeout(10):
            while True:
                whole = self.gateway.log.read_bytes().split(b"\n")[:-1]
                if found := [line for line in whole if all(text in line for text in texts)]:
                    return [json.loads(line) for line in found]
                await asyncio.sleep(0.01)


def post(
    path: bytes,
    key: bytes | None = None,
    body: bytes = BODY,
    *,
    account: bytes | None = TENANT_A,
    media_type: bytes = b"application/json",
    more: tuple[bytes, ...] = (),
) -> bytes:
    """A request as raw bytes. `more` are further header lines."""
    lines = [b"POST %b HTTP/1.1" % path, b"Host: gateway.test", b"Content-Type: " + media_type]
    lines += [] if account is None else [b"X-Account: " + account]
    lines += [] if key is None else [b"Idempotency-Key: " + key]
    return b"\r\n".join([*lines, *more, b"Content-Length: %d" % len(body)]) + b"\r\n\r\n" + body


async def as_nobody(house: House, path: bytes, key: bytes, *lines: bytes) -> Answer:
    """POST with these header lines and no others that could tell the caller."""
    return await house.ask(path, key, account=None, more=lines)


def bearer(token: bytes) -> bytes:
    return b"Authorization: Bearer " + token


def basic(user: bytes, password: bytes = b"secret") -> bytes:
    return b"Authorization: Basic " + base64.b64encode(user + b":" + password)


def fresh() -> bytes:
    """A key that nobody has used."""
    return str(uuid.uuid4()).encode()


def replayed(answer: Answer) -> bool:
    return answer.field("idempotent-replayed") == b"true"


def refusal(answer: Answer) -> tuple[int, str | None]:
    return answer.status, answer.problem


def plain(answer: Answer) -> tuple[object, ...]:
    """All of an answer but ids and dates: what may be compared with another answer's."""
    fields = [(name, b"*" if name.lower() in OURS else value) for name, value in answer.fields]
    request_id = answer.field("x-request-id") or b"no request id"
    body = answer.body.replace(request_id, b"*")
    return answer.status, answer.reason, fields, body


def saying(status: int = 201, *fields: bytes, body: bytes | None = None) -> Callable[[Exchange], Awaitable[None]]:
    """A behaviour: run the operation, and answer so."""

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.answer(status, body, fields=fields)

    return behave


def holding(released: asyncio.Event) -> Callable[[Exchange], Awaitable[None]]:
    """A behaviour: run the operation, and answer once `released` is set."""

    async def behave(exchange: Exchange) -> None:
        exchange.execute()
        await released.wait()
        await exchange.answer()

    return behave
