"""Who did what, and why."""

from aiohttp import web

from gateway.console.visits import Visit

PAGE = 100


async def show_audit(visit: Visit) -> web.Response:
    """A page of the audit table."""
    after = visit.request.query.get("after", "0")
    lines = await visit.desk.audit(after=int(after) if after.isdecimal() and len(after) < 19 else 0, limit=PAGE)
    return await visit.page(
        "audit.html",
        lines=lines,
        following=f"/console/audit?after={lines[-1].id}" if len(lines) == PAGE else None,
        first=after == "0",
    )
