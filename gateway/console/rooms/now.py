"""What the gateway does at this moment."""

import asyncio

from aiohttp import web

from gateway.console.figures import Figures
from gateway.console.visits import Visit


async def show_now(visit: Visit) -> web.Response:
    """Figures, stores, upstreams, and what waits for a person. The script asks for it again and again."""
    figures, checks = await asyncio.gather(read_figures(visit), visit.console.readiness())
    return await visit.page(
        "now.html",
        figures=figures,
        checks=checks,
        redis=visit.console.config().redis is not None,
        waiting=[route for route in figures.routes if route.unknown or route.dead_letters or route.pending],
    )


async def read_figures(visit: Visit) -> Figures:
    """In a thread: with thousands of series it takes tens of milliseconds."""

    def work() -> Figures:
        exposition, _ = visit.console.metrics("")
        return visit.console.meter.figures(exposition.decode())

    return await asyncio.to_thread(work)
