"""How a route is guarded: what arrives in its policy, and mistakes in it, each with its place and words."""

from pathlib import Path

import pytest

from gateway.config import route_table
from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.hints import Hint, HintedOutcome
from gateway.core.key_policy import BodyKey, FormKey, ForwardKey, HeaderKey, KeyPlace, KeyPolicy, QueryKey
from gateway.core.policy import Expired, Mode, OnExpired, Policy
from tests.config.support import HEAD, ROUTES, mistakes, read

BASE = HEAD + ROUTES
"""Ten lines: what is appended starts in line 11."""

EVERYTHING = """\
      mode: observe
      key: {query: request_id, mode: raw, pattern: "[0-9a-f-]{36}", fold_case: true, notice: false}
      fingerprint:
        {body: form, only: [/amount, /items/*/id], ignore_headers: [Host, If-Match], ignore_query: [sig, "a b"], ignore_form: [sig]}
      on_expired: gone
      tombstone: 60d
      expired: keep
      keep_for: 3650d
      hints:
        - {header: Stripe-Should-Retry, value: "true", outcome: not-executed, remove: true}
        - {header: Retry-After, statuses: [503, 429], outcome: not-executed}
        - {header: Idempotency-Outcome}
      trust_retention: true
      forward_key: derived
      forward_key_in: {json_pointer: /request/id}
      status_fields: true
      expose_headers: true
      duplicates: 90s
      mark_duplicates: true
"""


def policy(folder: Path, lines: str, head: str = BASE) -> Policy:
    found = read(folder, head + lines).routes[0].policy
    assert found is not None
    return found


def test_every_field_arrives(tmp_path: Path) -> None:
    """Each setting is where it belongs; what is not named keeps its default."""
    assert policy(tmp_path, EVERYTHING) == Policy(
        scope="charge",
        principal=(),
        mode=Mode.OBSERVE,
        key=KeyPolicy(QueryKey("request_id"), pattern="[0-9a-f-]{36}", fold_case=True, notice=False, mode=KeyPolicy().mode.RAW),
        fingerprint=FingerprintPolicy(
            BodyMode.FORM,
            only=("/amount", "/items/*/id"),
            ignore_headers=("host", "if-match"),
            ignore_query=("sig", "a b"),
            ignore_form=("sig",),
        ),
        on_expired=OnExpired.GONE,
        tombstone=5184000.0,
        expired=Expired.KEEP,
        keep_for=315360000.0,
        hints=(
            Hint("Stripe-Should-Retry", "true", outcome=HintedOutcome.NOT_EXECUTED, remove=True),
            Hint("Retry-After", statuses=frozenset({503, 429}), outcome=HintedOutcome.NOT_EXECUTED),
            Hint("Idempotency-Outcome"),
        ),
        trust_retention=True,
        forward_key=ForwardKey.DERIVED,
        forward_key_in=BodyKey("/request/id"),
        status_fields=True,
        expose_headers=True,
        duplicates=90.0,
        mark_duplicates=True,
    )


PLACES: list[tuple[str, KeyPlace]] = [
    ("", HeaderKey("Idempotency-Key")),
    ("key: {header: X-Key}", HeaderKey("X-Key")),
    ("key: {query: 'request id'}", QueryKey("request id")),
    ("key: {json_pointer: /a~1b/c}", BodyKey("/a~1b/c")),
    ("key: {form: 'request id'}", FormKey("request id")),
    ("key: {header: [A, X-Old]}", HeaderKey("A", ("X-Old",))),
]


@pytest.mark.parametrize(("written", "place"), PLACES)
@pytest.mark.parametrize(("below", "lower"), PLACES)
def test_a_route_says_where_its_key_is(tmp_path: Path, written: str, place: KeyPlace, below: str, lower: KeyPlace) -> None:
    """A place in the route takes the place of the one in `defaults`, whatever kind each of them is."""
    head = f"{HEAD}defaults: {{{below}}}\n{ROUTES}"
    assert policy(tmp_path, f"      {written}\n" if written else "", head).key.place == (place if written else lower)


