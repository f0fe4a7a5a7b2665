"""The table of routes that `check` prints."""

from pathlib import Path

from gateway.config import route_table
from tests.config.support import HEAD, ROUTES, read


def test_the_table_shows_each_route_resolved(tmp_path: Path) -> None:
    """One line a route, columns aligned, no blanks at the ends; an unguarded route shows dashes."""
    text = HEAD + ROUTES + "      in_flight: wait\n      key: {required: false}\n  - {id: rest, path: /**, upstream: payments}\n"
    assert route_table(read(tmp_path, text).routes).splitlines() == [
        "ROUTE   METHODS     PATH         UPSTREAM  MODE     SCOPE   PRINCIPAL  KEY                         IN FLIGHT  LEASE  RETENTION  "
        "STORE OUTAGE",
        "charge  PATCH,POST  /v1/charges  payments  enforce  charge  none       Idempotency-Key (optional)  wait 10s   30s    24h        "
        "reject",
        "rest    any         /**          payments  -        -       -          -                           -          -      -          -",
    ]
