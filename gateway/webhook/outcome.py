"""What became of an event, and the answer to its sender."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import orjson

from gateway.core.model import Headers
from gateway.http.response import WireResponse, reason_of, wire_response

STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "applied": 200,
        "attached": 200,
        "already": 200,
        "duplicate": 200,
        "unmatched": 200,
        "ambiguous": 200,
        "no_verdict": 200,
        "too_early": 200,
        "bad_signature": 401,
        "out_of_tolerance": 400,
        "too_large": 413,
        "malformed": 400,
        "store_unavailable": 503,
    }
)
"""The status for each result. Senders take every 2xx for "delivered" and send all other events again, at growing
intervals, so that

* an event that a repetition cannot change gets 200, also if it changed nothing here: a sender cuts off a receiver that
  refuses for days;
* *store unavailable* asks for the repetition, which brings the event in;
* the gateway refuses forgeries; the sender signs a genuine event with too old a signature anew when it repeats it.
"""

RETRY_AFTER = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one webhook request. `result` is a word of `gateway.observe.sets.WEBHOOK_RESULTS`; `status` None:
    the usual one.

    `detail` is for people at the sender; it reveals nothing about any record. `unread`: the gateway did not read the
    body to its end. `request_id` is that of the attempt that the event was about.
    """

    result: str
    detail: str | None = None
    status: int | None = None
    unread: bool = False
    challenge: bytes | None = None
    request_id: str | None = None


FORGED = Outcome("bad_signature", "The signature is missing, or none of the secrets of this endpoint made it.", challenge=b"Signature")
TOO_OLD = Outcome("out_of_tolerance", "The signature is right, but its time is too far from now: it is old, or one of the clocks is wrong.")
AWAY = Outcome("store_unavailable", "The event could not be taken now. Send it again.")
NOT_POST = Outcome("malformed", "Events are sent by POST.", 405)
NOT_WHOLE = Outcome("malformed")
SLOW = Outcome("malformed", "The body took too long to arrive.", 408, unread=True)
TOO_LARGE = Outcome("too_large", "The event is larger than this endpoint takes.", unread=True)
NOWHERE = Outcome("malformed", "There is no webhook endpoint here.", 404, unread=True)
NO_EVENT = Outcome("malformed", "The event has no id, or is no JSON text that can be read in one way only.")


def respond(outcome: Outcome, date: bytes, *, close: bool = False) -> WireResponse:
    """The answer: a small JSON object."""
    status = STATUSES[outcome.result] if outcome.status is None else outcome.status
    headers: Headers = ((b"Content-Type", b"application/json"), (b"Cache-Control", b"no-store"), (b"Date", date))
    if status == 503:
        headers += ((b"Retry-After", b"%d" % RETRY_AFTER),)
    if status == 405:
        headers += ((b"Allow", b"POST"),)
    if outcome.challenge is not None:
        headers += ((b"WWW-Authenticate", outcome.challenge),)
    told = {"result": outcome.result} | ({} if outcome.detail is None else {"detail": outcome.detail})
    return wire_response(
        status, reason_of(status), headers, orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE), close=close or outcome.unread
    )
