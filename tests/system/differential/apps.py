"""The same three operations in several frameworks, each told of in the field `X-Ran`; everything else runs nothing.

`python -m tests.system.differential.apps NAME PORT` serves one on 127.0.0.1. A framework that is not installed is no error of the caller's.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable
from importlib.util import find_spec
from typing import Any

from aiohttp import web

PAY, REFUND, CHANGE = "pay", "refund", "change"
"""POST /v1/pay, POST /v1/{id}/refund, PATCH /v1/orders/{id}."""


def serve_aiohttp(port: int) -> None:
    def ran(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(headers={"X-Ran": name})

        return answer

    app = web.Application()
    app.router.add_post("/v1/pay", ran(PAY))
    app.router.add_post("/v1/{id}/refund", ran(REFUND))
    app.router.add_patch("/v1/orders/{id}", ran(CHANGE))
    app.router.add_route("*", "/{rest:.*}", ran(""))
    web.run_app(app, host="127.0.0.1", port=port, print=None)


def flask_app() -> Any:
    import flask

    app = flask.Flask("differential")
    app.add_url_rule("/v1/pay", PAY, lambda: ("", {"X-Ran": PAY}), methods=["POST"])
    app.add_url_rule("/v1/<number>/refund", REFUND, lambda number: ("", {"X-Ran": REFUND}), methods=["POST"])
    app.add_url_rule("/v1/orders/<number>", CHANGE, lambda number: ("", {"X-Ran": CHANGE}), methods=["PATCH"])
    return app


def django_app() -> Any:
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    def ran(name: str, method: str) -> Callable[..., HttpResponse]:
        def answer(request: HttpRequest, **_: str) -> HttpResponse:
            return HttpResponse(headers={"X-Ran": name} if request.method == method else {})

        return answer

    patterns = [
        path("v1/pay", ran(PAY, "POST")),
        path("v1/<id>/refund/", ran(REFUND, "POST")),
        path("v1/orders/<id>", ran(CHANGE, "PATCH")),
    ]
    settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="none", ROOT_URLCONF=type("urls", (), {"urlpatterns": patterns}), MIDDLEWARE=[])
    django.setup()
    return get_wsgi_application()


def bottle_app() -> Any:
    import bottle

    app = bottle.Bottle()

    def ran(name: str) -> Callable[..., str]:
        def answer(**_: str) -> str:
            bottle.response.set_header("X-Ran", name)
            return ""

        return answer

    app.route("/v1/pay", "POST", ran(PAY))
    app.route("/v1/<id>/refund", "POST", ran(REFUND))
    app.route("/v1/orders/<id>", "PATCH", ran(CHANGE))
    return app


def falcon_app() -> Any:
    import falcon

    class Ran:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_post(self, _: Any, response: Any, **__: str) -> None:
            response.set_header("X-Ran", self.name)

    class Changed:
        def on_patch(self, _: Any, response: Any, **__: str) -> None:
            response.set_header("X-Ran", CHANGE)

    app = falcon.App()
    app.req_options.strip_url_path_trailing_slash = True
    app.add_route("/v1/pay", Ran(PAY))
    app.add_route("/v1/{id}/refund", Ran(REFUND))
    app.add_route("/v1/orders/{id}", Changed())
    return app


def starlette_app() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    def ran(name: str) -> Callable[[Any], Awaitable[Response]]:
        async def answer(_: Any) -> Response:
            return Response(headers={"X-Ran": name})

        return answer

    return Starlette(
        routes=[
            Route("/v1/pay", ran(PAY), methods=["POST"]),
            Route("/v1/{id}/refund", ran(REFUND), methods=["POST"]),
            Route("/v1/orders/{id}", ran(CHANGE), methods=["PATCH"]),
        ]
    )


def serve_cherrypy(port: int) -> None:
    import cherrypy

    class V1:
        @cherrypy.expose
        def pay(self, **_: str) -> bytes:
            cherrypy.response.headers["X-Ran"] = PAY if cherrypy.request.method == "POST" else ""
            return b""

    class Root:
        v1 = V1()

    cherrypy.config.update({"server.socket_host": "127.0.0.1", "server.socket_port": port, "environment": "production"})
    cherrypy.quickstart(Root(), "/")


def serve_tornado(port: int) -> None:
    import asyncio

    from tornado.web import Application, RequestHandler

    class Post(RequestHandler):
        def initialize(self, name: str) -> None:
            self.name = name

        def post(self, *_: str) -> None:
            self.set_header("X-Ran", self.name)

    class Patch(RequestHandler):
        def patch(self, *_: str) -> None:
            self.set_header("X-Ran", CHANGE)

    async def main() -> None:
        app = Application(
            [("/v1/pay/?", Post, {"name": PAY}), (r"/v1/([^/]+)/refund", Post, {"name": REFUND}), (r"/v1/orders/([^/]+)", Patch)]
        )
        app.listen(port, "127.0.0.1")
        await asyncio.Event().wait()

    asyncio.run(main())


def serve_werkzeug(port: int) -> None:
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", port, flask_app(), threaded=True)


def serve_waitress(app: Any, port: int) -> None:
    import waitress

    waitress.serve(app, host="127.0.0.1", port=port, threads=2)


def serve_gunicorn(app: Any, port: int) -> None:
    from gunicorn.app.base import BaseApplication

    class Server(BaseApplication):
        def load_config(self) -> None:
            for name, value in {
                "bind": f"127.0.0.1:{port}",
                "workers": 1,
                "threads": 2,
                "worker_class": "gthread",
                "loglevel": "error",
            }.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            return app

    Server().run()


def serve_uvicorn(app: Any, port: int, http: str) -> None:
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", http=http)


SERVERS: dict[str, tuple[Iterable[str], Callable[[int], None]]] = {
    "aiohttp": ((), serve_aiohttp),
    "flask+werkzeug": (("flask",), serve_werkzeug),
    "flask+gunicorn": (("flask", "gunicorn"), lambda port: serve_gunicorn(flask_app(), port)),
    "bottle+waitress": (("bottle", "waitress"), lambda port: serve_waitress(bottle_app(), port)),
    "starlette+uvicorn": (("starlette", "uvicorn"), lambda port: serve_uvicorn(starlette_app(), port, "h11")),
    "starlette+httptools": (("starlette", "uvicorn"), lambda port: serve_uvicorn(starlette_app(), port, "httptools")),
    "django+gunicorn": (("django", "gunicorn"), lambda port: serve_gunicorn(django_app(), port)),
    "falcon+waitress": (("falcon", "waitress"), lambda port: serve_waitress(falcon_app(), port)),
    "cherrypy": (("cherrypy",), serve_cherrypy),
    "tornado": (("tornado",), serve_tornado),
}
"""By name: the modules that it needs, and how it serves on a port."""


def installed() -> list[str]:
    """The names of those that can be served here."""
    return [name for name, (needed, _) in SERVERS.items() if all(find_spec(module) for module in needed)]


if __name__ == "__main__":
    SERVERS[sys.argv[1]][1](int(sys.argv[2]))
