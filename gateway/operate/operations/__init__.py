"""What people may see of records and do to them: one service for the admin API and the commands. It knows no driver."""

from gateway.operate.operations.asking import Asker
from gateway.operate.operations.bodies import never_stored
from gateway.operate.operations.callers import ANYBODY, Caller, Forbidden, Grounds
from gateway.operate.operations.desk import Desk
from gateway.operate.operations.ids import parse_record_id, record_id_text, short_id_text
from gateway.operate.operations.inputs import AMOUNTS, LINE_MAX, PAGE_MAX, STATES, By, Wrong, read_instant
from gateway.operate.operations.outcomes import Changed, Conflict, Done, NotFound, Proposed, TooEarly
from gateway.operate.operations.service import Operator, Told
from gateway.operate.operations.views import (
    asked_json,
    audit_json,
    changed_json,
    listed_json,
    page_json,
    proposal_json,
    shown_json,
    waiting_json,
)

__all__ = [
    "AMOUNTS",
    "ANYBODY",
    "LINE_MAX",
    "PAGE_MAX",
    "STATES",
    "Asker",
    "By",
    "Caller",
    "Changed",
    "Conflict",
    "Desk",
    "Done",
    "Forbidden",
    "Grounds",
    "NotFound",
    "Operator",
    "Proposed",
    "Told",
    "TooEarly",
    "Wrong",
    "asked_json",
    "audit_json",
    "changed_json",
    "listed_json",
    "never_stored",
    "page_json",
    "parse_record_id",
    "proposal_json",
    "read_instant",
    "record_id_text",
    "short_id_text",
    "shown_json",
    "waiting_json",
]
