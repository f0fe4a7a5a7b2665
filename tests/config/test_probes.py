"""How an unknown outcome is found out: what arrives in a route's policy, and mistakes in it, each with its place and words."""

from pathlib import Path

import pytest

from gateway.config import Config
from gateway.core.policy import OnUnknown, Policy
from gateway.core.reconcile.policy import (
    AnswerPlan,
    Cancel,
    Condition,
    Lookup,
    Manual,
    Pace,
    Reconcile,
    RequestTemplate,
    Resend,
    Rule,
    Verdict,
)
from gateway.core.reconcile.policy import (
    Test as Asks,
)
from tests.config.support import HEAD, ROUTES, mistakes, read

LIMIT = HEAD.replace('payments:8000"}', 'payments:8000", max_execution: 1m}')
BASE = LIMIT + ROUTES
"""Ten lines: what is appended starts in line 11."""
KEY = "encryption_key: 0123456789abcdef0123456789abcdef\n"
FOUND = "rules: [{status: [200], verdict: executed}]"
ASK = "probe: lookup, request: {path: '/{key}'}"
LOOKUP = f"{ASK}, {FOUND}"

EVERYTHING = """\
      on_unknown: reexecute
      reconcile:
        probe: lookup
        upstream: reports
        request:
          method: POST
          path: /charges/search?by={captured.order}
          headers: {Authorization: "Bearer ${TOKEN}", Content-Type: application/json}
          headers_file: {X-Secret: secret.txt}
          body: '{"key": "{key}", "request": "{request_id}"}'
        capture: {order: /order/id, customer: /customer}
        rules:
          - status: [200, 201]
            when:
              - {pointer: /data/0/status, equals: [succeeded, failed, 1, 1.5, true, null, "1"]}
              - {pointer: /data/1, missing: true}
              - {pointer: "", not_empty: true}
            verdict: executed
            answer: {status: 201, headers: {Location: "/charges/{found:/data/0/id}"}, pointer: /data/0}
          - {status: [404], when: [{pointer: /error, exists: true}], verdict: executed, answer: {body: ""}}
          - {when: [{pointer: /data, empty: true}], verdict: not_executed}
          - {verdict: not_yet_known}
        looks: 3
        apart: 1m
        first: 1s
        longest: 1h
        attempts: 10
        max_age: 2d
        timeout: 3s
        concurrency: 7
"""


def policy(config: Config, index: int = 0) -> Policy:
    found = config.routes[index].policy
    assert found is not None
    return found


def test_every_field_arrives(tmp_path: Path) -> None:
    """Each setting is where it belongs; a secret comes from the environment or from a file."""
    (tmp_path / "secret.txt").write_text("s3cret\n")
    head = LIMIT + "  reports: {url: 'http://reports:8000'}\n"
    text = EVERYTHING.replace('{body: ""}', "{headers: {Content-Type: text/plain}, body: gone}")
    found = policy(read(tmp_path, head + ROUTES + text, {"TOKEN": "t0ken"}))
    assert found.on_unknown is OnUnknown.REEXECUTE
    assert found.reconcile == Reconcile(
        Lookup(
            RequestTemplate(
                method="POST",
                target="/charges/search?by={captured.order}",
                headers=(("Authorization", "Bearer t0ken"), ("Content-Type", "application/json"), ("X-Secret", "s3cret")),
                body='{"key": "{key}", "request": "{request_id}"}',
            ),
            (
                Rule(
                    Verdict.EXECUTED,
                    frozenset({200, 201}),
                    (
                        Condition("/data/0/status", Asks.EQUALS, ("succeeded", "failed", 1, 1.5, True, None, "1")),
                        Condition("/data/1", Asks.MISSING),
                        Condition("", Asks.NOT_EMPTY),
                    ),
                    AnswerPlan(201, (("Location", "/charges/{found:/data/0/id}"),), None, "/data/0"),
                ),
                Rule(
                    Verdict.EXECUTED,
                    frozenset({404}),
                    (Condition("/error", Asks.EXISTS),),
                    AnswerPlan(headers=(("Content-Type", "text/plain"),), body="gone"),
                ),
                Rule(Verdict.NOT_EXECUTED, when=(Condition("/data", Asks.EMPTY),)),
                Rule(Verdict.NOT_YET_KNOWN),
            ),
            "reports",
        ),
        Pace(looks=3, apart=60.0, first=1.0, longest=3600.0, attempts=10, max_age=172800.0, timeout=3.0, concurrency=7),
        (("order", "/order/id"), ("customer", "/customer")),
    )


