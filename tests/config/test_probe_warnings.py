"""What is valid about probes and webhooks, and rarely meant."""

from pathlib import Path

import pytest

from tests.config.support import HEAD, ROUTES, read

LIMIT = HEAD.replace('payments:8000"}', 'payments:8000", max_execution: 1m}')
BASE = "encryption_key: 0123456789abcdef0123456789abcdef\n" + LIMIT + ROUTES
ASK = "probe: lookup, request: {path: '/{key}'}"
FOUND = "{status: [200], verdict: executed}"
LOOKUP = f"{ASK}, rules: [{FOUND}]"
MUST = "the upstream must deduplicate by key, for longer than the recovery may take: else an operation runs twice"
CALLERS = "of two callers who use one key, one would get the other's answer"
OWN_KEYS = "write `forward_key: derived`, which gives each caller keys of its own at the upstream, or"
ABSENT = "when: an error in JSON meets this too, and would mean not_executed; name the `status`, or something that must be there"
OBSERVED = "has no effect with `mode: observe`: nobody looks for what became of an observed request"


def webhook(old: str = "", new: str = "") -> str:
    fields = (
        "path: /w, signature: {stripe: {secret: 0123456789abcdef}}, event_id: /id, find: /k, "
        "rules: [{when: [{pointer: /t, exists: true}], verdict: executed, answer: {status: 201}}]"
    )
    assert old in fields
    return f"webhook: {{{fields.replace(old, new, 1)}}}"


def absent(rule: str) -> str:
    return f"reconcile: {{{ASK}, rules: [{FOUND}, {{{rule}, verdict: not_executed}}]}}"


def warnings(folder: Path, text: str) -> list[str]:
    """Each as it is printed, from the path within the route on."""
    return [str(one).partition("idempotency.")[2] or str(one).partition(": ")[2] for one in read(folder, text).warnings]


FINDINGS = [
    pytest.param("reconcile: {probe: resend}", f"reconcile.probe: resend: {MUST}", id="resend"),
    pytest.param("on_unknown: reexecute", f"on_unknown: reexecute: {MUST}", id="reexecute"),
    pytest.param(
        f"reconcile: {{{ASK}, rules: [{FOUND}, {{status: [404], verdict: not_executed}}], looks: 1}}",
        "reconcile.looks: 1: a lookup that lags behind for once would be believed, and the operation run again",
        id="one-look",
    ),
    pytest.param(f"reconcile: {{{LOOKUP}, looks: 1}}", None, id="one-look-that-frees-nothing"),
    pytest.param("reconcile: {timeout: 1s}", "reconcile.timeout: has no effect with `probe: manual`", id="timeout"),
    pytest.param("reconcile: {timeout: 10s, concurrency: 4}", None, id="defaults"),
    pytest.param(
        f"reconcile: {{{LOOKUP}, capture: {{order: /o}}}}",
        "reconcile.capture: `order` is kept with each record, and nothing uses it",
        id="unused-capture",
    ),
    pytest.param(
        "reconcile: {capture: {order: /o}}\n      " + webhook("find: /k", "find: /k, by: order"), None, id="captured-for-a-webhook"
    ),
    pytest.param(
        "reconcile: {capture: {order: /o}}\n      " + webhook("{status: 201}", "{status: 201, headers: {A: '{captured.order}'}}"),
        None,
        id="captured-for-an-answer",
    ),
    pytest.param(f"reconcile: {{{LOOKUP}}}\n      mode: observe", f"reconcile: {OBSERVED}", id="observed-probe"),
    pytest.param(f"{webhook()}\n      mode: observe", f"webhook: {OBSERVED}", id="observed-webhook"),
    pytest.param("reconcile: {attempts: 3}\n      mode: observe", None, id="observed-without-a-probe"),
    pytest.param(
        webhook("0123456789abcdef", "0123456789abcde"),
        "webhook.signature: a secret of less than 16 bytes can be guessed from one event, and events forged with it; "
        "have the provider make a longer one",
        id="short-secret",
    ),
    pytest.param(
        webhook("event_id: /id", "event_id: header:X-Event"),
        "webhook.event_id: is a header field, which the signature does not cover: a replay with another one is a new event; "
        "name a place within the event",
        id="unsigned-id",
    ),
    pytest.param(
        webhook("stripe: {secret: 0123456789abcdef}}, event_id: /id", f"standard: {{secret: {'k' * 32}}}}}, event_id: header:webhook-id"),
        None,
        id="signed-id",
    ),
    pytest.param(webhook(), None, id="webhook"),
    pytest.param(absent("when: [{pointer: /c, missing: true}]"), f"reconcile.rules[1].{ABSENT}", id="absent"),
    pytest.param(
        absent("when: [{pointer: /c, missing: true}, {pointer: /d, missing: true}]"), f"reconcile.rules[1].{ABSENT}", id="all-absent"
    ),
    pytest.param(absent("when: [{pointer: /c, missing: true}, {pointer: /d, exists: true}]"), None, id="absent-from-what-is-there"),
    pytest.param(absent("when: [{pointer: /c, missing: true}], status: [404]"), None, id="absent-with-a-status"),
    pytest.param(absent("when: [{pointer: /c, empty: true}]"), None, id="empty"),
    pytest.param(
        f"reconcile: {{{ASK}, rules: [{FOUND}, {{when: [{{pointer: /c, missing: true}}], verdict: not_yet_known}}]}}",
        None,
        id="absent-and-not-yet-known",
    ),
    pytest.param(
        f"reconcile: {{{ASK.replace('lookup', 'cancel')}, rules: [{{when: [{{pointer: /c, missing: true}}], verdict: not_executed}}]}}",
        f"reconcile.rules[0].{ABSENT}",
        id="absent-after-a-cancel",
    ),
    pytest.param(webhook("pointer: /t, exists: true", "pointer: /t, missing: true"), None, id="absent-from-an-event"),
]


