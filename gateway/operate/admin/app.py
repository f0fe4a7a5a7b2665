"""The admin listener: health, metrics, the configuration in use, reload, and the operators' API. Never on the port that clients use."""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.config import Listener, TcpListener, UnixListener
from gateway.core.roles import Action
from gateway.operate.admin.entrance import Entrance
from gateway.operate.admin.figures import figures
from gateway.operate.admin.guard import caller_of, guard
from gateway.operate.admin.inputs import BODY_LIMIT
from gateway.operate.admin.oidc import provider_routes
from gateway.operate.admin.records import record_routes
from gateway.operate.admin.responses import answer, problem
from gateway.operate.admin.scrape import scrape
from gateway.operate.admin.verdicts import verdict_routes
from gateway.operate.operations import Forbidden, Operator, Wrong
from gateway.ports import StoreUnavailable

_INDEX = b"""idempotency-gateway admin

GET    /livez                                  the process runs
GET    /readyz                                 it can serve: each check, 200 or 503
GET    /metrics                                Prometheus text format, or OpenMetrics
GET    /admin/v1/config                        the configuration in use, secrets redacted
POST   /admin/v1/reload                        read the configuration file again
GET    /admin/v1/records                       records, by state, route, scope or key
GET    /admin/v1/records/{id}                  one record with its history
DELETE /admin/v1/records/{id}                  forget it: its key is free
POST   /admin/v1/records/{id}/resolve          say what became of an unknown one
POST   /admin/v1/records/{id}/release          let the next retry run it
POST   /admin/v1/records/{id}/preview          what the retry would get for an answer
POST   /admin/v1/records/{id}/look-now         have the next look made at once
POST   /admin/v1/records/{id}/ask              what the upstream says now; nothing changes
GET    /admin/v1/records/{id}/proposal         the verdict that waits for another user
POST   /admin/v1/records/{id}/approve          confirm it
POST   /admin/v1/records/{id}/reject           drop it
GET    /admin/v1/proposals                     all verdicts that wait
GET    /admin/v1/dead-letters                  unknown records that only a person can resolve
GET    /admin/v1/dead-letters/by-amount        those with the largest captured amounts
POST   /admin/v1/dead-letters/requeue          have many looked at again
POST   /admin/v1/dead-letters/{id}/requeue     have it looked at again
GET    /admin/v1/now                           decisions, requests under way, stores, what waits
GET    /admin/v1/audit                         who did what, and why
GET    /admin/v1/export                        records as JSON lines
GET    /admin/v1/openapi.json                  all of this as an OpenAPI document
"""
_LONGEST_LINE = 64 * 1024
"""Bytes of a request line: the longest id and reason fit, percent-encoded."""
_READS = frozenset({"GET", "HEAD"})

