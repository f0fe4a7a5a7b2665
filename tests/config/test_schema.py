"""The JSON Schema of the file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import Config, json_schema
from gateway.core.kinds import ListOf, MapOf, SectionOf
from gateway.core.setting import settings_of
from tests.config.support import HEAD, ROUTES
from tests.config.test_load import FULL, LEAST

SCHEMA: dict[str, Any] = json.loads(json.dumps(json_schema()))
EXAMPLES = sorted((Path(__file__).parents[2] / "config").glob("*.yaml"))
TYPES: dict[str, type | tuple[type, ...]] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
TYPES |= {"number": (int, float), "null": type(None)}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """The part of JSON Schema that ours uses. A keyword that it does not know is an error, so that none is passed over."""
    return all(_keyword(schema, name, wanted, value) for name, wanted in schema.items())


def _keyword(schema: dict[str, Any], name: str, wanted: Any, value: Any) -> bool:
    match name:
        case "$schema" | "$defs" | "title" | "description" | "default" | "x-minimum" | "x-maximum":
            return True
        case "$ref":
            return accepts(SCHEMA["$defs"][wanted.removeprefix("#/$defs/")], value)
        case "type":
            return isinstance(value, TYPES[wanted]) and not (wanted == "integer" and isinstance(value, bool))
        case "anyOf" | "oneOf":
            matches = sum(accepts(one, value) for one in wanted)
            return matches == 1 if name == "oneOf" else matches > 0
        case "not":
            return not accepts(wanted, value)
        case "allOf":
            return all(accepts(one, value) for one in wanted)
        case "enum" | "const":
            return value in (wanted if name == "enum" else [wanted])
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "minimum" | "maximum":
            return not isinstance(value, int) or (int(wanted) <= value if name == "minimum" else value <= int(wanted))
        case "items":
            return not isinstance(value, list) or all(accepts(wanted, item) for item in value)
        case "minItems":
            return not isinstance(value, list) or len(value) >= int(wanted)
        case "uniqueItems":
            return not isinstance(value, list) or all(item not in value[:index] for index, item in enumerate(value))
        case _:
            return not isinstance(value, dict) or _object_keyword(schema, name, wanted, value)


def _object_keyword(schema: dict[str, Any], name: str, wanted: Any, value: dict[str, Any]) -> bool:
    match name:
        case "required":
            return all(key in value for key in wanted)
        case "minProperties":
            return len(value) >= int(wanted)
        case "properties":
            return all(accepts(wanted[key], item) for key, item in value.items() if key in wanted)
        case "propertyNames":
            return all(accepts(wanted, key) for key in value)
        case "patternProperties":
            return all(accepts(inner, item) for pattern, inner in wanted.items() for key, item in value.items() if re.search(pattern, key))
        case "additionalProperties":
            free = [*schema.get("patternProperties", {})]
            known = {key for key in value if key in schema.get("properties", {}) or any(re.search(pattern, key) for pattern in free)}
            extra = [item for key, item in value.items() if key not in known]
            return all(wanted is not False and accepts(wanted, item) for item in extra)
        case _:
            raise AssertionError(f"unknown keyword {name}")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_fit(path: Path) -> None:
    """Every example route map is valid under the schema, variables and all."""
    assert accepts(SCHEMA, yaml.safe_load(path.read_text()))


EVERY_PROBE = """\
      on_unknown: reexecute
      reconcile:
        probe: "${PROBE}"
        request: {method: GET, path: "/a?b={key}", headers: {A: "${A}"}, headers_file: {B: b}, body: "{}"}
        capture: {a: /a, b: "${B}"}
        rules:
          - status: [200, "${STATUS}"]
            when: [{pointer: "", exists: true}, {pointer: /a, equals: [1, 1.5, a, true, null]}]
            verdict: executed
          - {when: [{pointer: /b, empty: true}, {pointer: /c, not_empty: true}, {pointer: /d, missing: true}], verdict: not_executed}
          - {verdict: executed, answer: {status: 201, headers: {A: b}, body: ""}}
      webhook:
        path: /a
        signature: {hmac_sha256: {header: A, secret_files: [a, b], encoding: base64, prefix: v1=}}
        event_id: header:webhook-id
        find: /a
        by: a
        rules: [{verdict: executed}]
