"""The OpenAPI overlay: the contract of each guarded operation, in the API's own description."""

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import RETRY_AFTER_MAX
from gateway.core.dialect_model import Dialect, Replay, Situation, Template
from gateway.core.key_policy import BodyKey, HeaderKey, KeyMode, KeyPolicy, QueryKey
from gateway.core.openapi import METHODS, UNPLACED, Behind, overlay
from gateway.core.policy import Execution, InFlight, Mode, OnExpired, OnStoreOutage, Policy, Route
from gateway.core.principal_source import HeaderPrincipal
from gateway.core.problems import Problem
from gateway.core.quota import NewKeys, Quota
from gateway.core.rewrite import Rewrite
from gateway.core.units import Rate
from gateway.http.problem import ProblemWriter
from tests.core.overlays import Json, apply, valid

BASE = "https://docs.example/problems/"
POST = frozenset({"POST"})
CHARGE = Policy("charges", (HeaderPrincipal("Authorization"),), on_expired=OnExpired.GONE, status_fields=True)
ROUTES = (
    Route("create-charge", "/v1/charges", "up", POST, CHARGE),
    Route("capture", "/v1/charges/{charge}/capture", "up", frozenset({"POST", "PUT"}), Policy("capture", (), KeyPolicy(required=False))),
    Route("rest", "/**", "up"),
)
API: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "API", "version": "1"},
    "paths": {
        "/v1/charges": {
            "get": {"responses": {"200": {"description": "A list"}}},
            "post": {"responses": {"201": {"description": "A charge"}, "409": {"description": "Already refunded"}}},
        },
        "/v1/charges/{id}/capture": {"post": {"parameters": [{"name": "id", "in": "path"}], "responses": {"200": {"description": "Ok"}}}},
    },
}


def operation(document: Json, path: str = "/v1/charges", method: str = "post") -> dict[str, Any]:
    found = document["paths"][path][method]
    assert isinstance(found, dict)
    return found


