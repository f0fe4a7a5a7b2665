"""An ASGI reverse proxy behind another project's idempotency layer: PEER is plain, idemkit-redis, idemkit-pg or idemgate."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

UPSTREAM, REDIS, PG, PEER = (os.environ.get(name, "") for name in ("UPSTREAM", "REDIS", "PG", "PEER"))
NOT_FORWARDED = {"host", "connection", "content-length", "transfer-encoding", "date", "server"}


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session:
        app.state.session = session
        if PEER == "idemgate":
            from idemgate.redis_store import RedisAcquirer  # type: ignore[import-not-found]  # noqa: PLC0415 - a peer need not be installed
            from redis.asyncio import Redis  # noqa: PLC0415 - as above

            app.state.idempotency_store = RedisAcquirer(Redis.from_url(REDIS))
        yield


async def forward(request: Request) -> Response:
    fields = {name: value for name, value in request.headers.items() if name not in NOT_FORWARDED}
    body = await request.body()
    async with request.app.state.session.request(request.method, UPSTREAM + request.url.path, headers=fields, data=body) as answer:
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in NOT_FORWARDED}
        return Response(await answer.read(), answer.status, kept)


def make_app() -> Any:
    if PEER == "idemgate":
        return _behind_idemgate()
    app = Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])], lifespan=lifespan)
    if PEER.startswith("idemkit"):
        from idemkit import HttpConfig, IdempotencyMiddleware, PostgresBackend, RedisBackend  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

        backend = PostgresBackend.from_url(PG) if PEER == "idemkit-pg" else RedisBackend.from_url(REDIS)
        app.add_middleware(IdempotencyMiddleware, backend=backend, config=HttpConfig(scope_mode="single_tenant"))
    return app


def _behind_idemgate() -> Any:
    from fastapi import FastAPI  # type: ignore[import-not-found]  # noqa: PLC0415 - as above
    from idemgate import IdempotencyConfig, IdempotencyRoute, idempotent  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

    app = FastAPI(lifespan=lifespan)
    app.router.route_class = IdempotencyRoute

    @app.post("/{path:path}")  # type: ignore[untyped-decorator]  # FastAPI need not be installed
    @idempotent(config=IdempotencyConfig(processing_lease_seconds=30, renew_interval_seconds=1))  # type: ignore[untyped-decorator]  # nor this
    async def forward_post(request: Request, path: str) -> Response:
        return await forward(request)

    return app


app = make_app()
