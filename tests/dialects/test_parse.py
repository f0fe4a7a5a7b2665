"""What is said about a dialect file that is wrong."""

from typing import Any

import pytest
import yaml

from gateway.core.dialect import DialectError, parse_dialect
from gateway.core.dialect_model import Dialect, Replay, Situation, Template

HEAD = "name: house\nabout: Our house style.\n"


def parse(text: str) -> Dialect:
    return parse_dialect(yaml.safe_load(HEAD + text), "house.yaml")[0]


def answer(text: str, situation: str = "mismatch") -> Template:
    """One answer, written in flow style."""
    return parse(f"answers: {{{situation}: {text}}}").answers[Situation(situation)]


def complaint(tree: Any) -> str:
    with pytest.raises(DialectError) as raised:
        parse_dialect(tree, "house.yaml")
    return str(raised.value)


def test_the_least_file() -> None:
    """A name and a sentence are enough."""
    assert parse("") == Dialect("house")


def test_everything_a_file_may_say() -> None:
    """Each key has its place in the result, and `idempotency` is given back as it is written."""
    text = """
sources: [https://example.test/docs]
idempotency: {key: {required: false}, retention: 1h}
answers:
  mismatch: {status: 422, headers: {X-Key: "{key}"}, body: {error: "{detail}", status: "{status}", codes: [1, null]}}
  replayed: {status: 200}
replay: conflict
first_headers: {X-First: "{key}"}
replay_headers: {}
"""
    found, defaults = parse_dialect(yaml.safe_load(HEAD + text), "house.yaml")
    assert found == Dialect(
        "house",
        {
            Situation.MISMATCH: Template(
                422,
                (("Content-Type", "application/json"), ("X-Key", "{key}")),
                '{"error":"{detail}","status":{status},"codes":[1,null]}',
            ),
            Situation.REPLAYED: Template(200),
        },
        Replay.CONFLICT,
        (("X-First", "{key}"),),
        (),
    )
    assert defaults == {"key": {"required": False}, "retention": "1h"}


def test_a_body_may_be_text() -> None:
    """Text is taken as it stands, under the Content-Type that is given."""
    written = """{status: 400, headers: {Content-Type: application/vnd.house+json}, body: '{"code": {status}}'}"""
    assert answer(written) == Template(400, (("Content-Type", "application/vnd.house+json"),), '{"code": {status}}')


