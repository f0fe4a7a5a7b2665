"""What was found, judged by rules."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import Headers
from gateway.core.pointers import NOTHING, Json
from gateway.core.reconcile.found import Built, Found, Judged, Names, judge
from gateway.core.reconcile.policy import OWN_PRINCIPAL, AnswerPlan, Condition, Rule, Verdict
from gateway.core.reconcile.policy import Test as By
from tests.core.jsons import json_texts, values

JSON = ((b"content-type", b"application/json; charset=utf-8"), (b"x-other", b"1"))
NAMES = Names('k"1', {"order": "o/7", "amount": "12"}, "req-1")
EXECUTED, NOT_EXECUTED, NOT_YET_KNOWN = Verdict.EXECUTED, Verdict.NOT_EXECUTED, Verdict.NOT_YET_KNOWN


def found(body: str | bytes, status: int | None = 200, headers: Headers = JSON) -> Found:
    return Found(status, headers, body.encode() if isinstance(body, str) else body)


def meets(condition: Condition, body: str) -> bool:
    return judge(found(body), [Rule(NOT_EXECUTED, when=(condition,))], NAMES).verdict is NOT_EXECUTED


@pytest.mark.parametrize(
    ("placeholder", "body", "met"),
    [
        ("principal", '{"a": "tenant-b"}', True),
        ("principal", '{"a": "tenant-a"}', False),
        ("principal", '{"a": null}', False),
        ("principal", "{}", False),
        ("principal", "[]", False),
        ("captured.amount", '{"a": 12}', True),
        ("captured.amount", '{"a": "12"}', True),
        ("captured.amount", '{"a": 12.0}', False),
        ("captured.gone", '{"a": ""}', False),
        ("key", '{"a": "k\\"1"}', True),
    ],
)
def test_what_is_found_is_bound_to_the_caller(placeholder: str, body: str, met: bool) -> None:
    """A text or a number that is the placeholder's, character by character. What has no value is nobody's."""
    names = Names('k"1', {"amount": "12", OWN_PRINCIPAL: "tenant-b"}, "req-1")
    rule = Rule(EXECUTED, when=(Condition("/a", By.SAME_AS, (placeholder,)),))
    assert (judge(found(body), [rule], names).rule == 0) is met
    assert judge(found('{"a": "tenant-b"}'), [Rule(EXECUTED, when=(Condition("/a", By.SAME_AS, ("principal",)),))], NAMES).rule is None


def test_no_captured_value_stands_for_the_principal() -> None:
    """A client chooses what is captured; a record of a route that captured something under that name says nothing of who asked."""
    assert Names("k", {"principal": "tenant-a"}).value("principal") is NOTHING
    assert Names("k", {OWN_PRINCIPAL: "tenant-b", "principal": "tenant-a"}).value("principal") == "tenant-b"


def answer(plan: AnswerPlan, what: Found) -> Built | str:
    """The answer, or why there is none."""
    judged = judge(what, [Rule(EXECUTED, answer=plan)], NAMES)
    assert (judged.verdict is EXECUTED) == (judged.answer is not None)
    assert judged.verdict in {EXECUTED, NOT_YET_KNOWN}
    return judged.why if judged.answer is None else judged.answer


@pytest.mark.parametrize(
    ("value", "wanted", "want"),
    [
        ('"paid"', "paid", True),
        ('"p\\u0061id"', "paid", True),
        ('"Paid"', "paid", False),
        ("1", 1, True),
        ("1.00", 1, True),
        ("10e-1", 1.0, True),
        ("0.1", 0.1, True),
        ("0.10000000000000001", 0.1, False),
        ("12345678901234567890", 12345678901234567890, True),
        ("12345678901234567891", 12345678901234567890, False),
        ("1e9999999999999999999", 1, False),
        ("1", True, False),
        ("true", 1, False),
        ("true", True, True),
        ("false", False, True),
        ("false", 0, False),
        ("null", None, True),
        ("null", False, False),
        ('"1"', 1, False),
        ("1", "1", False),
        ('""', None, False),
        ("[]", None, False),
        ('["paid"]', "paid", False),
    ],
)
def test_equals(value: str, wanted: str | float | bool | None, want: bool) -> None:
    """Texts by characters, numbers by value, and nothing of one kind is anything of another."""
    assert meets(Condition("/s", By.EQUALS, ("elsewhere", wanted)), f'{{"s":{value}}}') is want


@pytest.mark.parametrize(
    ("value", "tests"),
    [
        (None, {By.MISSING}),
        ("null", set()),
        ("0", {By.EXISTS}),
        ("false", {By.EXISTS}),
        ("[]", {By.EXISTS, By.EMPTY}),
        ("{}", {By.EXISTS, By.EMPTY}),
        ('""', {By.EXISTS, By.EMPTY}),
        ("[0]", {By.EXISTS, By.NOT_EMPTY}),
        ('{"":0}', {By.EXISTS, By.NOT_EMPTY}),
        ('" "', {By.EXISTS, By.NOT_EMPTY}),
    ],
)
def test_conditions(value: str | None, tests: set[By]) -> None:
    """What is there, and what is empty: null is neither there nor missing, neither empty nor not."""
    body = "{}" if value is None else f'{{"data":{value}}}'
    assert {test for test in By if meets(Condition("/data", test), body)} == tests


@pytest.mark.parametrize("test", list(By))
@pytest.mark.parametrize("body", ["", "<h1>Bad gateway</h1>", '{"data":[],"data":[1]}', '{"data":'])
def test_no_json_meets_nothing(test: By, body: str) -> None:
    """An error page, half a body, a body with two meanings: none says anything, `missing` and `empty` neither."""
    assert not meets(Condition("/data", test, ("",)), body)
    assert not meets(Condition("", test, ("",)), body)


def test_the_whole_body_can_be_empty() -> None:
    """The empty pointer is the whole text."""
    assert meets(Condition("", By.EMPTY), " [] ")
    assert not meets(Condition("", By.EMPTY), "[{}]")


def test_first_rule_wins() -> None:
    """Rules are tried in order, by status and by all their conditions; `rule` tells which one it was."""
    rules = [
        Rule(NOT_YET_KNOWN, when=(Condition("/status", By.EQUALS, ("pending", "processing")),)),
        Rule(EXECUTED, frozenset({200}), (Condition("/status", By.EXISTS), Condition("/id", By.NOT_EMPTY)), AnswerPlan(201)),
        Rule(NOT_EXECUTED, frozenset({404})),
    ]

    def say(body: str, status: int) -> tuple[Verdict, int | None]:
        judged = judge(found(body, status), rules, NAMES)
        return judged.verdict, judged.rule

    assert say('{"status":"pending","id":"1"}', 200) == (NOT_YET_KNOWN, 0)
    assert say('{"status":"failed","id":"1"}', 200) == (EXECUTED, 1)
    assert say('{"status":"failed","id":""}', 200) == (NOT_YET_KNOWN, None)
    assert say('{"status":"failed","id":"1"}', 404) == (NOT_EXECUTED, 2)
    assert say("", 404) == (NOT_EXECUTED, 2)
    assert say("", 503) == (NOT_YET_KNOWN, None)


def test_no_rule_applies() -> None:
    """The reason names the status, and that the body was no JSON."""
    assert judge(found("oops", 503), [], NAMES) == Judged(NOT_YET_KNOWN, why="no rule applies to status 503, whose body is not JSON")
    assert judge(found("{}", None), [], NAMES) == Judged(NOT_YET_KNOWN, why="no rule applies to the event")


def test_an_event_has_no_status() -> None:
    """A rule with statuses never applies to an event; one without does."""
    with_status, without = Rule(NOT_EXECUTED, frozenset({200})), Rule(NOT_EXECUTED)
    assert judge(found("{}", None), [with_status], NAMES).rule is None
    assert judge(found("{}", None), [with_status, without], NAMES).rule == 1


def test_answers_with_the_whole_body() -> None:
    """By default the answer is what was found, byte for byte, with the fields that tell how to read it and no others."""
    body = b'{ "amount": 1.10 }\n'
    assert answer(AnswerPlan(), found(body)) == Built(200, ((b"Content-Type", JSON[0][1]),), body)
    packed = ((b"Content-Type", b"text/plain"), (b"Content-Encoding", b"gzip"), (b"Content-Length", b"4"), (b"Set-Cookie", b"a=b"))
    assert answer(AnswerPlan(202), found(b"\x1f\x8b\0\0", 200, packed)) == Built(202, packed[:2], b"\x1f\x8b\0\0")
    assert answer(AnswerPlan(), found(b"x", 200, ())) == Built(200, (), b"x")
    mine = AnswerPlan(headers=(("content-type", "text/x"),))
    assert answer(mine, found(b"x")) == Built(200, ((b"content-type", b"text/x"),), b"x")


def test_answers_with_a_part() -> None:
    """What a pointer names is written compactly, its numbers and characters as they were."""
    body = '{"data": [ {"id": "é", "amount": 1.10, "big": 12345678901234567890, "e": 1E+2, "n": null} ]}'
    want = '{"id":"é","amount":1.10,"big":12345678901234567890,"e":1E+2,"n":null}'.encode()
    assert answer(AnswerPlan(201, pointer="/data/0"), found(body)) == Built(201, ((b"Content-Type", b"application/json"),), want)
    mine = AnswerPlan(headers=(("Content-Type", "application/vnd.x+json"),), pointer="/data/0/id")
    assert answer(mine, found(body)) == Built(200, ((b"Content-Type", b"application/vnd.x+json"),), '"é"'.encode())


@pytest.mark.parametrize("when", [(Condition("/order", By.EXISTS),), ()])
def test_a_null_is_no_operation(when: tuple[Condition, ...]) -> None:
    """`"order": null` is how many APIs say that they know of none. It must neither end a doubt with the answer `null`, nor free the key."""
    executed = Rule(EXECUTED, frozenset({200}), when, AnswerPlan(201, pointer="/order"))
    gone = Rule(NOT_EXECUTED, frozenset({200}), (Condition("/order", By.MISSING),))
    judged = judge(found('{"executions":0,"order":null}'), [gone, executed], NAMES)
    assert (judged.verdict, judged.answer) == (NOT_YET_KNOWN, None)
    none = Rule(NOT_EXECUTED, frozenset({200}), (Condition("/order", By.EQUALS, (None,)),))
    assert judge(found('{"executions":0,"order":null}'), [executed, none] if when else [none], NAMES).verdict is NOT_EXECUTED


def test_answers_with_a_text() -> None:
    """Placeholders are escaped for where they stand; outside of strings what was found is a JSON value itself."""
    plan = AnswerPlan(
        201,
        (
            ("Content-Type", "application/json"),
            ("Location", "/v1/charges/{found:/id}"),
            ("X-Key", '"{key}"'),
            ("X-Request", "{request_id}"),
        ),
        '{"id":"{found:/id}","key":"{key}","order":"{captured.order}","amount":{captured.amount},"all":{found:/o},"n":{found:/n},"s":{found:/id}}',
    )
    body = '{"id":"a\\"b","n":1.10,"o":{"x": [true, "\\u00e9"]}}'
    headers = ((b"Content-Type", b"application/json"), (b"Location", b'/v1/charges/a"b'), (b"X-Key", b'"k\\"1"'), (b"X-Request", b"req-1"))
    want = '{"id":"a\\"b","key":"k\\"1","order":"o/7","amount":12,"all":{"x":[true,"é"]},"n":1.10,"s":"a\\"b"}'
    assert answer(plan, found(body)) == Built(201, headers, want.encode())


@pytest.mark.parametrize("status", [204, 205, 304])
def test_answers_without_a_body(status: int) -> None:
    """A status that has no body gets none, nor a description of one."""
    assert answer(AnswerPlan(status, (("X-Id", "{found:/id}"),)), found('{"id":1}')) == Built(status, ((b"X-Id", b"1"),), b"")


@pytest.mark.parametrize(
    ("plan", "what", "why"),
    [
        (AnswerPlan(201, pointer="/data/0"), found('{"data":[]}'), "found:/data/0"),
        (AnswerPlan(201, pointer="/data"), found("<html>"), "found:/data"),
        (AnswerPlan(201, pointer="/a"), found('{"a":1,"a":2}'), "found:/a"),
        (AnswerPlan(), found("{}", None), "no status"),
        (AnswerPlan(), found("{}", 101), "no status"),
        (AnswerPlan(headers=(("Location", "/c/{found:/id}"),)), found("{}"), "found:/id"),
        (AnswerPlan(headers=(("Location", "/c/{found:/id}"),)), found('{"id":"a\\r\\nX: y"}'), "no header field takes"),
        (AnswerPlan(headers=(("Location", "/c/{found:/id}"),)), found('{"id":"é"}'), "no header field takes"),
        (AnswerPlan(headers=(("Location", "{found:/id}"),)), found('{"id":{}}'), "neither a text nor a number"),
        (AnswerPlan(headers=(("Location", "{captured.gone}"),)), found("{}"), "captured.gone"),
        (AnswerPlan(body='{"a":"{found:/a}"}', headers=(("Content-Type", "application/json"),)), found('{"a":null}'), "neither a text"),
        (AnswerPlan(body='{"a":{found:/b}}', headers=(("Content-Type", "application/json"),)), found('{"a":1}'), "has no value"),
        (AnswerPlan(body='{"a":{captured.order}}', headers=(("Content-Type", "application/json"),)), found("{}"), "no whole number"),
    ],
)
def test_unbuildable(plan: AnswerPlan, what: Found, why: str) -> None:
    """An answer that cannot be built as the rule says is no answer: the outcome is not yet known, and the reason says what lacks."""
    said = answer(plan, what)
    assert isinstance(said, str)
    assert said.startswith("rule 1 says executed, but its answer cannot be built: ")
    assert why in said


@given(values, st.sampled_from([200, 201, 400, 404, 500]))
def test_whole_bodies_are_kept_byte_for_byte(value: Json, status: int) -> None:
    """Whatever was found becomes the answer unchanged."""
    body = json.dumps(value, indent=1).encode()
    assert answer(AnswerPlan(), Found(status, (), body)) == Built(status, (), body)


_places = st.sampled_from(["", "/a", "/a/0", "/0", "/"])
_conditions = st.builds(Condition, _places, st.sampled_from(list(By)), st.tuples(st.none() | st.booleans() | st.integers() | st.text()))
_plans = st.builds(
    AnswerPlan,
    st.none() | st.just(201),
    st.sampled_from([(), (("X-Id", "{found:/a}"),), (("Content-Type", "application/json"), ("X", '"{key}"'))]),
    st.sampled_from([None, '{"a":{found:/a},"b":"{found:/0}","c":"{captured.order}"}', "plain {found:/a}"]),
    _places,
)
_rules = st.lists(
    st.builds(Rule, st.sampled_from(list(Verdict)), st.frozensets(st.sampled_from([200, 404])), st.tuples(_conditions), _plans)
)
_bodies = (json_texts | st.text()).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary()


@given(st.none() | st.sampled_from([200, 404, 599, 99]), _bodies, _rules)
def test_never_a_guess(status: int | None, body: bytes, rules: list[Rule]) -> None:
    """Whatever is found: no error, an answer exactly with `executed`, and a verdict other than *not yet known* only from a rule that says
    it, with nothing decided by a rule behind one that applies.
    """
    judged = judge(Found(status, JSON, body), rules, NAMES)
    assert (judged.answer is None) == (judged.verdict is not EXECUTED)
    if judged.rule is None:
        assert judged.verdict is NOT_YET_KNOWN
    else:
        assert judged.verdict in {rules[judged.rule].verdict, NOT_YET_KNOWN}
        assert judge(Found(status, JSON, body), rules[: judged.rule], NAMES).rule is None
        assert judge(Found(status, JSON, body), rules[: judged.rule + 1], NAMES) == judged
    if judged.answer is not None:
        assert 200 <= judged.answer.status <= 599
        assert not any(b"\r" in value or b"\n" in value for _, value in judged.answer.headers)
