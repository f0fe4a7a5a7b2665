"""What the gateway does at this moment."""

import asyncio

from aiohttp import web

from gateway.console.figures import Figures
from gateway.console.visits import Visit
from gateway.ports import StoreUnavailable

COUNTED = 100
"""How many proposals are looked at to count them."""


async def show_now(visit: Visit) -> web.Response:
    """Figures, stores, upstreams, and what waits for a person. The script asks for it again and again."""
    figures, checks, proposals = await asyncio.gather(read_figures(visit), visit.console.readiness(), _proposals(visit))
    return await visit.page(
        "now.html",
        figures=figures,
        checks=checks,
        proposals=proposals,
        redis=visit.console.config().redis is not None,
        waiting=[route for route in figures.routes if route.unknown or route.dead_letters or route.pending],
    )


async def _proposals(visit: Visit) -> str | None:
    """How many verdicts wait for a second person; None where none needs one, or Postgres cannot be asked."""
    if visit.console.config().admin.second_approval is None or visit.console.operator is None:
        return None
    try:
        count = len(await visit.desk.proposals(limit=COUNTED))
    except StoreUnavailable:
        return None
    return f"{COUNTED - 1}+" if count == COUNTED else str(count)


async def read_figures(visit: Visit) -> Figures:
    """In a thread: with thousands of series it takes tens of milliseconds."""

    def work() -> Figures:
        exposition, _ = visit.console.metrics("")
        return visit.console.meter.figures(exposition.decode())

    return await asyncio.to_thread(work)
