"""What people may see of records and do to them: one service behind the admin API and the commands alike. It knows no driver."""

from gateway.operator.bodies import never_stored
from gateway.operator.ids import parse_record_id, record_id_text
from gateway.operator.inputs import PAGE_MAX, STATES, By, Wrong
from gateway.operator.outcomes import Changed, Conflict, Done, NotFound, TooEarly
from gateway.operator.service import Operator
from gateway.operator.views import audit_json, changed_json, listed_json, page_json, shown_json

__all__ = [
    "PAGE_MAX",
    "STATES",
    "By",
    "Changed",
    "Conflict",
    "Done",
    "NotFound",
    "Operator",
    "TooEarly",
    "Wrong",
    "audit_json",
    "changed_json",
    "listed_json",
    "never_stored",
    "page_json",
    "parse_record_id",
    "record_id_text",
    "shown_json",
]