def applied(policy: Policy, api: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """The description with the contract of one route, `POST /v1/charges`."""
    routes = (Route("create-charge", "/v1/charges", "up", POST, policy),)
    document = API if api is None else api
    return operation(apply(overlay(routes, BASE, **settings), document))


def test_form() -> None:
    """The document has the fields that Overlay 1.0 requires and no others but its own extension; it is JSON, and always the same."""
    for document in (None, API):
        made = overlay(ROUTES, BASE, document=document, title="T", version="2")
        assert made.keys() - {UNPLACED} == {"overlay", "info", "actions"}
        assert made["overlay"] == "1.0.0"
        assert made["info"] == {"title": "T", "version": "2"}
        assert all(action.keys() == {"target", "description", "update"} for action in made["actions"])
        assert all(re.fullmatch(r"\$[.\[].+", action["target"]) for action in made["actions"])
        assert json.loads(json.dumps(made)) == made
        assert json.dumps(made) == json.dumps(overlay(ROUTES, BASE, document=document, title="T", version="2"))


def test_without_routes_it_still_is_an_overlay() -> None:
    """The list of actions is never empty, as the specification wants."""
    [action] = overlay((), BASE)["actions"]
    assert apply(overlay((), BASE), API)["info"]["x-idempotency"] == {"problemTypes": BASE}
    assert action["target"] == "$.info"


def test_nothing_given_is_changed() -> None:
    """The API's description is read and not written to."""
    before = copy.deepcopy(API)
    overlay(ROUTES, BASE, document=API)
    assert before == API


paths = st.sampled_from(["/a", "/a/{x}", "/b'c", "/v1/**", "/**"])
methods = st.frozensets(st.sampled_from(["POST", "PUT", "PATCH", "PURGE"]), max_size=3)
policies = st.sampled_from([None, CHARGE, Policy("s", (), mode=Mode.OBSERVE), Policy("q", (), KeyPolicy(QueryKey("id")))])
route_maps = st.lists(st.tuples(paths, methods, policies), max_size=6).map(
    lambda lines: tuple([Route(f"r{at}", path, "up", method, policy) for at, (path, method, policy) in enumerate(lines)])
)
descriptions: st.SearchStrategy[dict[str, Any] | None] = st.none() | st.just(
    {"paths": {path: {method.lower(): {"responses": {}} for method in METHODS} for path in ("/a", "/a/{id}", "/b'c", "/v1/x", "/{y}.json")}}
)


@given(route_maps, descriptions)
def test_every_guarded_route_and_method_is_there(routes: tuple[Route, ...], document: dict[str, Any] | None) -> None:
    """Each guarded route's every method has its action, or is named among the unplaced, with a reason; and no operation has two keys."""
    made = overlay(routes, BASE, document=document)
    updates = [action for action in made["actions"] if "x-idempotency" in action["update"] and action["target"] != "$.info"]
    assert len({action["target"] for action in updates}) == len(updates)
    said = {(action["description"].partition(":")[0], re.findall(r"'([a-z]+)'\]$", action["target"])[0].upper()) for action in updates}
    unplaced = {(entry["route"], entry["method"]) for entry in made.get(UNPLACED, [])}
    for route in routes:
        for method in route.methods:
            assert ((route.id, method) in said or (route.id, method) in unplaced) == (route.policy is not None)
        if not route.methods and route.policy is not None:
            assert any(route.id == one for one, _ in said) != ((route.id, "*") in unplaced)
    assert all(entry["reason"] for entry in made.get(UNPLACED, []))


def test_applied_without_the_description() -> None:
    """Paths spelled as in the route map get the contract, and all that was said stays as it was."""
    result = apply(overlay(ROUTES, BASE), API)
    created = operation(result)
    assert [one["name"] for one in created["parameters"]] == ["Idempotency-Key"]
    assert set(created["responses"]) == {"201", "400", "401", "409", "410", "422", "503"}
    assert created["responses"]["201"]["description"] == "A charge"
    assert "x-idempotency" not in operation(result, method="get")
    assert "x-idempotency" not in operation(result, "/v1/charges/{id}/capture"), "its parameter has another name"


def test_applied_with_the_description() -> None:
    """Operations are found whatever their parameters are called; the API's own texts and parameters stay."""
    result = apply(overlay(ROUTES, BASE, document=API), API)
    assert operation(result)["responses"]["409"]["description"] == "Already refunded"
    assert "application/problem+json" in operation(result)["responses"]["409"]["content"]
    capture = operation(result, "/v1/charges/{id}/capture")
    assert [one["name"] for one in capture["parameters"]] == ["id", "Idempotency-Key"]
    assert overlay(ROUTES, BASE, document=API)[UNPLACED] == [
        {
            "route": "capture",
            "method": "PUT",
            "path": "/v1/charges/{charge}/capture",
            "reason": "The description has no operation that is wholly of this route.",
        }
    ]


def test_routes_for_everything() -> None:
    """A guarded `/**` covers every operation that the description has, but for those of earlier routes."""
    routes = (Route("list", "/v1/charges", "up", frozenset({"GET"})), Route("all", "/**", "up", frozenset(), CHARGE))
    result = apply(overlay(routes, BASE, document=API), API)
    guarded = [(path, method) for path, item in result["paths"].items() for method, said in item.items() if "x-idempotency" in said]
    assert guarded == [("/v1/charges", "post"), ("/v1/charges/{id}/capture", "post")]


def test_base_path() -> None:
    """The server's path in the description is the beginning of paths in the route map."""
    api = {"paths": {"/charges": {"post": {"responses": {"200": {"description": "Ok"}}}}}}
    for document in (None, api):
        result = apply(overlay(ROUTES, BASE, base_path="/v1", document=document), api)
        assert "x-idempotency" in operation(result, "/charges")
    made = overlay((Route("x", "/v1x", "up", POST, CHARGE),), BASE, base_path="/v1")
    assert [entry["route"] for entry in made[UNPLACED]] == ["x"]


REWRITING = (
    Route("capture", "/pay/{charge}/capture", "up", POST, CHARGE, rewrite=Rewrite("/pay", "/charges")),
    Route("older", "/old/{charge}/capture", "up", POST, Policy("older", ()), rewrite=Rewrite("/old", "/charges")),
    Route("elsewhere", "/charges/{id}/capture", "other", POST, CHARGE),
)
INSIDE: dict[str, Any] = {
    "paths": {
        "/charges/{id}/capture": {"post": {"responses": {"200": {"description": "Ok"}}}},
        "/pay/{id}/capture": {"post": {"responses": {"200": {"description": "Ok"}}}},
    }
}


@pytest.mark.parametrize(("fronts", "base_path"), [(("",), ""), (("/api",), "/api"), (("/blue", "/green"), "/green")])
def test_the_description_of_an_upstream_behind_rewrites(fronts: tuple[str, ...], base_path: str) -> None:
    """Its paths are those that it gets, whatever their parameters are called; routes to others are not of it. The first route counts."""
    made = overlay(REWRITING, BASE, document=INSIDE, base_path=base_path, behind=Behind("up", fronts))
    result = apply(made, INSIDE)
    assert operation(result, "/charges/{id}/capture")["x-idempotency"]["onExpired"] == "gone"
    assert "x-idempotency" not in operation(result, "/pay/{id}/capture")
    assert [entry["route"] for entry in made[UNPLACED]] == ["older"]


def test_the_description_that_clients_know_has_their_paths() -> None:
    result = apply(overlay(REWRITING, BASE, document=INSIDE), INSIDE)
    assert "x-idempotency" in operation(result, "/pay/{id}/capture")


@pytest.mark.parametrize(
    ("key", "name", "where"),
    [(KeyPolicy(HeaderKey("X-Key")), "x-KEY", "header"), (KeyPolicy(QueryKey("id")), "id", "query")],
)
def test_a_documented_key_is_not_added_twice(key: KeyPolicy, name: str, where: str) -> None:
    """A parameter that the description has stays alone; one of the same name elsewhere is another one."""
    for at, count in ((where, 1), ("cookie", 2)):
        api = copy.deepcopy(API)
        operation(api)["parameters"] = [{"name": name, "in": at, "schema": {"type": "string"}}]
        assert len(applied(Policy("s", (), key), api, document=api)["parameters"]) == count
        api["components"] = {"parameters": {"a/b": operation(api)["parameters"][0]}}
        operation(api)["parameters"] = [{"$ref": "#/components/parameters/a~1b"}]
        assert len(applied(Policy("s", (), key), api, document=api)["parameters"]) == count


def test_statuses_as_numbers() -> None:
    """A description that was read from YAML may have its statuses as numbers; its texts are kept all the same."""
    api = {"paths": {"/v1/charges": {"post": {"responses": {409: {"description": "Already refunded"}}}}}}
    made = overlay(ROUTES, BASE, document=api)
    [ours] = [action["update"]["responses"]["409"] for action in made["actions"] if "responses" in action["update"]]
    assert "description" not in ours


@pytest.mark.parametrize(
    ("key", "fits", "misfits"),
    [
        (KeyPolicy(min_length=4, max_length=6), ["abcd", "abcdef"], ["abc", "abcdefg"]),
        (KeyPolicy(mode=KeyMode.STRICT, min_length=4, max_length=6), ['"abcd"', '"abcdef"'], ['"abc"', '"abcdefg"']),
        (KeyPolicy(pattern="[0-9a-f]{4}|x"), ["09af", "x"], ["09AF", "09afx", ""]),
        (KeyPolicy(mode=KeyMode.STRICT, pattern="[0-9]+"), ['"12"'], ["12", '"a"']),
        (KeyPolicy(pattern="[a-f]+", fold_case=True), ["abc", "ABC"], []),
        (KeyPolicy(pattern=r"\A(?P<x>[a-f]+)\Z"), ["abc"], []),
    ],
)
def test_key_parameter(key: KeyPolicy, fits: list[str], misfits: list[str]) -> None:
    """The parameter's schema has the route's limits; a pattern that other regular expressions read otherwise is left to `x-idempotency`."""
    said = applied(Policy("s", (), key))
    [parameter] = said["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("Idempotency-Key", "header", True)
    assert all(valid(text, parameter["schema"]) for text in fits)
    assert not any(valid(text, parameter["schema"]) for text in misfits)
    assert said["x-idempotency"]["key"].get("pattern") == key.pattern
    assert said["x-idempotency"]["key"]["caseSensitive"] is not key.fold_case


def test_an_optional_key() -> None:
    """A key that is not required is an optional parameter, and its absence no answer."""
    said = applied(Policy("s", (), KeyPolicy(required=False)))
    assert said["parameters"][0]["required"] is False
    assert _types(said, "400") == [BASE + "key-invalid"]
    assert _types(applied(Policy("s", ())), "400") == [BASE + "key-missing", BASE + "key-invalid"]


def test_a_key_in_the_body() -> None:
    """A key that the API's own schema holds is no parameter; where it is stands in `x-idempotency`."""
    said = applied(Policy("s", (), KeyPolicy(BodyKey("/idempotency_key"), max_length=45)))
    assert "parameters" not in said
    assert said["x-idempotency"]["key"]["in"] == "body"
    assert said["x-idempotency"]["key"]["pointer"] == "/idempotency_key"
    assert said["x-idempotency"]["key"]["maxLength"] == 45


def _types(said: dict[str, Any], status: str) -> list[str]:
    schema = said["responses"][status]["content"]["application/problem+json"]["schema"]
    found = schema["properties"]["type"]["enum"]
    assert isinstance(found, list)
    return found


def test_answers_follow_the_policy() -> None:
    """Only what a route can answer is documented."""
    base = set(applied(Policy("s", ()))["responses"])
    assert base == {"201", "400", "409", "422", "503"}
    assert set(applied(Policy("s", (), on_expired=OnExpired.GONE))["responses"]) == base | {"410"}
    assert set(applied(Policy("s", (HeaderPrincipal("A"),)))["responses"]) == base | {"401"}
    assert set(applied(Policy("s", (), on_store_outage=OnStoreOutage.FORWARD))["responses"]) == base - {"503"}
    assert _types(applied(Policy("s", ())), "409") == [
        BASE + word for word in ("request-in-progress", "outcome-unknown", "response-not-stored")
    ]


@pytest.mark.parametrize(
    "problem",
    [
        *(Problem.KEY_MISSING, Problem.KEY_INVALID, Problem.KEY_REUSED, Problem.REQUEST_IN_PROGRESS, Problem.OUTCOME_UNKNOWN),
        *(Problem.RESPONSE_NOT_STORED, Problem.KEY_EXPIRED, Problem.PRINCIPAL_MISSING, Problem.STORE_UNAVAILABLE),
    ],
    ids=lambda problem: problem.value.slug,
)
def test_real_answers_fit_their_schemas(problem: Problem) -> None:
    """What the gateway really sends is what the overlay says it sends."""
    result = apply(overlay(ROUTES, BASE), API)
    status, _, body = ProblemWriter(BASE).render(problem, request_id="r-1", members={"original_status": 201})
    schema = operation(result)["responses"][str(status)]["content"]["application/problem+json"]["schema"]
    document = json.loads(body)
    assert valid(document, schema)
    assert not valid({**document, "type": BASE + "no-route"}, schema)
    for missing in ("detail", "retry"):
        assert not valid({name: value for name, value in document.items() if name != missing}, schema)
    later = ProblemWriter(BASE).render(problem, request_id="r-1", retry_after=7)[2]
    assert valid(json.loads(later), schema)


def test_fields() -> None:
    """Answers of the API may carry the marks of replays; ours carry when to come back; the status is on both where the route sends it."""
    plain, rich = applied(Policy("s", ())), applied(Policy("s", (), status_fields=True, duplicates=60.0, mark_duplicates=True))
    assert set(plain["responses"]["201"]["headers"]) == {"Idempotent-Replayed", "Original-Request"}
    assert set(plain["responses"]["409"]["headers"]) == {"Retry-After", "Idempotent-Replayed", "Original-Request"}
    assert "headers" not in plain["responses"]["422"]
    status, retry = {"Idempotency-Status", "Idempotency-Expires"}, {"Idempotency-Retry"}
    assert set(rich["responses"]["201"]["headers"]) == {"Idempotent-Replayed", "Original-Request", "Idempotency-Duplicate", *status}
    assert set(rich["responses"]["422"]["headers"]) == status | retry
    assert set(rich["responses"]["400"]["headers"]) == retry


def test_accepted_work() -> None:
    """What may be answered before an operation is run, and what it may end with; the documents that records hold fit."""
    base = set(applied(Policy("s", ()))["responses"])
    shown = applied(Policy("s", (), in_flight=InFlight.ACCEPTED))
    assert set(shown["responses"]) == base | {"202"}
    said = applied(Policy("s", (), execution=Execution.ASYNC, on_expired=OnExpired.GONE))
    assert set(said["responses"]) == base | {"202", "408", "410", "429"}
    assert set(said["responses"]["202"]["headers"]) == {"Location", "Link", "Retry-After"}
    assert "Retry-After" in said["responses"]["429"]["headers"]
    assert _types(said, "410") == [BASE + "key-expired", BASE + "cancelled"]
    assert said["x-idempotency"]["execution"] == "async"
    for problem in (Problem.ABANDONED, Problem.CANCELLED):
        document = json.loads(ProblemWriter(BASE).render(problem, request_id="")[2])
        del document["instance"]
        schema = said["responses"][str(problem.value.status)]["content"]["application/problem+json"]["schema"]
        assert valid(document, schema)


def test_quotas() -> None:
    """How much a caller may begin, and how it is told that it was too much; beside what else is 429."""
    quota = Quota(5, NewKeys(Rate(50, 1)))
    said = applied(Policy("s", (), quota=quota))
    assert set(said["responses"]["429"]["headers"]) == {"Retry-After", "RateLimit", "RateLimit-Policy"}
    assert _types(said, "429") == [BASE + "quota-exceeded"]
    assert said["x-idempotency"]["quota"] == {"newKeys": {"rate": "50/s", "burst": 50}, "inFlight": 5}
    assert applied(Policy("s", (), quota=Quota(5)))["x-idempotency"]["quota"] == {"inFlight": 5}
    assert _types(applied(Policy("s", (), quota=quota, execution=Execution.PREFER)), "429") == [
        BASE + "too-many-pending",
        BASE + "quota-exceeded",
    ]


def test_retry_after_is_in_its_bounds() -> None:
    """The documented bounds are those that the gateway keeps to."""
    retry = applied(Policy("s", ()))["responses"]["503"]["headers"]["Retry-After"]["schema"]
    assert valid(1, retry)
    assert valid(RETRY_AFTER_MAX, retry)
    assert not valid(0, retry)
    assert not valid(RETRY_AFTER_MAX + 1, retry)


def test_dialect_answers() -> None:
    """A dialect's own answers are documented by their status, media type and fields; the rest stays a problem document."""
    dialect = Dialect(
        "square",
        {
            Situation.MISMATCH: Template(400, (("Content-Type", "application/json; charset=utf-8"), ("X-Code", "REUSED")), '{"errors":[]}'),
            Situation.IN_FLIGHT: Template(429, (("Retry-After", "{retry_after}"),), ""),
            Situation.REPLAYED: Template(409, (("Content-Type", "text/plain"),), "exists"),
        },
        replay=Replay.CONFLICT,
        first_headers=(("Repeatability-Result", "accepted"),),
    )
    said = applied(Policy("s", (), dialect=dialect))
    answers = said["responses"]
    assert set(answers) == {"201", "400", "409", "429", "503"}
    assert set(answers["400"]["content"]) == {"application/json", "application/problem+json"}
    assert answers["400"]["headers"] == {"X-Code": {"schema": {"type": "string", "enum": ["REUSED"]}}}
    assert "content" not in answers["429"]
    assert set(answers["429"]["headers"]) == {"Retry-After"}
    assert set(answers["409"]["content"]) == {"text/plain", "application/problem+json"}
    assert _types(said, "409") == [BASE + "outcome-unknown", BASE + "response-not-stored"]
    assert answers["201"]["headers"] == {"Repeatability-Result": {"schema": {"type": "string", "enum": ["accepted"]}}}
    assert said["x-idempotency"]["replay"] == "conflict"


def test_a_route_that_observes_promises_nothing() -> None:
    """While a route only observes, its documentation says nothing, and the overlay says why."""
    made = overlay((Route("x", "/v1/charges", "up", POST, Policy("s", (), mode=Mode.OBSERVE)),), BASE)
    assert len(made["actions"]) == 1
    assert "observes" in made[UNPLACED][0]["reason"]
