"""The verdict about one record that waits for a second person, as pages show it."""

from dataclasses import dataclass
from uuid import UUID

from gateway.console.answers import Answer, Preview, preview
from gateway.console.visits import Visit
from gateway.console.words import TITLES
from gateway.operate.operations.rules import Change
from gateway.ports.approvals import Proposed as Waiting
from gateway.ports.reconciliation import Shown
from gateway.runtime.packing import unpack_body


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
    return Waits(found, TITLES[Change(found.proposal.change)], own_of(visit, found), shows)


def own_of(visit: Visit, found: Waiting) -> bool:
    """Whether the visitor has proposed it."""
    return visit.caller is not None and visit.caller.identity == found.proposal.identity
