"""Puts the console on the admin listener."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.console.rendering import static_file
from gateway.console.rooms.audit import show_audit
from gateway.console.rooms.dead_letters import list_dead_letters, requeue_many
from gateway.console.rooms.login import show_login, sign_in, sign_out
from gateway.console.rooms.now import show_now
from gateway.console.rooms.proposals import answer_proposal, list_proposals
from gateway.console.rooms.records import list_records, show_body, show_record
from gateway.console.rooms.routes import show_routes
from gateway.console.rooms.verdicts import ask_upstream, give_verdict, show_verdict
from gateway.console.security import PRIVATE
from gateway.console.visits import Console, Visit, opened, refused, to
from gateway.console.words import PATHS

_RECORD = "/console/records/{id}"
_CHANGE = f"{_RECORD}/{{change:{'|'.join(PATHS)}}}"


def mount(app: web.Application, console: Console) -> None:
    """Add the pages under /console to an admin application that has not started yet."""
    app.middlewares.insert(0, _as_pages(console))
    app.add_routes(_routes(console))


def _routes(console: Console) -> list[web.RouteDef]:
    rooms = [
        web.get("/console", opened(console, _enter)),
        web.get("/console/login", opened(console, show_login)),
        web.post("/console/login", opened(console, sign_in)),
        web.post("/console/logout", opened(console, sign_out)),
        web.get("/console/now", opened(console, show_now)),
        web.get("/console/records", opened(console, list_records)),
        web.get(_RECORD, opened(console, show_record)),
        web.post(f"{_RECORD}/body", opened(console, show_body)),
        web.post(f"{_RECORD}/ask", opened(console, ask_upstream)),
        web.post(f"{_RECORD}/{{word:approve|reject}}", opened(console, answer_proposal)),
        web.get(_CHANGE, opened(console, show_verdict)),
        web.post(_CHANGE, opened(console, give_verdict)),
        web.get("/console/dead-letters", opened(console, list_dead_letters)),
        web.post("/console/dead-letters", opened(console, requeue_many)),
        web.get("/console/proposals", opened(console, list_proposals)),
        web.get("/console/routes", opened(console, show_routes)),
        web.get("/console/audit", opened(console, show_audit)),
        web.get("/console/{rest:.*}", opened(console, _nothing)),
    ]
    return [web.get("/console/static/{digest}/{name}", _static), *rooms]


def _as_pages(console: Console) -> Middleware:
    """Around all else: what the guard and aiohttp refuse is a page, too, and every answer has the security fields."""

    @web.middleware
    async def as_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if request.path != "/console" and not request.path.startswith("/console/"):
            return response
        if response.content_type == "application/problem+json":
            response = await refused(Visit(request, console), response)
        for name, value in PRIVATE.items():
            response.headers.setdefault(name, value)
        return response

    return as_pages


async def _static(request: web.Request) -> web.Response:
    return static_file(request)


async def _enter(_: Visit) -> web.Response:
    return to("/console/now")


async def _nothing(_: Visit) -> web.Response:
    raise web.HTTPNotFound
