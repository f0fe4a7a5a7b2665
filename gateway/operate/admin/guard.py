"""Lets requests in, and puts the caller on them. What is not open to all needs a token, a session, or to come from this machine.

    /admin/v1/…       programs: a bearer token. The console's own scripts: its session, and for all but reads its CSRF token, too.
    /console/…        browsers: a session. Without one a read is sent to the login, and all else is refused.
    everything else   open: health, metrics, the index

No handler can forget it: the guard comes before the routes, and goes by the path alone.
"""

import secrets
from collections.abc import Mapping
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.core.sessions import ID_SIZE
from gateway.operate.admin.callers import refused
from gateway.operate.admin.cookies import FORM_ID, SESSION, before_login, keep_up, read_session, set_before_login
from gateway.operate.admin.entrance import Entrance
from gateway.operate.admin.responses import problem
from gateway.operate.operations import ANYBODY, Caller

API, CONSOLE = "/admin/v1/", "/console"
LOGIN = f"{CONSOLE}/login"
STATIC, PROVIDER = f"{CONSOLE}/static/", f"{CONSOLE}/oidc/"
"""Below these, and at the login, the console needs no session."""

CSRF_FIELD, CSRF_HEADER = "csrf", "X-CSRF-Token"
CALLER = web.RequestKey("caller", Caller)

BEFORE_LOGIN = 64 * 1024
"""Bytes of a form that is read of somebody whom nothing names yet."""

_READS = frozenset({"GET", "HEAD"})
_OWN_PAGES = frozenset({"same-origin", "none"})
_ANYBODYS = b"this machine"


def guard(entrance: Entrance) -> Middleware:
    """The middleware."""

    @web.middleware
    async def let_in(request: web.Request, handler: Handler) -> web.StreamResponse:
        api, console = request.path.startswith(API), request.path == CONSOLE or request.path.startswith(f"{CONSOLE}/")
        if not api and not console:
            return await handler(request)
        if not entrance.guarded:
            return await _of_this_machine(entrance, request, handler, console=console)
        if "Cookie" in request.headers:
            await entrance.keep_up()
        return await (_program if api else _browser)(entrance, request, handler)

    return let_in


def caller_of(request: web.Request) -> Caller:
    """Who asks. Only on paths that the guard guards."""
    return request[CALLER]


async def _of_this_machine(entrance: Entrance, request: web.Request, handler: Handler, *, console: bool) -> web.StreamResponse:
    refusal = refused(request, page=console)
    if refusal is not None:
        return refusal
    request[CALLER], request[FORM_ID] = ANYBODY, _ANYBODYS
    if console and not await _is_form_of_ours(entrance, request):
        return _no_form_of_ours()
    return await handler(request)


