"""Logging in and out by an OpenID Connect provider: what the browser is sent to, and what it brings back.

GET  /console/oidc/start       to the provider, with a cookie that knows this login
GET  /console/oidc/callback    back, with a code: the session begins
POST /console/oidc/logout      the provider itself: a session of its own has ended (back-channel logout)
"""

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from gateway.core.sessions import local_target
from gateway.operate.admin.cookies import begin_session, drop_pending, read_pending, set_pending
from gateway.operate.admin.entrance import Entrance
from gateway.operate.admin.guard import CONSOLE, LOGIN, PROVIDER
from gateway.operate.admin.refusals import LoginRefused, ProviderAway
from gateway.operate.admin.responses import problem

if TYPE_CHECKING:
    from gateway.operate.admin.provider import Provider

_log = logging.getLogger(__name__)


def provider_routes(entrance: Entrance) -> list[web.RouteDef]:
    """See the module. Where the configuration has no provider they are not found."""

    async def start(request: web.Request) -> web.Response:
        provider = _provider(entrance)
        try:
            pending = entrance.new_pending(local_target(request.query.get("next", ""), CONSOLE))
            response = _to(await provider.login_url(pending))
        except ProviderAway as error:
            return _refused(error, "away")
        set_pending(entrance, request, response, pending)
        return response

    async def callback(request: web.Request) -> web.Response:
        provider, pending = _provider(entrance), read_pending(entrance, request)
        address = entrance.address_of(request)
        wait = entrance.codes.wait(address)
        if pending is None or wait > 0.0:
            return _to(f"{LOGIN}?error={'expired' if pending is None else 'throttled'}")
        try:
            logged_in = await provider.logged_in(pending, dict(request.query))
        except LoginRefused as refusal:
            entrance.codes.failed(address)
            response = _refused(refusal, refusal.word)
        except ProviderAway as error:
            response = _refused(error, "away")
        else:
            # A redirect would still count as the provider's: the browser would leave the strict cookie out.
            response = web.Response(text="One moment.\n", headers={"Cache-Control": "no-store", "Refresh": f"0; url={pending.target}"})
            begin_session(entrance, request, response, entrance.logged_in(provider, logged_in))
        drop_pending(entrance, request, response)
        return response

    async def ended(request: web.Request) -> web.Response:
        provider, form = _provider(entrance), await request.post()
        try:
            await entrance.end_of(provider, *await provider.logged_out(str(form.get("logout_token", ""))))
        except (LoginRefused, ProviderAway) as error:
            _log.warning("A logout of the provider was refused: %s", error)
            return problem(400, "This is no logout token of the provider.")
        return web.Response(headers={"Cache-Control": "no-store"})

    return [
        web.get(f"{PROVIDER}start", start),
        web.get(f"{PROVIDER}callback", callback),
        web.post(f"{PROVIDER}logout", ended),
    ]


async def provider_logout(entrance: Entrance) -> str | None:
    """Where a browser goes to log out at the provider, too, once its session here has ended; None: nowhere."""
    provider = entrance.provider
    return None if provider is None else await provider.logout_url(f"{entrance.url}{LOGIN}")


def _provider(entrance: Entrance) -> "Provider":
    provider = entrance.provider
    if provider is None:
        raise web.HTTPNotFound
    return provider


def _refused(error: Exception, word: str) -> web.Response:
    _log.warning("A login by the provider failed: %s", error)
    return _to(f"{LOGIN}?error={quote(word)}")


def _to(url: str) -> web.Response:
    return web.Response(status=303, headers={"Location": url, "Cache-Control": "no-store"})
