"""Webhooks: what arrives in a route's policy, and mistakes in them, each with its place and words."""

import base64
from pathlib import Path

import pytest

from gateway.config import TcpListener
from gateway.core.reconcile.policy import (
    AnswerPlan,
    Condition,
    PlainSignature,
    Rule,
    Signature,
    StandardSignature,
    StripeSignature,
    Verdict,
    Webhook,
)
from tests.config.support import HEAD, ROUTES, mistakes, read

BASE = HEAD.replace('payments:8000"}', 'payments:8000", max_execution: 1m}') + ROUTES
"""Ten lines: what is appended starts in line 11."""
STRIPE = "stripe: {secret: 0123456789abcdef}"
FIELDS = (
    f"path: /w, signature: {{{STRIPE}}}, event_id: /id, find: /k, "
    "rules: [{when: [{pointer: /t, equals: a}], verdict: executed, answer: {status: 201}}]"
)


def webhook(old: str = "", new: str = "") -> str:
    """The line of a good webhook, with one thing replaced."""
    assert old in FIELDS
    return f"webhook: {{{FIELDS.replace(old, new, 1)}}}"


def read_webhook(folder: Path, line: str) -> Webhook:
    policy = read(folder, f"{BASE}      {line}\n").routes[0].policy
    assert policy is not None
    assert policy.webhook is not None
    assert policy.reconcilable
    return policy.webhook


def test_every_field_arrives(tmp_path: Path) -> None:
    """Each setting is where it belongs."""
    more = "limit: 8KiB, remember: 1d, by: order"
    line = "reconcile: {capture: {order: /o}}\n      " + webhook("find: /k", f"find: /k, {more}")
    assert read_webhook(tmp_path, line) == Webhook(
        path="/w",
        signature=StripeSignature((b"0123456789abcdef",), 300.0),
        event_id="/id",
        find="/k",
        rules=(Rule(Verdict.EXECUTED, when=(Condition("/t", values=("a",)),), answer=AnswerPlan(201)),),
        by="order",
        limit=8192,
        remember=86400.0,
    )


RAW = base64.b64encode(b"k" * 24).decode()
SIGNATURES: list[tuple[str, Signature]] = [
    ("stripe: {secret_file: one, tolerance: 1m}", StripeSignature((b"whsec_one",), 60.0)),
    ("stripe: {secrets: [whsec_a, whsec_b]}", StripeSignature((b"whsec_a", b"whsec_b"), 300.0)),
    (f"standard: {{secret: whsec_{RAW}, tolerance: 10m}}", StandardSignature((b"k" * 24,), 600.0)),
    (f"standard: {{secrets: [{RAW}, whsec_{RAW}]}}", StandardSignature((b"k" * 24, b"k" * 24), 300.0)),
    ("hmac_sha256: {header: X-Signature, secret_files: [one, two]}", PlainSignature("X-Signature", (b"whsec_one", b"two"))),
    (
        "hmac_sha256: {header: X, secret: s, encoding: base64, prefix: sha256=}",
        PlainSignature("X", (b"s",), "base64", "sha256="),
    ),
]


@pytest.mark.parametrize(("written", "signature"), SIGNATURES)
def test_each_kind_of_signature_takes_one_secret_or_several(tmp_path: Path, written: str, signature: Signature) -> None:
    """A secret stands in the file, in the environment, or in a file of its own; those of Standard Webhooks are decoded."""
    (tmp_path / "one").write_text("whsec_one\n")
    (tmp_path / "two").write_text("two")
    assert read_webhook(tmp_path, webhook(STRIPE, written)).signature == signature


def test_an_event_id_may_stand_in_a_header(tmp_path: Path) -> None:
    """As with Standard Webhooks, which signs it along."""
    assert read_webhook(tmp_path, webhook("event_id: /id", "event_id: header:webhook-id")).event_id == "header:webhook-id"


def test_webhooks_may_have_a_listener_of_their_own(tmp_path: Path) -> None:
    """Then the paths of guarded routes are free for them too."""
    text = f"{BASE}      {webhook('path: /w', 'path: /v1/charges')}\nwebhook_listen: 127.0.0.1:8081\n"
    assert read(tmp_path, text).webhook_listen == TcpListener("127.0.0.1", 8081)
    assert read(tmp_path, BASE).webhook_listen is None