MISTAKES = [
    ("- a list", "house.yaml: must be a mapping"),
    ("{}", "house.yaml: name: is required"),
    ("{}", "house.yaml: about: is required"),
    ("name: Not A Name", "house.yaml: name: is required: 1 to 64 characters of a-z"),
    (HEAD + "anwsers: {}", "house.yaml: anwsers: unknown key; did you mean `answers`?"),
    (HEAD + "zzz: {}", "house.yaml: zzz: unknown key; known are name, about,"),
    (HEAD + "sources: https://example.test", "house.yaml: sources: must be a list of texts"),
    (HEAD + "idempotency: [1]", "house.yaml: idempotency: must be a mapping"),
    (HEAD + "idempotency: {dialect: ietf}", "house.yaml: idempotency.dialect: a dialect cannot name another one; copy"),
    (HEAD + "replay: never", "house.yaml: replay: must be verbatim or conflict"),
    (HEAD + "replay: [verbatim]", "house.yaml: replay: must be verbatim or conflict"),
    (HEAD + "replay: conflict", "house.yaml: answers.replayed: is required with `replay: conflict`"),
    (HEAD + "answers: {replayed: {status: 409}}", "house.yaml: answers.replayed: is never sent under `replay: verbatim`"),
    (HEAD + "answers: {mismach: {status: 409}}", "house.yaml: answers.mismach: unknown key; did you mean `mismatch`?"),
    (HEAD + "answers: {missing: {}}", "house.yaml: answers.missing.status: is required: a status from 200 to 599"),
    (HEAD + "answers: {missing: {status: true}}", "house.yaml: answers.missing.status: is required"),
    (HEAD + "answers: {missing: {status: 200}}", "answers.missing.status: 200 would tell the client that its operation was done"),
    (HEAD + "answers: {missing: {status: 400, bdy: x}}", "answers.missing.bdy: unknown key; did you mean `body`?"),
    (HEAD + "answers: {missing: {status: 400, body: x}}", "answers.missing.body: needs a Content-Type"),
    (HEAD + "answers: {missing: {status: 400, body: 3}}", "answers.missing.body: must be text, or a mapping that becomes JSON"),
    (HEAD + "answers: {missing: {status: 400, body: {a: .nan}}}", "answers.missing.body: cannot be written as JSON"),
    (HEAD + "answers: {missing: {status: 400, body: {a: 2026-11-27}}}", "answers.missing.body: cannot be written as JSON"),
    (HEAD + "replay: conflict\nanswers: {replayed: {status: 204, body: {}}}", "answers.replayed.body: an answer of 204 has no body"),
    (HEAD + 'answers: {missing: {status: 400, headers: {"A B": x}}}', "answers.missing.headers.A B: is not a header name"),
    (
        HEAD + "answers: {missing: {status: 400, headers: {A: true}}}",
        'answers.missing.headers.A: must be text; put it in quotes, as in "true"',
    ),
    (HEAD + 'answers: {missing: {status: 400, headers: {A: "x\\r\\ny"}}}', "answers.missing.headers.A: must be visible ASCII"),
    (HEAD + 'answers: {missing: {status: 400, headers: {A: "\u00fc"}}}', "answers.missing.headers.A: must be visible ASCII"),
    (
        HEAD + "answers: {missing: {status: 400, headers: {Content-Length: '1'}}}",
        "headers.Content-Length: is written by the gateway; remove",
    ),
    (HEAD + "first_headers: {Content-Type: text/plain}", "first_headers.Content-Type: describes the upstream's body"),
    (HEAD + 'first_headers: {A: "{detail}"}', "first_headers.A: `{detail}` has no value here; known are {expires},"),
    (HEAD + 'first_headers: {A: "{status}"}', "first_headers.A: `{status}` has no value here"),
    (HEAD + 'replay_headers: {A: "{retry_after}"}', "replay_headers.A: `{retry_after}` has no value here"),
    (HEAD + 'answers: {missing: {status: 400, headers: {A: "{key}"}}}', "answers.missing.headers.A: `{key}` has no value here"),
    (HEAD + 'answers: {mismatch: {status: 400, headers: {A: "{kye}"}}}', "headers.A: there is no placeholder `{kye}`; there are {key},"),
    (HEAD + 'answers: {mismatch: {status: 400, body: {a: "{stored:/id}"}}}', "answers.mismatch.body: `{stored:/id}` has no value here"),
    (HEAD + 'replay: conflict\nanswers: {replayed: {status: 409, body: {a: "{stored:id}"}}}', "`{stored:id}` names no JSON pointer"),
    (
        HEAD + """answers: {mismatch: {status: 400, headers: {Content-Type: application/json}, body: '{"a": {key}}'}}""",
        'answers.mismatch.body: `{key}` stands outside of a string; put it in quotes, as in "{key}"',
    ),
    (
        HEAD + """answers: {mismatch: {status: 400, headers: {Content-Type: application/json}, body: '{"a": "{key}",}'}}""",
        "answers.mismatch.body: is not well-formed JSON once its placeholders are filled in",
    ),
    (
        HEAD + "answers: {mismatch: {status: 400, headers: {Content-Type: text/xml}, body: '<a><!-- {key} --></a>'}}",
        "answers.mismatch.body: is not well-formed XML once its placeholders are filled in",
    ),
    (
        HEAD + "answers: {mismatch: {status: 400, headers: {Content-Type: text/xml}, body: '<!DOCTYPE a><a>{key}</a>'}}",
        "answers.mismatch.body: is not well-formed XML",
    ),
    (
        HEAD + "answers: {mismatch: {status: 400, headers: {Content-Type: text/html}, body: '<p>{key}</p>'}}",
        "answers.mismatch.body: `{key}` cannot be escaped in this media type; placeholders work in JSON, XML and text/plain",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), MISTAKES)
def test_a_mistake_is_named_with_its_file_key_and_remedy(text: str, wanted: str) -> None:
    """One line says where it is and what to do."""
    assert wanted in complaint(yaml.safe_load(text))


@pytest.mark.parametrize("text", ["answers: {in_flight: {status: 202}}", "replay: conflict\nanswers: {replayed: {status: 200}}"])
def test_some_answers_may_tell_of_success(text: str) -> None:
    """A running operation may be accepted, and a completed one may be called done."""
    assert parse(text).name == "house"


def test_all_mistakes_are_told_at_once() -> None:
    """Whoever corrects a file need not start over for each line."""
    with pytest.raises(DialectError) as raised:
        parse("replay: never\nanswers: {missing: {status: 1}, invalid: {status: 2}}")
    assert [mistake.path for mistake in raised.value.mistakes] == [
        ("replay",),
        ("answers", "missing", "status"),
        ("answers", "invalid", "status"),
    ]
