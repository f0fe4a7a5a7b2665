"""One of several workers: what its supervisor tells it, in its environment and over its private socket.

`python -m gateway.run.worker` runs one; `gateway.run.supervisor` says what it finds in its environment.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from gateway.config import Config
from gateway.run.server.handover import Unpacked, unpack
from gateway.run.server.reloading import Reloading

CONFIG_FD = "GATEWAY_WORKER_CONFIG_FD"
ACCEPT_SCOPE_CHANGE, ACCEPT_CLOCK = "--accept-scope-change", "--accept-clock"

_unpacked = Unpacked()


def config_of(packed: bytes) -> Config:
    """The configuration in a snapshot that the supervisor packed."""
    return _unpacked.config(unpack(packed))


@dataclass(frozen=True, slots=True)
class Worker:
    """The supervisor's settings for this process: it shares the listening port, and its admin listener is a private
    socket.
    """

    index: int
    socket: str
    parent: int | None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> "Worker":
        """Read the supervisor's settings from the environment."""
        parent = env.get("GATEWAY_WORKER_PARENT_FD")
        return cls(int(env["GATEWAY_WORKER"]), env["GATEWAY_WORKER_SOCKET"], int(parent) if parent else None)


def orders(reloading: Reloading, metrics: Callable[[], bytes]) -> list[web.RouteDef]:
    """What a supervisor asks for when it reloads: prepare (the body is a snapshot), then adopt or abandon. 422 lists
    `errors`.

    And `metrics`, for its scraper.
    """

    async def prepare(request: web.Request) -> web.Response:
        packed = await request.content.read()
        return _answer(await reloading.prepare(lambda: config_of(packed)))

    async def adopt(_: web.Request) -> web.Response:
        return _answer(await reloading.adopt())

    async def abandon(_: web.Request) -> web.Response:
        await reloading.abandon()
        return _answer([])

    async def tell(_: web.Request) -> web.Response:
        return web.Response(body=await asyncio.to_thread(metrics), content_type="application/json")

    return [
        web.post("/worker/prepare", prepare),
        web.post("/worker/adopt", adopt),
        web.post("/worker/abandon", abandon),
        web.get("/worker/metrics", tell),
    ]


def _answer(mistakes: Sequence[str]) -> web.Response:
    return web.json_response({"errors": list(mistakes)}, status=422 if mistakes else 200)