def test_a_key_of_defaults_keeps_its_other_settings(tmp_path: Path) -> None:
    """Another place alone does not reset lengths and grammar."""
    head = f"{HEAD}defaults: {{key: {{header: X-Key, max_length: 40, required: false}}, forward_key_in: {{header: X-Out}}}}\n{ROUTES}"
    found = policy(tmp_path, "      key: {query: id}\n      forward_key_in: {query: out}\n", head)
    assert (found.key, found.forward_key_in) == (KeyPolicy(QueryKey("id"), required=False, max_length=40), QueryKey("out"))


OLD_VERSION = HEAD + "fingerprint_version: 2\n" + ROUTES


@pytest.mark.parametrize("field", ["ignore_headers: [Host]", "ignore_query: [a]", "ignore_form: [a]"])
def test_an_older_fingerprint_version_leaves_out_nothing_by_name(tmp_path: Path, field: str) -> None:
    """What version 2 does not know is refused under it, in `defaults` and dialects too."""
    name = field.partition(":")[0]
    message = f"fingerprint.{name}: needs `fingerprint_version: 3`; version 2 does not know it"
    (found,) = mistakes(tmp_path, f"{OLD_VERSION}      fingerprint: {{{field}}}\n")
    assert found.endswith(message)
    assert mistakes(tmp_path, OLD_VERSION) == []
    assert read(tmp_path, OLD_VERSION).fingerprint_version == 2
    assert read(tmp_path, BASE).fingerprint_version == 3


@pytest.mark.parametrize("version", [1, 4])
def test_fingerprint_versions_that_are_not_written(tmp_path: Path, version: int) -> None:
    text = OLD_VERSION.replace("version: 2", f"version: {version}")
    assert mistakes(tmp_path, text) == [f"gateway.yaml:5:22: fingerprint_version: must be from 2 to 3, found {version}"]


