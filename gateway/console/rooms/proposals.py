"""Verdicts that wait for a second person: what they are, and confirming or rejecting them."""

from dataclasses import dataclass
from uuid import UUID

from aiohttp import web

from gateway.console.answers import Answer, Preview, preview
from gateway.console.rooms.records import key_of, record_page
from gateway.console.searching import told
from gateway.console.visits import Visit, to
from gateway.console.words import TITLES
from gateway.core.roles import Action
from gateway.operate.operations import Conflict, Done, NotFound, TooEarly, Wrong, record_id_text
from gateway.operate.operations.rules import Change
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.reconciliation import Shown
from gateway.runtime.packing import unpack_body

VERSION_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Waits:
    """A proposal as a record's page shows it. `own`: the visitor has made it. `shows` is what a client would get."""

    waiting: Waiting
    title: str
    own: bool
    shows: Preview | None

    @property
    def id(self) -> UUID:
        return self.waiting.proposal.id


async def waits(visit: Visit, shown: Shown) -> Waits | None:
    """The record's proposal, if it has one."""
    found = await visit.desk.proposal(shown.listed.key)
    if found is None:
        return None
    response, shows = found.proposal.response, None
    if response is not None:
        try:
            body = await unpack_body(response)
        except ValueError:  # it cannot be unpacked: its length and digest are in the timeline
            return _waits(visit, found, None)
        shows = preview(Answer(response.status, response.headers, body), shown.listed, visit.console.policy(shown.listed.route_id))
    return _waits(visit, found, shows)


def _waits(visit: Visit, found: Waiting, shows: Preview | None) -> Waits:
    own = visit.caller is not None and visit.caller.identity == found.proposal.identity
    return Waits(found, TITLES[Change(found.proposal.change)], own, shows)


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
