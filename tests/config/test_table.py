"""The table of routes that `check` prints."""

from pathlib import Path

from gateway.config import route_table, settings_table
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


PROBES = """\
      on_unknown: reexecute
      reconcile:
        probe: lookup
        upstream: payments
        request: {path: "/c/{captured.order}", headers: {Authorization: s3cret}}
        capture: {order: /order}
        rules:
          - {status: [200, 201], when: [{pointer: /s, equals: [a, 1, true, null]}, {pointer: "", exists: true}], verdict: executed}
          - {when: [{pointer: /l, not_empty: true}], verdict: executed, answer: {status: 402}}
          - {verdict: not_yet_known}
        looks: 3
        max_age: 2d
      webhook:
        path: /w
        signature: {hmac_sha256: {header: X-Signature, secrets: [s3cret, s3cret2]}}
        event_id: header:X-Id
        find: /k
        by: order
        rules: [{when: [{pointer: /t, missing: true}], verdict: not_executed}]
        remember: 1d
"""


def test_probes_and_webhooks_are_among_the_settings(tmp_path: Path) -> None:
    """What is asked, what is made of it, and who may tell: a line each, in words, without a secret."""
    head = HEAD.replace('8000"}', '8000", max_execution: 1m}')
    shown = settings_table(read(tmp_path, f"webhook_listen: 127.0.0.1:1\n{head}{ROUTES}{PROBES}"))
    rows = [line.split("  ", 1) for line in shown.splitlines()]
    assert [(path, value.strip()) for path, value in rows[1:-1]] == [
        ("webhook_listen", "127.0.0.1:1"),
        ("routes.charge.on_unknown", "reexecute"),
        ("routes.charge.reconcile.probe", "lookup: GET /c/{captured.order} of payments with Authorization"),
        ("routes.charge.reconcile.rules", "200 201 and /s = a | 1 | true | null and the body exists -> executed"),
        ("routes.charge.reconcile.rules", "/l is not empty -> executed, answered with 402"),
        ("routes.charge.reconcile.rules", "else -> not_yet_known"),
        ("routes.charge.reconcile.capture.order", "/order"),
        ("routes.charge.reconcile.looks", "3"),
        ("routes.charge.reconcile.max_age", "2d"),
        ("routes.charge.webhook", "POST /w, signed hmac_sha256 in X-Signature (2 secrets), event id header:X-Id"),
        ("routes.charge.webhook.find", "/k as order"),
        ("routes.charge.webhook.rules", "/t is missing -> not_executed"),
        ("routes.charge.webhook.remember", "24h"),
    ]