def test_defaults_may_say_how_events_are_signed(tmp_path: Path) -> None:
    """What is alike on all routes stands in `defaults`; a route may choose another signature."""
    common = f"defaults: {{webhook: {{signature: {{{STRIPE}}}, event_id: /id, limit: 4KiB}}}}\n"
    own = "webhook: {path: /w, find: /k, rules: [{when: [{pointer: /t, exists: true}], verdict: executed, answer: {status: 201}}]"
    for signature, kind in (("", StripeSignature), (", signature: {hmac_sha256: {header: A, secret: s}}", PlainSignature)):
        policy = read(tmp_path, f"{HEAD}{common}{ROUTES}      {own}{signature}}}\n").routes[0].policy
        assert policy is not None
        assert policy.webhook is not None
        assert (type(policy.webhook.signature), policy.webhook.event_id, policy.webhook.limit) == (kind, "/id", 4096)


ONE_PATH = "a webhook has one path, without {parameters} and **, as in /webhooks/payments"
NO_SECRET = "one of `secret`, `secret_file`, `secrets`, `secret_files` is required"
MISTAKES = [
    pytest.param("path: /w", "path: '/w/{id}'", f"path: {ONE_PATH}", id="parameter"),
    pytest.param("path: /w", "path: /w/**", f"path: {ONE_PATH}", id="rest"),
    pytest.param(
        "path: /w",
        "path: /v1/charges",
        "path: is a path of the guarded route `charge`, whose requests would be taken for events; "
        "choose another one, or a listener of its own (`webhook_listen`)",
        id="guarded",
    ),
    pytest.param(STRIPE, "", "signature: one of `stripe`, `standard`, `hmac_sha256` is required", id="unsigned"),
    pytest.param(STRIPE, "hmac: {}", "signature.hmac: unknown key; did you mean `hmac_sha256`?", id="hmac"),
    pytest.param(
        STRIPE,
        f"{STRIPE}, hmac_sha256: {{header: A, secret: b}}",
        "signature.hmac_sha256: `stripe` is given too; keep one of them",
        id="two",
    ),
    pytest.param("secret: 0123456789abcdef", "", f"signature.stripe: {NO_SECRET}", id="no-secret"),
    pytest.param("secret: 0123456789abcdef", "secret: '${EMPTY:-}'", f"signature.stripe: {NO_SECRET}", id="empty-secret"),
    pytest.param(
        "secret: 0123456789abcdef",
        "secret_file: gone",
        "signature.stripe.secret_file: cannot read gone: No such file or directory",
        id="gone",
    ),
    pytest.param(
        STRIPE,
        "standard: {secret: whsec_s3cret!}",
        "signature.standard.secret: is not base64: a secret of Standard Webhooks is whsec_ and base64, as the provider shows it",
        id="standard",
    ),
    pytest.param(
        STRIPE,
        "standard: {secret: whsec_YWJj}",
        "signature.standard.secret: holds 3 bytes, and a secret of Standard Webhooks has 24 to 64; is it whole?",
        id="standard-short",
    ),
    pytest.param(STRIPE, "hmac_sha256: {secret: a}", "signature.hmac_sha256.header: is required", id="no-header"),
    pytest.param(
        STRIPE,
        "hmac_sha256: {secret: a, header: A, encoding: base32}",
        'signature.hmac_sha256.encoding: expected one of hex, base64, found "base32"; did you mean `base64`?',
        id="encoding",
    ),
    pytest.param(
        STRIPE,
        "hmac_sha256: {secret: a, header: A, prefix: 'é'}",
        "signature.hmac_sha256.prefix: what stands before a signature is visible ASCII, as in sha256=",
        id="prefix",
    ),
    pytest.param(
        "event_id: /id",
        "event_id: id",
        'event_id: "id" names no place of an event\'s id; write a pointer such as /id, or header:webhook-id',
        id="event-id",
    ),
    pytest.param(
        "event_id: /id", "event_id: 'header:a b'", 'event_id: "a b" is not a header name; use letters, digits and -', id="event-header"
    ),
    pytest.param("find: /k", "find: ''", "find: the empty pointer means the whole of it; name a member, as in /data/object/id", id="find"),
    pytest.param(
        "find: /k", "find: /k, by: order", "by: no value is captured as `order`; name it in `reconcile.capture`, or write key", id="by"
    ),
    pytest.param("find: /k", "find: /k, by: kye", "by: no value is captured as `kye`; did you mean `key`?", id="by-hint"),
    pytest.param(
        "rules: [{",
        "rules: [{status: [200], ",
        "rules[0].status: an event has no status; say with `when` which events are meant",
        id="status",
    ),
    pytest.param(
        ", answer: {status: 201}",
        "",
        "rules[0].answer: an event has no status of its own; write the status that the operation would have answered, as in `status: 201`",
        id="no-status",
    ),
    pytest.param(
        "when: [{pointer: /t, equals: a}], ",
        "",
        "rules[0].verdict: any event at all would mean executed; say with `when` which ones do",
        id="any-event",
    ),
    pytest.param(
        "verdict: executed, answer: {status: 201}",
        "verdict: not_yet_known",
        "rules: no rule says executed or not_executed: its events would tell nothing",
        id="nothing-told",
    ),
    pytest.param(
        "find: /k",
        "find: /k, remember: 5m",
        "remember: 5m is shorter than twice the signature's tolerance (5m): an event could be played back after it is forgotten",
        id="remember",
    ),
    pytest.param("find: /k", "find: /k, limit: 1GiB", "limit: must be from 1KiB to 16MiB, found 1GiB", id="limit"),
]