NO_OUTCOME = "say with `outcome` what it means: completed, not-executed, unknown, exists"
MISTAKES = [
    pytest.param("mode: obsrve", '11:13: mode: expected one of enforce, observe, found "obsrve"; did you mean `observe`?', id="mode"),
    pytest.param("key: {header: A, query: b}", "11:31: key.query: `header` is given too; keep one of them", id="two-places"),
    pytest.param(
        "key: {json_pointer: /a, query: b}", "11:38: key.query: `json_pointer` is given too; keep one of them", id="two-places-in-order"
    ),
    pytest.param("key: {header: []}", "11:21: key.header: the list is empty; name at least one", id="no-header"),
    pytest.param("key: {header: [A-B, X, a_b]}", "11:21: key.header: A-B and a_b are one field; keep one of them", id="one-header-twice"),
    pytest.param(
        "key: {header: [A, Host]}",
        "11:21: key.header: Host has a meaning of its own, which a key would destroy; name another field",
        id="a-taken-header",
    ),
    pytest.param(
        "key: {form: a}\n      forward_key_in: {json_pointer: /a}",
        "12:23: forward_key_in: a body that holds the key as a form holds none as JSON, and the other way round; "
        "name the same kind, a header or a query",
        id="form-to-json",
    ),
    pytest.param("key: {name: A}", "11:13: key.name: unknown key; did you mean `header`?", id="key-name"),
    pytest.param("key: {pointer: /a}", "11:13: key.pointer: unknown key; did you mean `json_pointer`?", id="key-pointer"),
    pytest.param("key: {cookie: a}", "11:13: key.cookie: unknown key", id="key-cookie"),
    pytest.param(
        "key: {json_pointer: ''}",
        "11:27: key.json_pointer: the empty pointer means the whole body; name a member, as in /idempotency_key",
        id="key-whole-body",
    ),
    pytest.param(
        "key: {json_pointer: a.b}",
        '11:27: key.json_pointer: "a.b" is not a JSON pointer; it starts with /, and ~ is written ~0, / inside a name ~1 (RFC 6901)',
        id="key-no-pointer",
    ),
    pytest.param(
        "key: {query: ''}",
        "11:20: key.query: a query parameter has a name of 1 to 128 printable characters, as in request_id; write it decoded",
        id="key-no-parameter",
    ),
    pytest.param(
        "key: {pattern: '[a-'}",
        "11:22: key.pattern: is not a regular expression: unterminated character set at position 0",
        id="pattern",
    ),
    pytest.param(
        "key: {pattern: '[[a]'}",
        "11:22: key.pattern: is not a regular expression: Possible nested set at position 1",
        id="pattern-of-another-meaning",
    ),
    pytest.param(
        "fingerprint: {ignore_headers: [Authorization]}",
        '11:38: fingerprint.ignore_headers[0]: "Authorization" does not count by itself; remove it',
        id="ignore-what-does-not-count",
    ),
    pytest.param(
        "fingerprint: {ignore_headers: [If-Matches]}",
        '11:38: fingerprint.ignore_headers[0]: "If-Matches" does not count by itself; did you mean `if-match`?',
        id="ignore-misspelt",
    ),
    pytest.param(
        "fingerprint: {only: [a]}",
        '11:28: fingerprint.only[0]: "a" is not a JSON pointer; it starts with /, and ~ is written ~0, / inside a name ~1 (RFC 6901)',
        id="only",
    ),
    pytest.param("on_expired: go", '11:19: on_expired: expected one of execute, gone, found "go"; did you mean `gone`?', id="on-expired"),
    pytest.param("tombstone: 0s", "11:18: tombstone: must be from 1s to 3650d, found 0s", id="tombstone"),
    pytest.param("expired: archive", '11:16: expired: expected one of delete, keep, found "archive"', id="expired"),
    pytest.param("keep_for: 90", "11:17: keep_for: 90 has no unit; write 90s for seconds (units: ms, s, m, h, d)", id="keep-for"),
    pytest.param(
        "hints: {header: A}", "11:14: hints: expected a list, found a mapping; put it in [ ], or begin each item with a dash", id="hints"
    ),
    pytest.param("hints: [{outcome: completed}]", "11:15: hints[0]: `header` or `when` is required", id="hint-header"),
    pytest.param(
        "hints: [{header: A, value: 'true'}]", f"11:34: hints[0].value: `true` names no outcome; {NO_OUTCOME}", id="hint-without-outcome"
    ),
    pytest.param(
        "hints: [{when: [{pointer: /a, exists: true}]}]",
        f"11:15: hints[0].outcome: is required: what it means that the body is so: {NO_OUTCOME.rpartition(': ')[2]}",
        id="hint-of-the-body-without-outcome",
    ),
    pytest.param(
        "hints: [{when: [{pointer: /a, exists: true}], outcome: unknown, value: a}]",
        "11:78: hints[0].value: is of a header field; name it with `header`, or remove this",
        id="hint-of-the-body-with-a-value",
    ),
    pytest.param(
        "hints: [{header: A, outcome: completed, answer: {status: 201}}]",
        "11:55: hints[0].answer: an answer is built where `outcome: exists` says that the operation was executed before; remove it",
        id="hint-answer-of-another-outcome",
    ),
    pytest.param(
        "hints: [{header: A, outcome: exists, answer: {headers: {B: '{captured.order}'}}}]",
        "11:52: hints[0].answer: `{captured.order}` is not captured; what is captured is nothing: write `capture: {name: /pointer}`",
        id="hint-answer-not-captured",
    ),
    pytest.param(
        "hints: [{header: A, outcome: released}]",
        '11:36: hints[0].outcome: expected one of completed, not-executed, unknown, exists, found "released"',
        id="hint-outcome",
    ),
    pytest.param(
        "hints: [{header: A, value: ' a'}]",
        "11:34: hints[0].value: a header value is visible ASCII with single spaces inside, 256 characters at most",
        id="hint-value",
    ),
    pytest.param(
        "hints: [{header: Connection, remove: true}]",
        "11:44: hints[0].remove: Connection says how the answer is sent, and is the gateway's to write",
        id="hint-hop",
    ),
    pytest.param(
        "hints: [{header: A, statuses: [99]}]", "11:38: hints[0].statuses[0]: must be from 100 to 599, found 99", id="hint-status"
    ),
    pytest.param(
        "forward_key_in: {}", "11:23: forward_key_in: one of `header`, `query`, `json_pointer`, `form` is required", id="forward-nowhere"
    ),
    pytest.param(
        "forward_key_in: {header: A, json_pointer: /a}",
        "11:49: forward_key_in.json_pointer: `header` is given too; keep one of them",
        id="forward-twice",
    ),
    pytest.param("duplicates: 2h", "11:19: duplicates: must be from 0s to 1h, found 2h", id="duplicates"),
    pytest.param("principal_combine: any", '11:26: principal_combine: expected one of all, first, found "any"', id="combine"),
]


