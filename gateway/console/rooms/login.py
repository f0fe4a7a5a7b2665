"""In and out."""

from aiohttp import web

from gateway.console.rendering import go, leave
from gateway.console.visits import Visit
from gateway.core.sessions import local_target
from gateway.operate.admin.cookies import Throttled, begin_session, end_session, log_in
from gateway.operate.admin.oidc import provider_logout

_FIRST = "/console/now"
_FAILED = {
    "failed": "Your organisation's sign-in did not succeed. Try again.",
    "no-role": "Your groups there give you no role here.",
    "away": "Your organisation's sign-in does not answer.",
    "expired": "That took too long. Try again.",
    "throttled": "Too many sign in at this moment. Wait, then try again.",
}


async def show_login(visit: Visit) -> web.Response:
    """The form. Those who are in go on."""
    if visit.caller is not None:
        return go(_next(visit.request.query.get("next", "")))
    return await _page(visit, visit.request.query.get("next", ""))


async def sign_in(visit: Visit) -> web.Response:
    """A session for a user's token."""
    form = await visit.form()
    entrance = visit.console.entrance
    session = log_in(entrance, visit.request, form.text("token"))
    if session is None:
        return await _page(visit, form.text("next"), 401, mistakes={"token": "No user has this token."})
    if isinstance(session, Throttled):
        seconds = max(1, round(session.seconds))
        page = await _page(visit, form.text("next"), 429, mistakes={"token": f"Too many have failed. Wait {seconds} s, then try again."})
        page.headers["Retry-After"] = str(seconds)
        return page
    response = go(_next(form.text("next")))
    begin_session(entrance, visit.request, response, session)
    return response


async def sign_out(visit: Visit) -> web.Response:
    """End the session: its cookie is good for nothing any more."""
    elsewhere = await provider_logout(visit.console.entrance)
    response = go("/console/login") if elsewhere is None else leave(elsewhere)
    await end_session(visit.console.entrance, visit.request, response)
    return response


def _next(given: str) -> str:
    target = local_target(given, "/console")
    return _FIRST if target == "/console" else target


async def _page(visit: Visit, target: str, status: int = 200, **values: object) -> web.Response:
    failed = _FAILED.get(visit.request.query.get("error", ""))
    provider = visit.console.entrance.provider is not None
    return await visit.page("login.html", status, **{"mistakes": {}, **values}, target=target, failed=failed, provider=provider)
