"""What the gateway is compared with: an ordinary aiohttp reverse proxy without idempotency, with uvloop, C extensions and no access log."""

import argparse
import asyncio

import aiohttp
import uvloop
from aiohttp import web

HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-authorization", "content-length", "host"}


def make_app(upstream: str) -> web.Application:
    """Forward everything to `upstream`, an address without a closing slash."""
    session: aiohttp.ClientSession

    async def forward(request: web.Request) -> web.Response:
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP]
        body = await request.read()
        async with session.request(
            request.method, upstream + request.path_qs, headers=headers, data=body, allow_redirects=False
        ) as response:
            kept = [(name, value) for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP]
            answer = web.Response(status=response.status, reason=response.reason, body=await response.read())
            for name, value in kept:
                if name.lower() == "content-type":
                    answer.headers[name] = value
                else:
                    answer.headers.add(name, value)
            return answer

    async def lifetime(_: web.Application):  # type: ignore[no-untyped-def]  # an aiohttp cleanup context
        nonlocal session
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        yield
        await session.close()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    app.cleanup_ctx.append(lifetime)
    return app


async def serve(port: int, upstream: str) -> None:
    """Serve until killed."""
    runner = web.AppRunner(make_app(upstream), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("upstream")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, arguments.upstream))
