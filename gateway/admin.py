"""The admin listener: health, metrics, the configuration in use, and reload. Never on the port that clients use."""

import asyncio
import functools
import hmac
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.config import Listener, TcpListener, UnixListener

_INDEX = b"""idempotency-gateway admin

GET  /livez              the process runs
GET  /readyz             it can serve: each check, 200 or 503
GET  /metrics            Prometheus text format
GET  /admin/v1/config    the configuration in use, secrets redacted
POST /admin/v1/reload    read the configuration file again
"""
_API = "/admin/v1/"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdminPorts:
    """What the admin listener shows and does. None of these may raise, save aiohttp's own
    HTTP errors.

    `readiness` tells of each check what is wrong, None where it is fine. `metrics` gives body and content type, and runs in a
    thread. `config` gives what JSON can carry. `reload` gives the mistakes that kept the old configuration in use; none: the new one is.
    """

    readiness: Callable[[], Awaitable[Mapping[str, str | None]]]
    metrics: Callable[[], tuple[bytes, str]]
    config: Callable[[], Awaitable[object]]
    reload: Callable[[], Awaitable[Sequence[str]]]


def make_admin(ports: AdminPorts, token: str | None = None) -> web.Application:
    """The application. With a `token`, everything under /admin/v1/ needs it as a bearer token; health and metrics stay open."""
    app = web.Application(middlewares=[_problems, _authentication(token)])
    reloading = asyncio.Lock()
    app.add_routes(
        [
            web.get("/", _index),
            web.get("/livez", _livez),
            web.get("/readyz", functools.partial(_readyz, ports)),
            web.get("/metrics", functools.partial(_metrics, ports)),
            web.get("/admin/v1/config", functools.partial(_config, ports)),
            web.post("/admin/v1/reload", functools.partial(_reload, ports, reloading)),
        ]
    )
    return app


async def start_admin(listen: Listener, app: web.Application, tls: ssl.SSLContext | None = None) -> web.AppRunner:
    """Listen, under TLS if there is a context. Raises OSError if that cannot be done.

    `runner.cleanup()` ends it; `runner.addresses` tells a port the system chose.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        match listen:
            case TcpListener(host, port):
                await web.TCPSite(runner, host, port, ssl_context=tls).start()
            case UnixListener(path):
                await web.UnixSite(runner, path, ssl_context=tls).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


# ---- handlers


async def _index(_: web.Request) -> web.Response:
    return web.Response(body=_INDEX, content_type="text/plain", charset="utf-8")


async def _livez(_: web.Request) -> web.Response:
    return web.Response(text="ok\n", headers={"Cache-Control": "no-store"})


async def _readyz(ports: AdminPorts, _: web.Request) -> web.Response:
    checks = await ports.readiness()
    ready = all(wrong is None for wrong in checks.values())
    document = {
        "status": "ready" if ready else "not ready",
        "checks": {name: "ok" if wrong is None else wrong for name, wrong in checks.items()},
    }
    return _json(document, 200 if ready else 503)


async def _metrics(ports: AdminPorts, _: web.Request) -> web.Response:
    # Thousands of series take tens of milliseconds to write: too long for a loop that has clients waiting.
    body, content_type = await asyncio.to_thread(ports.metrics)
    return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


async def _config(ports: AdminPorts, _: web.Request) -> web.Response:
    return _json(await ports.config())


async def _reload(ports: AdminPorts, reloading: asyncio.Lock, _: web.Request) -> web.Response:
    if reloading.locked():
        return _problem(409, "Conflict", "A reload is under way.")
    async with reloading:
        mistakes = await ports.reload()
    if mistakes:
        return _problem(422, "Unprocessable Content", "The old configuration stays in use.", errors=list(mistakes))
    return _json({"status": "reloaded"})


# ---- around them


def _authentication(token: str | None) -> Middleware:
    expected = None if token is None else f"Bearer {token}".encode()

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if expected is not None and request.path.startswith(_API):
            scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
            given = f"{scheme.capitalize()} {credential.strip()}".encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, expected):
                response = _problem(401, "Unauthorized", "Send the admin token: Authorization: Bearer <token>.")
                response.headers["WWW-Authenticate"] = 'Bearer realm="admin"'
                return response
        return await handler(request)

    return authenticate


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refusals of aiohttp's own, and failures of ours, in the format of everything else."""
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as refusal:
        response = _problem(405, "Method Not Allowed", "This resource takes other methods.")
        response.headers["Allow"] = refusal.headers["Allow"]
        return response
    except web.HTTPException as refusal:
        return _problem(refusal.status, refusal.reason, "GET / lists what is here.")
    except Exception:
        _log.exception("An admin request failed")
        return _problem(500, "Internal Server Error", "See the log.")


def _json(document: object, status: int = 200) -> web.Response:
    body = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, content_type="application/json", headers={"Cache-Control": "no-store"})


def _problem(status: int, title: str, detail: str, **members: object) -> web.Response:
    """RFC 9457 with the type about:blank: these mean what their status says, unlike the answers that clients of the API get."""
    document = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    body = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, content_type="application/problem+json", headers={"Cache-Control": "no-store"})