"""
EVERY_SOURCE = """[{header: A}, {basic: true}, {client_certificate: {}}, {client_certificate: {header: X}},
    {jwt: {claim: sub, algorithms: [RS256], jwks_url: "https://a/keys", audience: a}},
    {jwt: {claim: [a, b], algorithms: [HS256, HS512], secret_file: s, audience: [a, b], issuer: i, header: X, leeway: 0s}},
    {jwt: {claim: "${CLAIM}", algorithms: ["${ALGORITHM}"], jwks_file: a, refresh: 1m, stale: 1h}},
    {forward_auth: {upstream: payments, path: /check, answer_header: A, forward: [Cookie], cache: 0s}}]"""


@pytest.mark.parametrize(
    "text",
    [LEAST, FULL, HEAD + ROUTES, (HEAD + ROUTES).replace("none", EVERY_SOURCE), HEAD + ROUTES + "      dialect: ./house.yaml\n"],
)
def test_what_loads_fits(text: str) -> None:
    """Files that load are valid under the schema."""
    assert accepts(SCHEMA, yaml.safe_load(text))


def test_every_field_of_probes_and_webhooks_fits() -> None:
    """As far as an editor can judge them: each kind of value is taken, variables too."""
    assert accepts(SCHEMA, yaml.safe_load(HEAD + ROUTES + EVERY_PROBE))


WRONG = [
    ("workers: 1", "workers: many"),
    ("workers: 1", "wrokers: 1"),
    ("lease: 30s", "lease: 30"),
    ("lease: 30s", "lease: 30 s"),
    ("in_flight: wait", "in_flight: later"),
    ("stream: true", "stream: 1"),
    ("principal: none", "principal: any"),
    ("principal: none", "principal: [{jwt: {claim: sub}}]"),
    ("principal: none", "principal: [{jwt: {claim: sub, algorithms: [none], secret: s}}]"),
    ("principal: none", "principal: [{jwt: {claim: sub, algorithms: [RS256], jwks_file: a, jwks_url: 'https://a'}}]"),
    ("principal: none", "principal: [{header: A, basic: true}]"),
    ("principal: none", "principal: [{}]"),
    ("principal: none", "principal: []"),
    ("principal: none", "principal: [{forward_auth: {upstream: payments, path: check, answer_header: A}}]"),
    ("lease: 30s", "key: {header: A, query: a}"),
    ("lease: 30s", "forward_key_in: {}"),
    ("lease: 30s", "forward_key_in: {header: A, json_pointer: /a}"),
    ("lease: 30s", "dialect: strip"),
    ("lease: 30s", "hints: [{outcome: completed}]"),
    ("lease: 30s", "fingerprint: {only: [a]}"),
    ("release_on: [429]", "release_on: [429, 429]"),
    ("release_on: [429]", "release_on: [99]"),
    ("lease: 30s", "on_unknown: retry"),
    ("lease: 30s", "reconcile: {probe: ask}"),
    ("lease: 30s", "reconcile: {rules: [{status: [200]}]}"),
    ("lease: 30s", "reconcile: {rules: [{verdict: done}]}"),
    ("lease: 30s", "reconcile: {rules: [{verdict: executed, when: [{pointer: /a}]}]}"),
    ("lease: 30s", "reconcile: {rules: [{verdict: executed, when: [{pointer: /a, equals: 1, exists: true}]}]}"),
    ("lease: 30s", "reconcile: {rules: [{verdict: executed, when: [{pointer: /a, exists: false}]}]}"),
    ("lease: 30s", "reconcile: {rules: [{verdict: executed, when: [{pointer: /a, equals: {}}]}]}"),
    ("lease: 30s", "reconcile: {rules: [{verdict: executed, when: [{pointer: a, equals: 1}]}]}"),
    ("lease: 30s", "reconcile: {rules: [{verdict: executed, answer: {body: a, pointer: /a}}]}"),
    ("lease: 30s", "reconcile: {request: {headers: [A]}}"),
    ("lease: 30s", "reconcile: {request: {headers: {'A B': a}}}"),
    ("lease: 30s", "reconcile: {capture: {a-b: /a}}"),
    ("lease: 30s", "webhook: {signature: {}}"),
    ("lease: 30s", "webhook: {signature: {stripe: {}}}"),
    ("lease: 30s", "webhook: {signature: {stripe: {secret: a, secrets: [b]}}}"),
    ("lease: 30s", "webhook: {event_id: id}"),
    ("dsn: ", "dns: "),
    ("url: ", "urls: "),
]


@pytest.mark.parametrize(("good", "bad"), WRONG)
def test_what_an_editor_can_tell_is_refused(good: str, bad: str) -> None:
    """Unknown keys, wrong types, units, words and missing values are wrong under the schema too."""
    text = HEAD + ROUTES + "      lease: 30s\n      in_flight: wait\n      stream: true\n      release_on: [429]\nworkers: 1\n"
    assert good in text
    assert accepts(SCHEMA, yaml.safe_load(text))
    assert not accepts(SCHEMA, yaml.safe_load(text.replace(good, bad)))


def test_every_field_is_described() -> None:
    """The schema has one described property for each field of the table, its default, and one for each twin."""
    _compare(Config, SCHEMA)
    route, _ = SCHEMA["properties"]["routes"]["items"]["anyOf"]  # or an include
    idempotency = route["properties"]["idempotency"]["properties"]
    assert idempotency["lease"]["default"] == "30s"
    assert idempotency["limits"]["properties"]["response_body"]["default"] == "8MiB"
    assert idempotency["doubt_on"]["default"] == [408, 502, 503, 504, *range(520, 528), 530]
    assert "default" not in idempotency["principal"]


def _compare(section: type, schema: dict[str, Any]) -> None:
    names = {name for field in settings_of(section) for name in field.names}
    assert set(schema["properties"]) == names
    for field in settings_of(section):
        described = schema["properties"][field.name]
        assert described["description"].endswith(".")
        assert ("default" in described) == (field.write(field.default) is not None)
        match field.kind:
            case SectionOf(of=inner):
                _compare(inner, described)
            case ListOf(item=SectionOf(of=inner), include=True):
                _compare(inner, described["items"]["anyOf"][0])
            case ListOf(item=SectionOf(of=inner)):
                _compare(inner, described["items"])
            case MapOf(of=inner):
                _compare(inner, described["additionalProperties"])
            case _:
                pass