@pytest.mark.parametrize(
    ("written", "values"),
    [("1", (1,)), ("true", (True,)), ("null", (None,)), ("'1'", ("1",)), ("-0.5", (-0.5,)), ("'${N}'", ("7",)), ("[a, 1]", ("a", 1))],
)
def test_a_value_is_of_the_kind_that_it_is_written_in(tmp_path: Path, written: str, values: tuple[object, ...]) -> None:
    """Text, numbers, flags and null are told apart as in YAML; a variable is text."""
    rules = f"rules: [{{when: [{{pointer: /a, equals: {written}}}], verdict: executed}}]"
    probe = policy(read(tmp_path, f"{BASE}      reconcile: {{{ASK}, {rules}}}\n", {"N": "7"})).reconcile.probe
    assert isinstance(probe, Lookup)
    assert repr(probe.rules[0].when[0].values) == repr(values)


def test_what_is_not_said_is_manual(tmp_path: Path) -> None:
    """Without a probe nobody is asked, and a record that is in doubt is a person's."""
    found = policy(read(tmp_path, BASE))
    assert (found.on_unknown, found.reconcile, found.webhook) == (OnUnknown.RECONCILE, Reconcile(Manual()), None)
    assert not found.reconcilable


def test_a_cancel_posts_unless_it_says_otherwise(tmp_path: Path) -> None:
    """A lookup gets, a cancel posts; each may say otherwise."""
    rules = "rules: [{status: [200], verdict: not_executed}]"
    for method, expected in (("", "POST"), ("method: DELETE, ", "DELETE")):
        text = f"{BASE}      reconcile: {{probe: cancel, request: {{{method}path: '/{{key}}'}}, {rules}}}\n"
        probe = policy(read(tmp_path, text)).reconcile.probe
        assert isinstance(probe, Cancel)
        assert probe.request.method == expected


def test_encryption_keys_come_in_order(tmp_path: Path) -> None:
    """The key that seals is the first; former ones follow, from the file itself and from files of their own."""
    (tmp_path / "old").write_text("c" * 32)
    former = f"former_encryption_keys: [{'b' * 32}]\nformer_encryption_key_files: [old]\n"
    config = read(tmp_path, f"{KEY}{former}{BASE}      reconcile: {{probe: resend}}\n")
    assert config.encryption_keys == (b"0123456789abcdef0123456789abcdef", b"b" * 32, b"c" * 32)
    assert policy(config).reconcile.probe == Resend()
    assert read(tmp_path, BASE).encryption_keys == ()


def test_defaults_fill_in_a_probe_field_by_field(tmp_path: Path) -> None:
    """What all lookups have in common stands in `defaults`; a route that chooses another probe is not disturbed by it."""
    common = f"defaults: {{reconcile: {{request: {{path: '/{{key}}', headers: {{A: b}}}}, {FOUND}, looks: 4}}}}\n"
    more = (
        "      reconcile: {probe: lookup, request: {path: '/own/{key}'}}\n"
        "  - {id: b, path: /b, upstream: payments, idempotency: {principal: none, reconcile: {probe: manual}}}\n"
        "  - {id: c, path: /c, upstream: payments, idempotency: {principal: none, reconcile: {probe: resend}}}\n"
        "  - {id: d, path: /d, upstream: payments, idempotency: {principal: none}}\n"
    )
    config = read(tmp_path, KEY + LIMIT + common + ROUTES + more)
    first = policy(config).reconcile
    assert isinstance(first.probe, Lookup)
    assert (first.probe.request, first.pace.looks) == (RequestTemplate("GET", "/own/{key}", (("A", "b"),)), 4)
    assert [policy(config, index).reconcile.probe for index in (1, 2, 3)] == [Manual(), Resend(), Manual()]


NO_TIME_LIMIT = (
    "needs `upstreams.payments.max_execution`, written out: until that long after an attempt it may still be running there, "
    "and nothing is concluded from its absence"
)