_GUARDED = web.AppKey("guarded", bool)
"""Whether the API of an application needs a token."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdminPorts:
    """What the admin listener shows and does. None of these may raise, save aiohttp's own
    HTTP errors.

    `readiness` tells of each check what is wrong, None where it is fine. `metrics` takes the scraper's Accept field, gives body and
    content type, and runs in a thread. `config` gives what JSON can carry. `reload` gives the mistakes that kept the old configuration
    in use; none: the new one is.
    Without `operator` what concerns records is answered with 503.
    """

    readiness: Callable[[], Awaitable[Mapping[str, str | None]]]
    metrics: Callable[[str], tuple[bytes, str]]
    config: Callable[[], Awaitable[object]]
    reload: Callable[[], Awaitable[Sequence[str]]]
    operator: Operator | None = None


def make_admin(
    ports: AdminPorts, token: str | None = None, *, entrance: Entrance | None = None, pages: Sequence[web.RouteDef] = ()
) -> web.Application:
    """The application. What is below /admin/v1/ and /console/ is for those whom the `entrance` knows; without one, for those with the
    `token`, and without either, for programs and browsers of this machine (`guard`). Health and metrics stay open. `pages` are the
    console's.
    """
    entrance = entrance or Entrance.fixed(token)
    app = web.Application(middlewares=[_problems, guard(entrance)], client_max_size=BODY_LIMIT)
    app[_GUARDED] = entrance.guarded
    reloading = asyncio.Lock()
    app.add_routes(
        [
            web.get("/", _index),
            web.get("/livez", _livez),
            web.get("/readyz", functools.partial(_readyz, ports)),
            web.get("/metrics", functools.partial(scrape, ports.metrics)),
            web.get("/admin/v1/config", functools.partial(_config, ports)),
            web.post("/admin/v1/reload", functools.partial(_reload, ports, reloading)),
            *record_routes(ports.operator),
            *verdict_routes(ports.operator),
            web.get("/admin/v1/now", functools.partial(_now, ports)),
            *provider_routes(entrance),
            *pages,
        ]
    )
    return app


async def start_admin(listen: Listener, app: web.Application, tls: ssl.SSLContext | None = None) -> web.AppRunner:
    """Listen, under TLS if there is a context. Raises OSError if that cannot be done, or must not be: off loopback, without a token and
    users.

    `runner.cleanup()` ends it; `runner.addresses` tells a port the system chose.
    """
    if not listen.loopback and not app.get(_GUARDED, False):
        raise PermissionError(errno.EACCES, "an admin listener that others can reach needs a token or users (admin.token, admin.users)")
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0, max_line_size=_LONGEST_LINE)
    await runner.setup()
    try:
        match listen:
            case TcpListener(host, port):
                await web.TCPSite(runner, host, port, ssl_context=tls).start()
            case UnixListener(path):
                await web.SockSite(runner, _private_socket(Path(path)), ssl_context=tls).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


def _private_socket(path: Path) -> socket.socket:
    """A socket that only the gateway's own user may connect to: without a token that is all that guards it. An old one is replaced."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    sock = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # nobody else, from the first moment on
    try:
        sock.bind(str(path))
    except BaseException:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


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
    return answer(document, 200 if ready else 503)


async def _now(ports: AdminPorts, request: web.Request) -> web.Response:
    """The figures of this moment; whoever asks twice knows rates."""
    caller_of(request).check(Action.SEE)
    exposition, _ = await asyncio.to_thread(ports.metrics, "text/plain")
    return answer(await asyncio.to_thread(figures, exposition.decode()))


async def _config(ports: AdminPorts, request: web.Request) -> web.Response:
    caller_of(request).check(Action.SEE)
    return answer(await ports.config())


async def _reload(ports: AdminPorts, reloading: asyncio.Lock, request: web.Request) -> web.Response:
    caller_of(request).check(Action.RELOAD)
    if reloading.locked():
        return problem(409, "A reload is under way.")
    async with reloading:
        mistakes = await ports.reload()
    if mistakes:
        return problem(422, "The old configuration stays in use.", errors=list(mistakes))
    return answer({"status": "reloaded"})


# ---- around them


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refusals of aiohttp's own, and failures of ours, in the format of everything else."""
    try:
        return await handler(request)
    except Wrong as wrong:
        return problem(400, f"{wrong.field}: {wrong.why}", field=wrong.field)
    except Forbidden as refusal:
        return problem(403, str(refusal), role=refusal.needed)
    except StoreUnavailable as error:
        landed = error.may_have_landed and request.method not in _READS
        response = problem(503, f"{error}." + (" The change may have been made: look before you repeat it." if landed else ""))
        response.headers["Retry-After"] = "1"
        return response
    except web.HTTPMethodNotAllowed as refusal:
        response = problem(405, "This resource takes other methods.")
        response.headers["Allow"] = refusal.headers["Allow"]
        return response
    except web.HTTPRequestEntityTooLarge:
        return problem(413, f"A body here has at most {BODY_LIMIT} bytes.")
    except web.HTTPException as refusal:
        return problem(refusal.status, "GET / lists what is here.")
    except Exception:
        _log.exception("An admin request failed")
        return problem(500, "See the log.")