@pytest.mark.parametrize(("lines", "expected"), FINDINGS)
def test_what_is_rarely_meant_is_a_warning(tmp_path: Path, lines: str, expected: str | None) -> None:
    """The warning stands at the setting and says why."""
    assert warnings(tmp_path, f"{BASE}      {lines}\n") == ([] if expected is None else [expected])


SHARED = f"reconcile.request: asks by {{key}} alone: {CALLERS}; {OWN_KEYS} ask for `{{principal}}` too"
TOLD = f"webhook.by: key: {CALLERS}; {OWN_KEYS} have the rules compare the event with `{{principal}}`"
CANCEL = 'method: POST, path: /cancel, headers: {Content-Type: application/json}, body: \'{"k": "{key}"}\''


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(f"reconcile: {{{LOOKUP}}}", SHARED, id="lookup"),
        pytest.param(
            f"reconcile: {{probe: cancel, request: {{{CANCEL}}}, rules: [{{status: [200], verdict: not_executed}}]}}", SHARED, id="cancel"
        ),
        pytest.param(webhook(), TOLD, id="webhook"),
        pytest.param(webhook("find: /k", "find: /k, by: key"), TOLD, id="webhook-by-key"),
    ],
)
def test_callers_who_are_told_apart_may_use_one_key(tmp_path: Path, lines: str, expected: str | None) -> None:
    """By a key as received nobody upstream knows whose it is. A derived key is one caller's own, and with `none` all are one caller."""
    apart = BASE.replace("principal: none", "principal: [{header: X-Account}]")
    assert warnings(tmp_path, f"{apart}      {lines}\n") == ([] if expected is None else [expected])
    assert warnings(tmp_path, f"{apart}      forward_key: derived\n      {lines}\n") == []
    assert warnings(tmp_path, f"{BASE}      {lines}\n") == []


def test_a_key_that_is_asked_for_with_its_caller(tmp_path: Path) -> None:
    """`{principal}` says whose it is; and so may the operator."""
    apart = BASE.replace("principal: none", "principal: [{header: X-Account}]")
    for lines in (LOOKUP.replace("/{key}", "/{principal}/{key}"), f"{LOOKUP}, caller_bound: upstream"):
        assert warnings(tmp_path, f"{apart}      reconcile: {{{lines}}}\n") == []


def test_a_probe_of_defaults_may_serve_the_routes_that_enforce(tmp_path: Path) -> None:
    """What one route uses is no mistake for another that is observed."""
    other = "  - {id: b, path: /b, upstream: payments, idempotency: {principal: none, mode: observe}}\n"
    assert warnings(tmp_path, f"{LIMIT}defaults: {{reconcile: {{{LOOKUP}}}}}\n{ROUTES}{other}") == []


def test_a_request_without_a_body_has_nothing_to_capture(tmp_path: Path) -> None:
    """DELETE has no body, as a rule."""
    text = BASE.replace("    path:", "    methods: [DELETE]\n    path:")
    probe = "probe: lookup, request: {path: '/{captured.order}'}"
    found = warnings(tmp_path, f"{text}      reconcile: {{{probe}, rules: [{FOUND}], capture: {{order: /o}}}}\n")
    assert found == ["reconcile.capture: DELETE requests have no body to capture anything from"]


def test_a_webhook_takes_a_path_from_a_route_with_a_warning(tmp_path: Path) -> None:
    """What is posted to a literal path of a route no longer reaches its upstream; a closing /** is meant to give way."""
    literal = "  - {id: hooks, path: /w, upstream: payments}\n"
    expected = ["webhook.path: is a path of route `hooks` too: what is posted there no longer reaches its upstream"]
    assert warnings(tmp_path, f"{BASE}      {webhook()}\n{literal}") == expected
    assert not [one for one in warnings(tmp_path, f"{BASE}      {webhook()}\n{literal.replace('/w', '/**')}") if one.startswith("webhook")]
    assert warnings(tmp_path, f"{BASE}      {webhook()}\n{literal.replace('/w', '/w, methods: [GET]')}") == []
    assert warnings(tmp_path, f"{BASE}      {webhook()}\n{literal}webhook_listen: 127.0.0.1:8081\n") == []


def test_a_listener_without_webhooks_is_idle(tmp_path: Path) -> None:
    """Nothing would ever be taken there."""
    assert warnings(tmp_path, f"{BASE}webhook_listen: 127.0.0.1:8081\n") == ["webhook_listen: has no effect: no route has a `webhook`"]