@pytest.mark.parametrize("probe", [LOOKUP, "probe: cancel, request: {path: '/{key}'}, rules: [{status: [200], verdict: not_executed}]"])
def test_a_verdict_needs_a_time_limit_that_is_written_out(tmp_path: Path, probe: str) -> None:
    """The default of max_execution is no ground for concluding that something did not happen."""
    word = probe.split()[1].strip(",")
    expected = f"gateway.yaml:11:26: routes[0].idempotency.reconcile.probe: `probe: {word}` {NO_TIME_LIMIT}"
    assert mistakes(tmp_path, f"{HEAD}{ROUTES}      reconcile: {{{probe}}}\n") == [expected]


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        (f"reconcile: {{{LOOKUP}}}", "reconcile.probe: `probe: lookup`"),
        ("on_unknown: reexecute", "on_unknown: reexecute"),
    ],
    ids=["verdict", "reexecution"],
)
def test_a_time_limit_covers_what_the_gateway_itself_allows(tmp_path: Path, setting: str, what: str) -> None:
    """An exchange that may last a minute has not surely ended after 59 seconds."""
    short = HEAD.replace('payments:8000"}', 'payments:8000", max_execution: 59s}')
    (told,) = mistakes(tmp_path, f"{short}{ROUTES}      {setting}\n")
    assert told.endswith(
        f"{what} rests on `upstreams.payments.max_execution` (59s), which is shorter than its `timeouts.total` (1m): an operation that "
        "may take so long could still be running; raise the one or lower the other"
    )


REMOVE = "remove this, or write `probe: lookup` or `probe: cancel`"
PROBES = [
    pytest.param(
        "probe: look", '26: probe: expected one of lookup, cancel, resend, manual, found "look"; did you mean `lookup`?', id="probe"
    ),
    pytest.param("kind: lookup", "19: kind: unknown key; did you mean `probe`?", id="kind"),
    pytest.param("request: {path: /a}", f"28: request: `probe: manual` asks nobody; {REMOVE}", id="manual"),
    pytest.param(f"probe: manual, {FOUND}", f"41: rules: `probe: manual` asks nobody; {REMOVE}", id="manual-rules"),
    pytest.param(
        f"probe: lookup, {FOUND}",
        "18: request.path: is required: what is asked for, as in /v1/charges?idempotency_key={key}",
        id="no-request",
    ),
    pytest.param(ASK, "18: rules: is required: what the answer means, as in [{status: [200], verdict: executed}]", id="no-rules"),
    pytest.param(f"{LOOKUP}, upstream: paymets", "116: upstream: unknown upstream `paymets`; did you mean `payments`?", id="upstream"),
    pytest.param(f"{LOOKUP}, attempts: 1", "116: attempts: attempts (1) are fewer than looks (2): they could never agree", id="attempts"),
    pytest.param(
        f"{LOOKUP}, looks: 9, attempts: 8", "126: attempts: attempts (8) are fewer than looks (9): they could never agree", id="looks"
    ),
    pytest.param(f"{LOOKUP}, longest: 1s", "115: longest: longest (1s) is shorter than first (5s)", id="longest"),
    pytest.param(f"{LOOKUP}, first: 1h", "113: first: longest (10m) is shorter than first (1h)", id="first"),
    pytest.param(
        f"{LOOKUP}, max_age: 30s",
        "115: max_age: 2 looks that are 30s apart take 30s, and max_age is 30s: they could never agree",
        id="max-age",
    ),
    pytest.param(
        f"{LOOKUP}, apart: 1d", "113: apart: 2 looks that are 24h apart take 24h, and max_age is 24h: they could never agree", id="apart"
    ),
    pytest.param(
        "probe: resend",
        "26: probe: resend keeps each request until its outcome is known, and only encrypted: it needs `encryption_key`",
        id="resend",
    ),
    pytest.param(
        "capture: {key: /a}",
        "29: capture.key: `key` is the key itself, as the upstream saw it, and always there; choose another name",
        id="capture-key",
    ),
    pytest.param(
        "capture: {a-b: /a}",
        '29: capture.a-b: "a-b" is not the name of a captured value; use letters, digits and _, as in customer_id',
        id="capture-name",
    ),
    pytest.param(
        "capture: {a: ''}",
        "32: capture.a: the empty pointer means the whole of it; name a member, as in /data/object/id",
        id="capture-whole",
    ),
    pytest.param("capture: {a: [b]}", "32: capture.a: expected a JSON pointer, found a list", id="capture-list"),
    pytest.param("capture: {a: /a, a: /b}", "36: capture.a: duplicate key (first in line 11)", id="capture-twice"),
]


