"""Who did what, and why: the newest first."""

from aiohttp import web

from gateway.console.visits import Visit
from gateway.operate.operations import LINE_MAX

PAGE = 100


async def show_audit(visit: Visit) -> web.Response:
    """A page of the audit table."""
    before = visit.request.query.get("before", "")
    known = before.isascii() and before.isdecimal() and len(before) < 19
    lines = await visit.desk.audit_last(before=int(before) if known else LINE_MAX, limit=PAGE)
    return await visit.page(
        "audit.html",
        lines=lines,
        following=f"/console/audit?before={lines[-1].id}" if len(lines) == PAGE else None,
        first=not known,
    )
