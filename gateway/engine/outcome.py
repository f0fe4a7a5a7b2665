"""What an attempt came to, as the engine has it: a whole response, or why there is none."""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from gateway.core import decision as core
from gateway.core.decision import Label
from gateway.core.headers import first
from gateway.core.model import Headers, Lease, StoredResponse
from gateway.core.policy import HintedOutcome
from gateway.ports import InDoubt, NotSent, Spool


@dataclass(slots=True)  # not frozen: one for every request, and that would cost three times as much
class Response:
    """A whole response. `headers` are the client's, `kept` those of the record. `body` is None once it outgrew what is kept.

    `hinted` and `retention` are what the upstream says of it, where the route trusts its word; a retention of 0 keeps no body.
    """

    status: int
    reason: bytes
    headers: Headers
    kept: Headers
    body: bytes | Spool | None
    length: int
    digest: bytes
    hinted: HintedOutcome | None = None
    retention: float | None = None

    def stored(self, body: bytes | None) -> StoredResponse:
        """As its record keeps it, with this body."""
        return StoredResponse(self.status, self.reason, self.kept, body, self.length, self.digest)


Outcome: TypeAlias = Response | NotSent | InDoubt


def as_core(outcome: Outcome) -> core.Outcome:
    """The outcome in the words of the rules that judge it."""
    match outcome:
        case Response(status):
            located = status not in core.REDIRECTS or bool(first(outcome.headers, b"location"))
            return core.Responded(status, outcome.hinted, located)
        case NotSent():
            return core.NotSent(outcome.reason.value)
        case InDoubt():
            return core.InDoubt(outcome.reason.value)
        case _:
            assert_never(outcome)


def label_of(lease: Lease) -> Label:
    """What an attempt under this lease is counted as."""
    if lease.reexecution:
        return Label.REEXECUTE
    return Label.EXECUTE if lease.attempt == 1 else Label.EXECUTE_RETRY