@pytest.mark.parametrize(("fields", "expected"), PROBES)
def test_a_mistake_in_a_probe_is_found_where_it_stands(tmp_path: Path, fields: str, expected: str) -> None:
    """One wrong setting gives one message, at what to change."""
    column, rest = expected.split(": ", 1)
    found = mistakes(tmp_path, f"{BASE}      reconcile: {{{fields}}}\n")
    path = "routes[0].idempotency.reconcile"
    assert found == [f"gateway.yaml:11:{column}: {path}.{rest}"]


NEVER = "the upstream never sees the key, since `forward_key: none`"
TOGETHER = [
    pytest.param(
        "", "on_unknown: reexecute", f"on_unknown: reexecute needs an upstream that deduplicates by key, and {NEVER}", id="reexecute"
    ),
    pytest.param(
        f"reconcile: {{{LOOKUP}}}", "", f"reconcile.request: asks by {{key}}, and {NEVER}; ask by a captured value", id="lookup-by-key"
    ),
    pytest.param(
        "reconcile: {probe: resend}", "", f"reconcile.probe: resend needs an upstream that deduplicates by key, and {NEVER}", id="resend"
    ),
]


@pytest.mark.parametrize(("first", "second", "expected"), TOGETHER)
def test_a_key_that_the_upstream_never_sees_finds_nothing(tmp_path: Path, first: str, second: str, expected: str) -> None:
    """`forward_key: none` and whatever goes by the key exclude each other."""
    lines = "".join(f"      {line}\n" for line in (first, second, "forward_key: none") if line)
    (found,) = mistakes(tmp_path, KEY + BASE + lines)
    assert found.partition("routes[0].idempotency.")[2] == expected


def test_cancelling_and_running_again_exclude_each_other(tmp_path: Path) -> None:
    """What is made sure never to happen must not be run again."""
    cancel = "reconcile: {probe: cancel, request: {path: '/{key}'}, rules: [{status: [200], verdict: not_executed}]}"
    assert mistakes(tmp_path, f"{BASE}      {cancel}\n      on_unknown: reexecute\n") == [
        "gateway.yaml:12:19: routes[0].idempotency.on_unknown: reexecute runs again what `probe: cancel` makes sure never happens; "
        "choose one of them"
    ]


KEYS = [
    pytest.param("encryption_key: short", "17: encryption_key: has 5 characters and needs 32 or more; make one with: openssl rand -hex 32"),
    pytest.param(
        f"former_encryption_keys: [{'x' * 32}]",
        "25: former_encryption_keys: needs `encryption_key`: former ones open what is there, and encrypt nothing new",
    ),
    pytest.param("former_encryption_key_files: [gone]", "31: former_encryption_key_files[0]: cannot read gone: No such file or directory"),
]


@pytest.mark.parametrize(("line", "expected"), KEYS)
def test_a_mistake_in_an_encryption_key_is_found_where_it_stands(tmp_path: Path, line: str, expected: str) -> None:
    """Each wrong key gives one message, without the key."""
    assert mistakes(tmp_path, f"{BASE}{line}\n") == [f"gateway.yaml:11:{expected}"]


def test_a_dialect_says_nothing_of_probes(tmp_path: Path) -> None:
    """Whom to ask, and whom to believe, is the route's own word."""
    house = (Path(__file__).parents[2] / "config" / "dialects" / "house.yaml").read_text()
    (tmp_path / "house.yaml").write_text(house.replace("idempotency:\n", "idempotency:\n  reconcile: {probe: manual}\n"))
    found = mistakes(tmp_path, f"{BASE}      dialect: ./house.yaml\n")
    assert len(found) == 1
    assert "idempotency.reconcile: whom to trust, and whether to guard at all, is a route's own word" in found[0]
