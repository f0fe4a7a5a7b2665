"""One request to the console: who asks, what they may, and the page that answers. Whatever goes wrong ends in a page, too."""

import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from aiohttp import web

from gateway.config import Config
from gateway.console.figures import Meter
from gateway.console.forms import Form, read_form
from gateway.console.rendering import go, page
from gateway.core.policy import Policy
from gateway.core.roles import NEEDED, Action
from gateway.operate.admin import Entrance
from gateway.operate.admin.cookies import FORM_ID, form_token
from gateway.operate.admin.guard import CALLER
from gateway.operate.operations import Caller, Desk, Forbidden, Grounds, Operator, Wrong
from gateway.ports import StoreUnavailable

_ROOMS = (
    ("now", "Now"),
    ("dead-letters", "Dead letters"),
    ("proposals", "Proposals"),
    ("records", "Records"),
    ("routes", "Routes"),
    ("audit", "Audit"),
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Console:
    """What the pages show and do. `config` is the configuration in force. `metrics` and `readiness` as in `AdminPorts`."""

    config: Callable[[], Config]
    entrance: Entrance
    operator: Operator | None
    readiness: Callable[[], Awaitable[Mapping[str, str | None]]]
    metrics: Callable[[str], tuple[bytes, str]]
    meter: Meter

    @property
    def name(self) -> str:
        """What the gateway calls itself."""
        return self.config().name

    def policy(self, route_id: str) -> Policy | None:
        """The policy of a guarded route of the map."""
        return next((route.policy for route in self.config().routes if route.id == route_id), None)

    def guarded(self) -> Sequence[str]:
        """The ids of the guarded routes."""
        return sorted(route.id for route in self.config().routes if route.policy is not None)

    def asks(self, route_id: str) -> bool:
        """Whether a person can have the upstream asked about a record of this route."""
        return self.operator is not None and self.operator.asks(route_id)

    @staticmethod
    def now() -> dt.datetime:
        """The time of day, by which lists say how long ago something was."""
        return dt.datetime.now(dt.UTC)  # noqa: TID251 - for people's eyes alone; what counts is judged by the database's clock


@dataclass(frozen=True, slots=True)
class Visit:
    """A request with its visitor."""

    request: web.Request
    console: Console

    async def page(self, template: str, status: int = 200, **values: object) -> web.Response:
        """A page, with what every page has."""
        known = {"visit": self, "console": self.console, "path": self.request.path, "now": self.console.now()}
        return await page(template, status, **{**known, **values})

    @property
    def caller(self) -> Caller | None:
        """Who asks; None at the login."""
        return self.request.get(CALLER)

    @property
    def desk(self) -> Desk:
        """What this visitor may see and do. Raises 503 where the listener has no way to the records."""
        if self.console.operator is None:
            raise web.HTTPServiceUnavailable
        return Desk(self.console.operator, self.request[CALLER])

    @property
    def named(self) -> bool:
        """Whether the gateway knows who this is. Else each form asks for a name."""
        return self.caller is not None and self.caller.name is not None

    def may(self, action: str) -> bool:
        """Whether the visitor's role is high enough."""
        return self.caller is not None and self.caller.may(Action(action))

    @staticmethod
    def needed(action: str) -> str:
        """The role that it takes."""
        return NEEDED[Action(action)].value

    async def form(self) -> Form:
        """What was posted. That it is of this visitor's session is the guard's to see."""
        return await read_form(self.request)

    def grounds(self, form: Form) -> Grounds:
        """Why, and where nothing else tells, as whom. Raises `Wrong`."""
        return Grounds(form.text("reason").strip(), None if self.named else form.text("actor").strip())

    @property
    def captures(self) -> Sequence[str]:
        """The names of the values that some route captures."""
        policies = [route.policy for route in self.console.config().routes if route.policy is not None]
        return sorted({name for policy in policies if policy.reconcile is not None for name, _ in policy.reconcile.capture})

    @property
    def sees_values(self) -> bool:
        """Whether captured values, targets and answer fields are for this visitor: where they are encrypted, not for all."""
        return not self.console.config().encryption.answers or self.may(Action.SEE_BODY)

    @property
    def rooms(self) -> Sequence[tuple[str, str]]:
        """The last parts of the rooms' addresses, and their names. Proposals there are only where some verdict needs a second person."""
        second = self.console.config().admin.second_approval is not None
        return [room for room in _ROOMS if second or room[0] != "proposals"]

    @property
    def csrf(self) -> str:
        """What each form of this visitor carries."""
        return form_token(self.console.entrance, self.request) if FORM_ID in self.request else ""


Room = Callable[[Visit], Awaitable[web.Response]]


def opened(console: Console, room: Room) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A room as a handler, with a page for whatever goes wrong."""

    async def handle(request: web.Request) -> web.StreamResponse:
        visit = Visit(request, console)
        try:
            return await room(visit)
        except Wrong as wrong:
            return await failed(visit, 400, "That cannot be right", f"{wrong.field}: {wrong.why}.")
        except Forbidden as refusal:
            return await failed(visit, 403, "Your role does not allow that", str(refusal))
        except StoreUnavailable as error:
            return await failed(visit, 503, "Postgres does not answer", _away(error, request))
        except web.HTTPException as refusal:
            return await failed(visit, refusal.status, *SAID.get(refusal.status, ("Something is wrong", refusal.reason)))
        except Exception:
            _log.exception("A page of the console failed")
            return await failed(visit, 500, "This page failed", "The gateway's log says why.")

    return handle


SAID = {
    401: ("Your session has ended", "Sign in, and do it again. Nothing was changed."),
    403: ("This form is not of your session", "Open the page again, and repeat what you wanted to do. Nothing was changed."),
    404: ("There is no such page", "A record may have expired, or a person has deleted it."),
    405: ("This page takes no such request", "Use the links and forms of the pages."),
    413: ("That is too much", "A form here has at most 16 MiB; that of the login 64 KiB."),
    415: ("That is no form", "Use the links and forms of the pages."),
    421: ("This is not the address of the console", "Without users it is for this machine alone: use localhost or 127.0.0.1."),
    503: ("There is no way to the records", "This listener shows health and metrics alone."),
}


def _away(error: StoreUnavailable, request: web.Request) -> str:
    if error.may_have_landed and request.method == "POST":
        return f"{error}. The change may have been made: look at the record before you repeat it."
    return f"{error}. Nothing was changed. Try again in a moment."


async def refused(visit: Visit, refusal: web.StreamResponse) -> web.StreamResponse:
    """The page in place of a problem document. Fields that belong to the refusal stay."""
    title, text = SAID.get(refusal.status, ("Something is wrong", "The gateway's log may say more."))
    path = visit.request.path.removesuffix("/ask").removesuffix("/body")
    again = f"/console/login?{urlencode({'next': path})}" if refusal.status == 401 else None
    page = await visit.page("problem.html", refusal.status, title=title, text=text, again=again)
    for name in ("Allow", "Retry-After", "WWW-Authenticate", "Set-Cookie"):
        for value in refusal.headers.getall(name, ()):
            page.headers.add(name, value)
    return page


async def failed(visit: Visit, status: int, title: str, text: str) -> web.Response:
    """A page that says what went wrong."""
    return await visit.page("problem.html", status, title=title, text=text, again=None)


def to(path: str, /, **query: str) -> web.Response:
    """On to a page, by GET."""
    return go(f"{path}?{urlencode(query)}" if query else path)
