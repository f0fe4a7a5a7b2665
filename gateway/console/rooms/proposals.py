"""Verdicts that wait for a second person: the list of them, and confirming or rejecting one."""

from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web

from gateway.console.rooms.records import key_of, record_page
from gateway.console.searching import told
from gateway.console.visits import Visit, to
from gateway.console.waiting import own_of
from gateway.console.words import TITLES
from gateway.core.roles import Action
from gateway.operate.operations import Conflict, Done, NotFound, TooEarly, Wrong, record_id_text
from gateway.operate.operations.proposals import cursor_after, position_of
from gateway.operate.operations.rules import Change
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.reconciliation import Shown

VERSION_MAX = 2**31 - 1
PAGE = 50


@dataclass(frozen=True, slots=True)
class Line:
    """A proposal as the list shows it. `own`: the visitor has made it."""

    waiting: Waiting
    title: str
    own: bool


async def list_proposals(visit: Visit) -> web.Response:
    """All that wait, those first that have waited longest."""
    cursor = visit.request.query.get("cursor") or None
    found = await visit.desk.proposals(after=position_of(cursor), limit=PAGE)
    following = cursor_after(found, PAGE)
    return await visit.page(
        "proposals.html",
        proposals=[Line(one, TITLES[Change(one.proposal.change)], own_of(visit, one)) for one in found],
        following=f"/console/proposals?{urlencode({'cursor': following})}" if following else None,
        first=cursor is None,
    )


async def answer_proposal(visit: Visit) -> web.Response:
    """Confirm it, as it was seen, or reject it."""
    form, key = await visit.form(), await key_of(visit)
    confirms = visit.request.match_info["word"] == "approve"
    if confirms:
        visit.desk.caller.check(Action.APPROVE)
    shown = await visit.desk.show(key)
    if isinstance(shown, NotFound):
        raise web.HTTPNotFound
    try:
        grounds, proposal = visit.grounds(form), _id(form.text("proposal"))
        version = form.number("version", 1, VERSION_MAX)
    except Wrong as wrong:
        return await record_page(visit, shown, 400, asked_for=told(wrong), given=form.values)
    if confirms:
        changed = await visit.desk.approve(key, proposal, grounds, version=version)
    else:
        changed = await visit.desk.reject(key, proposal, grounds)
    match changed:
        case Done():
            return to(f"/console/records/{record_id_text(key)}", done="approved" if confirms else "rejected")
        case Conflict(_, why):
            return await record_page(visit, await _again(visit, shown), 409, refused=why)
        case TooEarly(until):
            why = f"The upstream may still execute it. It can be confirmed from {until:%Y-%m-%d %H:%M:%S} UTC on."
            return await record_page(visit, await _again(visit, shown), 409, refused=why)
        case _:
            raise web.HTTPNotFound


async def _again(visit: Visit, before: Shown) -> Shown:
    shown = await visit.desk.show(before.listed.key)
    return before if isinstance(shown, NotFound) else shown


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Wrong("proposal", "is no id") from None
