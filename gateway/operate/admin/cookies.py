"""The cookies of browsers that log in, and what begins and ends their sessions. The console's pages call these; the guard does the rest.

Cookies are `HttpOnly` and `SameSite=Strict`; under TLS they are `Secure` and have the prefix `__Host-`, so that no other host of the same
domain, and no page in plain HTTP, can set them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.core.sessions import Session
from gateway.core.user_token import is_token
from gateway.operate.admin.entrance import Entrance

if TYPE_CHECKING:
    from gateway.operate.admin.provider import Pending

SESSION = web.RequestKey("session", Session)
"""The session of a request, where it has one."""
FORM_ID = web.RequestKey("form_id", bytes)
"""To what the CSRF token of this request's forms is bound: its session, or the cookie of the login page."""

_SESSION, _BEFORE, _PENDING = "idempotency-gateway-session", "idempotency-gateway-login", "idempotency-gateway-oidc"


@dataclass(frozen=True, slots=True)
class Throttled:
    """Too many logins have failed: none is judged for so many seconds."""

    seconds: float


def form_token(entrance: Entrance, request: web.Request) -> str:
    """What each form of this answer carries in the field `csrf`, or a script in `X-CSRF-Token`."""
    return entrance.csrf_token(request[FORM_ID])


def log_in(entrance: Entrance, request: web.Request, token: str) -> Session | Throttled | None:
    """The session that this token begins, to be given to `begin_session`; None: it is nobody's. Failures are counted, save those of tokens
    that a command made: nobody can guess one, and a stranger's failures would lock out who has one.
    """
    token, address = token.strip(), entrance.address_of(request)
    if is_token(token):
        return entrance.login(token)
    wait = entrance.throttle.wait(address)
    if wait > 0.0:
        return Throttled(wait)
    session = entrance.login(token)
    if session is None:
        entrance.throttle.failed(address)
    return session


def begin_session(entrance: Entrance, request: web.Request, response: web.StreamResponse, session: Session) -> None:
    """Have the browser keep the session."""
    _set(entrance, request, response, _SESSION, entrance.write(session))


async def end_session(entrance: Entrance, request: web.Request, response: web.StreamResponse) -> None:
    """Log out: the cookie is good for nothing any more, and the browser drops it."""
    if SESSION in request:
        await entrance.end(request[SESSION])
    name = _name(entrance, request, _SESSION)
    response.del_cookie(name, secure=_secure(entrance, request), httponly=True, samesite="Strict")


def read_session(entrance: Entrance, request: web.Request) -> Session | None:
    """The session whose cookie the request carries, if it lives."""
    return entrance.read(request.cookies.get(_name(entrance, request, _SESSION), ""))


def keep_up(entrance: Entrance, request: web.Request, response: web.StreamResponse) -> None:
    """Have the cookie say that the session was seen now, unless the answer is out, or begins or ends one itself. What a page's script asks
    for by itself says nothing of a person.
    """
    if request.headers.get("Sec-Fetch-Dest") == "empty":
        return
    renewed = entrance.renewed(request[SESSION])
    if renewed is not None and not response.prepared and _name(entrance, request, _SESSION) not in response.cookies:
        begin_session(entrance, request, response, renewed)


def before_login(entrance: Entrance, request: web.Request) -> str:
    """The cookie of the login page, by which its form is known; empty if the request has none."""
    return request.cookies.get(_name(entrance, request, _BEFORE), "")


def set_before_login(entrance: Entrance, request: web.Request, response: web.StreamResponse, value: str) -> None:
    if not response.prepared:
        _set(entrance, request, response, _BEFORE, value)


def set_pending(entrance: Entrance, request: web.Request, response: web.StreamResponse, pending: "Pending") -> None:
    """Have the browser keep a login at the provider. It comes back from another site: this cookie alone is `SameSite=Lax`."""
    _set(entrance, request, response, _PENDING, entrance.write_pending(pending), same_site="Lax")


def read_pending(entrance: Entrance, request: web.Request) -> "Pending | None":
    return entrance.read_pending(request.cookies.get(_name(entrance, request, _PENDING), ""))


def drop_pending(entrance: Entrance, request: web.Request, response: web.StreamResponse) -> None:
    name = _name(entrance, request, _PENDING)
    response.del_cookie(name, secure=_secure(entrance, request), httponly=True, samesite="Lax")


def _set(
    entrance: Entrance, request: web.Request, response: web.StreamResponse, name: str, value: str, *, same_site: str = "Strict"
) -> None:
    name, secure = _name(entrance, request, name), _secure(entrance, request)
    response.set_cookie(name, value, path="/", secure=secure, httponly=True, samesite=same_site)


def _name(entrance: Entrance, request: web.Request, name: str) -> str:
    return f"__Host-{name}" if _secure(entrance, request) else name


def _secure(entrance: Entrance, request: web.Request) -> bool:
    """Whether the browser speaks TLS, to us or to the proxy that the configuration tells of."""
    return request.secure if entrance.url is None else entrance.url.startswith("https:")