@pytest.mark.parametrize(("old", "new", "expected"), MISTAKES)
def test_a_mistake_in_a_webhook_is_found_where_it_stands(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """One wrong setting gives one message, without a word of the secret."""
    (found,) = mistakes(tmp_path, f"{BASE}      {webhook(old, new)}\n")
    assert found.partition("idempotency.webhook.")[2] == expected


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """An empty webhook tells all that it needs."""
    found = [one.partition("idempotency.webhook.")[2].partition(":")[0] for one in mistakes(tmp_path, f"{BASE}      webhook: {{}}\n")]
    assert found == ["path", "signature", "event_id", "find", "rules"]


def test_an_event_cannot_name_a_key_that_the_upstream_never_saw(tmp_path: Path) -> None:
    """With `forward_key: none` it is found by a captured value, or not at all."""
    (found,) = mistakes(tmp_path, f"{BASE}      forward_key: none\n      {webhook()}\n")
    assert found.endswith(
        "webhook.by: no event can name the key: the upstream never sees the key, since `forward_key: none`; find by a captured value"
    )
    good = f"{BASE}      forward_key: none\n      reconcile: {{capture: {{o: /o}}}}\n      {webhook('find: /k', 'find: /k, by: o')}\n"
    assert mistakes(tmp_path, good) == []


def test_an_event_that_says_not_executed_needs_a_time_limit(tmp_path: Path) -> None:
    """As a look that says so does."""
    line = webhook("verdict: executed, answer: {status: 201}", "verdict: not_executed")
    (found,) = mistakes(tmp_path, f"{HEAD}{ROUTES}      {line}\n")
    assert "webhook.rules: a webhook that says not_executed needs `upstreams.payments.max_execution`, written out" in found
    assert mistakes(tmp_path, f"{BASE}      {line}\n") == []


def test_each_route_has_a_path_of_its_own(tmp_path: Path) -> None:
    """An event of one route must not be judged by the rules of another."""
    other = f"  - {{id: b, path: /b, upstream: payments, idempotency: {{principal: none, {webhook()}}}}}\n"
    (found,) = mistakes(tmp_path, f"{BASE}      {webhook()}\n{other}")
    assert found.endswith("routes[1].idempotency.webhook.path: /w is the webhook of route `charge` too; each route has its own")


LISTENERS = [
    ("0.0.0.0:8080", "0.0.0.0:8080 is the address of `listen` too; leave this out to take webhooks there"),
    ("127.0.0.1:9464", "127.0.0.1:9464 is the address of `admin.listen` too; providers have no business there"),
    ("unix:/nowhere/a.sock", "/nowhere does not exist; make it (mkdir -p) for the user of the gateway, or name another"),
    ("8081", "expected an address such as 127.0.0.1:8081 or unix:/run/webhooks.sock, found 8081"),
]


@pytest.mark.parametrize(("listen", "expected"), LISTENERS)
def test_a_listener_of_their_own_has_an_address_of_its_own(tmp_path: Path, listen: str, expected: str) -> None:
    """Neither the proxy's nor the operators'."""
    assert mistakes(tmp_path, f"{BASE}      {webhook()}\nwebhook_listen: {listen}\n") == [f"gateway.yaml:12:17: webhook_listen: {expected}"]