async def _program(entrance: Entrance, request: web.Request, handler: Handler) -> web.StreamResponse:
    if "Authorization" in request.headers:
        scheme, _, credential = request.headers["Authorization"].partition(" ")
        caller = entrance.of_token(credential.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            return _unauthorized()
        request[CALLER] = caller
        return await handler(request)
    refusal = _take_session(entrance, request)
    if refusal is not None:
        return refusal
    if _of_another_site(request):
        return problem(403, "A session is for the console's own pages.")
    if request.method not in _READS and not entrance.is_csrf_token(request.headers.get(CSRF_HEADER, ""), request[FORM_ID]):
        return problem(403, f"With a session all but reads need its CSRF token in {CSRF_HEADER}; programs send a bearer token instead.")
    return await handler(request)


def _unauthorized() -> web.Response:
    response = problem(401, "Send the admin token: Authorization: Bearer <token>.")
    response.headers["WWW-Authenticate"] = 'Bearer realm="admin"'
    return response


def _take_session(entrance: Entrance, request: web.Request) -> web.Response | None:
    """Put the session's caller on the request. The refusal, if there is none."""
    session = read_session(entrance, request)
    caller = None if session is None else entrance.of_session(session)
    if session is None or caller is None:
        return _unauthorized()
    request[CALLER], request[SESSION], request[FORM_ID] = caller, session, session.id
    return None


async def _browser(entrance: Entrance, request: web.Request, handler: Handler) -> web.StreamResponse:
    outside = _take_session(entrance, request) is not None
    if outside and not (request.path == LOGIN or request.path.startswith((STATIC, PROVIDER))):
        return _to_login(request)
    if outside:
        return await _before_login(entrance, request, handler)
    if not await _is_form_of_ours(entrance, request):
        return _no_form_of_ours()
    response = await handler(request)
    keep_up(entrance, request, response)
    return response


def _to_login(request: web.Request) -> web.Response:
    """A browser leaves a `SameSite=Strict` cookie out when a page of another site, such as that of an alert, links here: it is told to ask
    once more, and the second time the page that links is ours.
    """
    if request.method not in _READS:
        return problem(401, "The session has ended. Log in, and do it again.")
    fields = {"Cache-Control": "no-store"}
    if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.headers.get("Sec-Fetch-Mode") == "navigate":
        return web.Response(text="One moment.\n", headers={**fields, "Refresh": f"0; url={request.raw_path}"})
    return web.Response(status=303, headers={**fields, "Location": f"{LOGIN}?next={quote(request.raw_path, safe='/')}"})


async def _before_login(entrance: Entrance, request: web.Request, handler: Handler) -> web.StreamResponse:
    """The login's form is bound to a cookie of its own: no other page logs a browser in, as somebody of its choice."""
    before = before_login(entrance, request)
    value = before or secrets.token_hex(ID_SIZE)
    request[FORM_ID] = value.encode("utf-8", "surrogateescape")
    if request.method not in _READS:
        await _read_form(request)
    if request.path == LOGIN and not (before and await _is_form_of_ours(entrance, request)) and request.method not in _READS:
        return _no_form_of_ours()
    response = await handler(request)
    if request.path == LOGIN and not before:
        set_before_login(entrance, request, response, value)
    return response


def _of_another_site(request: web.Request) -> bool:
    """Whether the browser says that a page of another site, or of another origin of this one, has sent it."""
    return request.headers.get("Sec-Fetch-Site", "same-origin") not in _OWN_PAGES


async def _is_form_of_ours(entrance: Entrance, request: web.Request) -> bool:
    """Whether the request only reads, or carries the CSRF token of its session and no browser says that another site's page sent it. Raises
    aiohttp's errors, as `_read_form`.
    """
    if request.method in _READS:
        return True
    if _of_another_site(request):
        return False
    form, given = await _read_form(request), request.headers.get(CSRF_HEADER)
    if given is None:
        field = form.get(CSRF_FIELD)
        given = field if isinstance(field, str) else ""
    return entrance.is_csrf_token(given, request[FORM_ID])


async def _read_form(request: web.Request) -> Mapping[str, object]:
    """The form, kept by the request for all who ask for it. Raises 411, 413 and 415.

    A body may name any charset that Python knows, each part of a multipart body one of its own, and some of them, such as punycode, take
    time that grows with the square of the length: only UTF-8 is read.
    """
    if request.content_type.startswith("multipart/") or (request.charset or "utf-8").lower() != "utf-8":
        raise web.HTTPUnsupportedMediaType
    if CALLER not in request and request.body_exists:
        if request.content_length is None:
            raise web.HTTPLengthRequired
        if request.content_length > BEFORE_LOGIN:
            raise web.HTTPRequestEntityTooLarge(BEFORE_LOGIN, request.content_length)
    try:
        return await request.post()
    except UnicodeDecodeError:
        raise web.HTTPUnsupportedMediaType from None


def _no_form_of_ours() -> web.Response:
    return problem(403, "This form is not of this session's pages, or its session has ended. Go back, load the page again, and repeat it.")
