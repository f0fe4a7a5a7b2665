"""What is found must be the caller's: a captured value is the client's own choice, and alone finds nothing."""

from pathlib import Path

import pytest

from gateway.core.reconcile.policy import Condition
from gateway.core.reconcile.policy import Test as By
from tests.config.support import HEAD, ROUTES, mistakes, read

BASE = HEAD.replace('payments:8000"}', 'payments:8000", max_execution: 1m}') + ROUTES.replace(
    "principal: none", "principal: [{header: X-Account}]"
)
LEAK = "a client may write another caller's, and would get that one's answer"
BELIEVE = "write `caller_bound: upstream` if no caller can name another's"
ASKED = (
    f"reconcile.request: asks by a value that the client chooses: {LEAK}; ask for `{{principal}}` too, or have the rules that say executed "
    f"compare what was found with it (`same_as: '{{principal}}'`), or {BELIEVE}"
)
TOLD = (
    f"webhook.by: finds the record by a value that the client chooses: {LEAK}; have the rules that say executed compare the event with who "
    f"asked (`same_as: '{{principal}}'`), or {BELIEVE}"
)
MINE = "{pointer: /account, same_as: '{principal}'}"


def lookup(path: str = "/{captured.order}", when: str = "", more: str = "") -> str:
    rule = f"{{status: [200], when: [{when}], verdict: executed}}"
    return f"reconcile: {{probe: lookup, request: {{path: '{path}'}}, rules: [{rule}], capture: {{order: /o}}{more}}}"


def webhook(when: str = "", more: str = "") -> str:
    rule = f"{{when: [{{pointer: /t, exists: true}}{when}], verdict: executed, answer: {{status: 201}}}}"
    fields = "path: /w, signature: {stripe: {secret: 0123456789abcdef}}, event_id: /id, find: /k, by: order"
    return f"reconcile: {{capture: {{order: /o}}}}\n      webhook: {{{fields}, rules: [{rule}]{more}}}"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(lookup(), ASKED, id="lookup"),
        pytest.param(lookup("/{captured.order}?key={key}"), ASKED, id="a-key-is-chosen-too"),
        pytest.param(lookup("/{request_id}", more=", caller_bound: rules"), ASKED, id="an-id-is-chosen-too"),
        pytest.param("forward_key: derived\n      " + lookup(), ASKED, id="a-derived-key-that-is-not-asked-for"),
        pytest.param("forward_key: derived\n      " + lookup("/{captured.order}?key={key}"), None, id="a-derived-key"),
        pytest.param(lookup("/{principal}/{captured.order}"), None, id="asked-for"),
        pytest.param(lookup(when=MINE), None, id="compared"),
        pytest.param(lookup(more=", caller_bound: upstream"), None, id="believed"),
        pytest.param(webhook(), TOLD, id="webhook"),
        pytest.param(webhook(f", {MINE}"), None, id="webhook-compared"),
        pytest.param(webhook(more=", caller_bound: upstream"), None, id="webhook-believed"),
    ],
)
def test_a_captured_value_alone_finds_nothing(tmp_path: Path, lines: str, expected: str | None) -> None:
    """Of callers who are told apart. With `none` all are one."""
    found = [line.partition("idempotency.")[2] for line in mistakes(tmp_path, f"{BASE}      {lines}\n")]
    assert found == ([] if expected is None else [expected])
    if expected is not None:
        assert mistakes(tmp_path, f"{BASE.replace('[{header: X-Account}]', 'none')}      {lines}\n") == []


@pytest.mark.parametrize(
    ("principal", "why"),
    [
        ("none", "with `none` nobody is told apart"),
        ("[{header: X-Account}, {header: X-User}]", "several sources together have no one value; name one"),
        (
            "[{header: Authorization}]",
            "this is a credential, which would be kept in clear; name a source that says who asks, such as an account's id or a claim",
        ),
        (
            "[{basic: true}]",
            "this is a credential, which would be kept in clear; name a source that says who asks, such as an account's id or a claim",
        ),
    ],
)
def test_who_cannot_be_named(tmp_path: Path, principal: str, why: str) -> None:
    """What is kept in clear says who asks, and is no secret."""
    text = f"{BASE.replace('[{header: X-Account}]', principal)}      {lookup('/{principal}/{captured.order}')}\n"
    (found,) = mistakes(tmp_path, text)
    assert found.endswith(f"idempotency.principal: `{{principal}}` is asked for, and {why}")


def test_who_asks_is_kept_only_where_it_is_named(tmp_path: Path) -> None:
    """In a request, an answer, or a rule."""
    for lines, kept in ((lookup("/{principal}/{captured.order}"), True), (lookup(when=MINE), True), ("lease: 30s", False)):
        policy = read(tmp_path, f"{BASE}      {lines}\n").routes[0].policy
        assert policy is not None
        assert policy.keeps_principal is kept


def test_a_comparison(tmp_path: Path) -> None:
    """With one placeholder, and one that has a value."""
    policy = read(tmp_path, f"{BASE}      {lookup(when=MINE)}\n").routes[0].policy
    assert policy is not None
    (rule,) = policy.reconcile.probe.rules  # type: ignore[union-attr]  # a lookup
    assert rule.when == (Condition("/account", By.SAME_AS, ("principal",)),)
    more = ", {pointer: /order, same_as: '{captured.ordr}'}"
    (found,) = mistakes(tmp_path, f"{BASE}      {lookup(when=MINE + more)}\n")
    assert found.endswith("rules[0].when[1].same_as: `{captured.ordr}` is not captured; name it in `reconcile.capture`")
    (found,) = mistakes(tmp_path, f"{BASE}      {lookup(when=MINE.replace('{principal}', 'x-{key}'))}\n")
    assert found.endswith("write one placeholder, as in '{principal}' or '{captured.account}'")