@pytest.mark.parametrize(("line", "expected"), MISTAKES)
def test_a_mistake_is_found_where_it_stands(tmp_path: Path, line: str, expected: str) -> None:
    """One wrong line gives one message, at the key or value to change."""
    place, rest = expected.split(": ", 1)
    assert mistakes(tmp_path, f"{BASE}      {line}\n") == [f"gateway.yaml:{place}: routes[0].idempotency.{rest}"]


IDLE = [
    pytest.param("wait: 5s", "11:13: wait: has no effect with `in_flight: conflict`", id="wait"),
    pytest.param("tombstone: 5d", "11:18: tombstone: has no effect with `on_expired: execute`", id="tombstone"),
    pytest.param("keep_for: 5d", "11:17: keep_for: has no effect with `expired: delete`", id="keep-for"),
    pytest.param("mark_duplicates: true", "11:24: mark_duplicates: has no effect with `duplicates: 0s`", id="duplicates"),
    pytest.param(
        "forward_key_in: {header: A}\n      forward_key: none",
        "11:23: forward_key_in: has no effect with `forward_key: none`",
        id="forward",
    ),
    pytest.param("principal_combine: first", "11:26: principal_combine: has no effect with one source", id="combine"),
    pytest.param("fingerprint: {body: form, only: [/a]}", "11:39: fingerprint.only: has no effect with `body: form`", id="only"),
    pytest.param(
        "fingerprint: {body: bytes, ignore_form: [a]}",
        "11:47: fingerprint.ignore_form: has no effect with `body: bytes`",
        id="ignore-form",
    ),
    pytest.param(
        "fingerprint: {ignore_form: [a]}\n      limits: {request_body: 2MiB}",
        "12:30: limits.request_body: a body is looked into up to 1MiB: a larger one counts whole in the fingerprint",
        id="ignore-form-of-large",
    ),
    pytest.param(
        "fingerprint: {only: [/a]}\n      limits: {request_body: 2MiB}",
        "12:30: limits.request_body: a body is looked into up to 1MiB: a larger one counts whole in the fingerprint",
        id="only-of-large",
    ),
    pytest.param(
        "key: {json_pointer: /a}\n      limits: {request_body: 2MiB}",
        "12:30: limits.request_body: a body is looked into up to 1MiB: a key in a larger body is not found",
        id="key-in-large",
    ),
    pytest.param(
        "key: {form: a}\n      limits: {request_body: 2MiB}",
        "12:30: limits.request_body: a body is looked into up to 1MiB: a key in a larger body is not found",
        id="form-key-in-large",
    ),
    pytest.param("wait: 10s\n      tombstone: 30d\n      keep_for: 90d\n      mark_duplicates: false", None, id="defaults"),
    pytest.param("on_expired: gone\n      tombstone: 5d\n      expired: keep\n      keep_for: 5d", None, id="in-use"),
]


@pytest.mark.parametrize(("lines", "expected"), IDLE)
def test_a_setting_that_changes_nothing_is_a_warning(tmp_path: Path, lines: str, expected: str | None) -> None:
    """The warning stands at the setting and names what is in its way."""
    found = [str(one).removeprefix(f"{tmp_path}/gateway.yaml:") for one in read(tmp_path, f"{BASE}      {lines}\n").warnings]
    assert [one.replace("routes[0].idempotency.", "") for one in found] == ([] if expected is None else [expected])


def test_a_setting_of_defaults_may_serve_one_route_alone(tmp_path: Path) -> None:
    """What one route uses is no mistake for another that does not."""
    routes = ROUTES + "  - {id: b, path: /b, upstream: payments, idempotency: {principal: none, in_flight: wait}}\n"
    assert read(tmp_path, f"{HEAD}defaults: {{wait: 5s}}\n{routes}").warnings == ()
    assert len(read(tmp_path, f"{HEAD}defaults: {{wait: 5s}}\n{ROUTES}").warnings) == 1


def test_a_key_in_a_body_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    """DELETE has no body, as a rule."""
    text = BASE.replace("    path:", "    methods: [DELETE, POST]\n    path:") + "      key: {json_pointer: /a}\n"
    assert [one.message for one in read(tmp_path, text).warnings] == ["DELETE requests have no body to hold a key"]


KEYS = "jwks_url: 'https://login.example/keys', algorithms: [RS256]"
JWT = [
    pytest.param(
        f"claim: sub, {KEYS}",
        "audience: is not given: a token that was meant for another service of the issuer counts here too",
        id="audience",
    ),
    pytest.param(
        f"claim: realm.tenant, audience: a, {KEYS}",
        "claim: is the claim called `realm.tenant`; if a nested one is meant, write [realm, tenant]",
        id="dotted",
    ),
    pytest.param(
        f"claim: sub, audience: a, {KEYS}".replace("https", "http"),
        "jwks_url: http: whoever sits between can put in keys of their own; use https",
        id="http",
    ),
    pytest.param(
        f"claim: sub, secret: {'x' * 32}, algorithms: [HS256], refresh: 1m", "refresh: has no effect without `jwks_url`", id="refresh"
    ),
    pytest.param(f"claim: 'https://claims.example/tenant', audience: a, {KEYS}", None, id="claim-with-a-url"),
    pytest.param(f"claim: sub, audience: a, {KEYS}".replace("https://login.example", "http://127.0.0.1:8000"), None, id="loopback"),
]


@pytest.mark.parametrize(("fields", "expected"), JWT)
def test_a_doubtful_token_is_a_warning(tmp_path: Path, fields: str, expected: str | None) -> None:
    """What is valid and rarely meant."""
    found = [str(one).partition("jwt.")[2] for one in read(tmp_path, BASE.replace("none", f"[{{jwt: {{{fields}}}}}]")).warnings]
    assert found == ([] if expected is None else [expected])


def on(host: str) -> str:
    return BASE.replace("    path:", f"    host: {host}\n    path:")


@pytest.mark.parametrize(
    ("written", "hosts"),
    [("Shop.Example", ("shop.example",)), ('[a.test, "*.a.test", A.TEST]', ("a.test", "*.a.test")), ("a.test.", ("a.test",))],
)
def test_a_route_is_for_its_hosts(tmp_path: Path, written: str, hosts: tuple[str, ...]) -> None:
    """One or several, each in one spelling."""
    assert read(tmp_path, on(written)).routes[0].hosts == hosts
    assert read(tmp_path, BASE).routes[0].hosts == ()


HOST_MISTAKES = [
    ("a.test:80", "'a.test:80': a route's host is a name alone, as in shop.example; it stands for any port"),
    ("shöp.test", "'shöp.test': write the name as it is sent, in ASCII (xn--...)"),
    ("a_.*.test", "'a_.*.test' is not a host name such as shop.example, or *.example for every name below that one"),
]


@pytest.mark.parametrize(("written", "message"), HOST_MISTAKES)
def test_what_is_no_host(tmp_path: Path, written: str, message: str) -> None:
    assert mistakes(tmp_path, on(written)) == [f"gateway.yaml:7:11: routes[0].host: {message}"]


def test_a_route_for_a_host_is_shadowed_by_one_for_more_hosts(tmp_path: Path) -> None:
    """Behind a wider one it is unreachable; before it, it is not; the table shows hosts before paths."""
    wide = '  - {id: wide, path: /v1/charges, host: "*.test", upstream: payments, methods: [POST, PATCH]}\n'
    narrow = "  - {id: narrow, path: /v1/charges, host: a.test, upstream: payments, methods: [POST]}\n"
    assert mistakes(tmp_path, f"{HEAD}routes:\n{wide}{narrow}") == [
        "gateway.yaml:7:24: routes[1].path: this route can never match: all of its requests go to `wide` (line 6)"
    ]
    routes = read(tmp_path, f"{HEAD}routes:\n{narrow}{wide}").routes
    assert "a.test/v1/charges" in route_table(routes)
