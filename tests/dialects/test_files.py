"""Every dialect that comes with the gateway, from its file alone."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gateway.core.dialect import parse_dialect, render
from gateway.core.dialect_model import Replay, Situation, Template
from gateway.core.dialect_template import NUMBERS, PLACEHOLDERS
from gateway.core.policy import Policy
from gateway.core.template import content_type_of, is_json, is_xml
from gateway.dialects import text_of
from tests.dialects.files import NAMES, defaults, dialect, policy, tree

LISTED = [
    "ietf",
    "stripe-v1",
    "stripe-v2",
    "adyen",
    "paypal",
    "square",
    "checkout",
    "razorpay-payouts",
    "gocardless",
    "oasis-repeatability",
    "google-aip155",
    "aws-client-token",
    "shopify-rest",
    "twilio-webhook",
]

HOSTILE = (
    "",
    'a"b\\c',
    "x\\r\\nSet-Cookie: a=b\\r\\n\\r\\n<html>",
    "<script>&amp;]]>-->",
    "\\u00fc\\u20ac\\U0001f511\\u2028",
    "\\x00\\x1f\\x7f\\x85",
    "\\ud800",
    "k" * 100_000,
)
ANSWERS = [
    pytest.param(name, situation, template, id=f"{name}-{situation}")
    for name in NAMES
    for situation, template in dialect(name).answers.items()
]
OUGHT = {
    Situation.MISSING: range(400, 500),
    Situation.INVALID: range(400, 500),
    Situation.MISMATCH: range(400, 500),
    Situation.IN_FLIGHT: range(400, 600),
    Situation.UNKNOWN: range(400, 600),
    Situation.EXPIRED: range(400, 500),
    Situation.NOT_STORED: range(400, 500),
    Situation.STORE_UNAVAILABLE: range(500, 600),
    Situation.REPLAYED: range(200, 500),
}


def well_formed(template: Template, body: bytes) -> object:
    """The text of a body, read by what its Content-Type says."""
    text = body.decode()
    if is_json(content_type_of(template.headers)):
        return json.loads(text)
    if is_xml(content_type_of(template.headers)):
        return "".join(ET.fromstring(text.encode()).itertext())
    return text


def test_all_dialects_of_the_list_are_there() -> None:
    """The set of dialects is the documented one."""
    assert sorted(LISTED) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_named_as_its_dialect(name: str) -> None:
    """What a route names is what the file calls itself, and the file says what it is and where that comes from."""
    document = tree(name)
    assert dialect(name).name == document["name"] == name
    assert document["about"].endswith(".")
    assert document["sources"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_what_is_sure_and_what_is_not(name: str) -> None:
    """Where a provider documents nothing, a comment says that the answer is ours or uncertain."""
    assert re.search(r"(?i)#.*\b(uncertain|ours)\b", text_of(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ietf"])
def test_a_dialect_answers_every_refusal_in_its_own_words(name: str) -> None:
    """Only the default dialect leaves answers to problem documents."""
    found = dialect(name)
    wanted = set(Situation) if found.replay is Replay.CONFLICT else set(Situation) - {Situation.REPLAYED}
    assert set(found.answers) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_a_route_may_name_a_dialect_and_nothing_else(name: str, tmp_path: Path) -> None:
    """The configuration knows every field that a file brings, and resolves it with the file's wire form."""
    resolved = policy(name, tmp_path)
    assert resolved.dialect == dialect(name)
    assert resolved.key.required is defaults(name)["key"].get("required", True)
    assert resolved.release_on == set(defaults(name)["release_on"])
    assert resolved.doubt_on == set(defaults(name)["doubt_on"])
    assert not resolved.release_on & resolved.doubt_on
    assert {502, 503, 504, 520, 522, 524} <= resolved.doubt_on, "an intermediary behind us may have made these up"


def test_the_default_dialect_changes_nothing(tmp_path: Path) -> None:
    """What `ietf` spells out is what holds without any dialect."""
    default = Policy("pay", ())
    assert policy("ietf", tmp_path) == default


@pytest.mark.parametrize(("name", "situation", "template"), ANSWERS)
def test_an_answer_has_a_sensible_status(name: str, situation: Situation, template: Template) -> None:
    """A client that goes by the class of a status does the right thing."""
    assert template.status in OUGHT[situation]
    waits = any(header.lower() == "retry-after" for header, _ in template.headers)
    assert waits is (situation in {Situation.IN_FLIGHT, Situation.UNKNOWN, Situation.STORE_UNAVAILABLE})


@pytest.mark.parametrize(("name", "situation", "template"), ANSWERS)
def test_an_answer_survives_hostile_values(name: str, situation: Situation, template: Template) -> None:
    """Quotes, line breaks, brackets, other alphabets, control characters, lone surrogates, length, nothing: it stays one answer."""
    shape = [header for header, _ in render(template, dict.fromkeys(PLACEHOLDERS, "1"))[1]]
    for value in HOSTILE:
        stored = {"stored:/*/id": value}
        status, headers, body = render(template, {**dict.fromkeys(PLACEHOLDERS, value), **dict.fromkeys(NUMBERS, "7"), **stored})
        assert status == template.status
        assert {header for header, _ in headers} <= set(shape)
        assert all(re.fullmatch(rb"[\x20-\x7e]*", text) and text == text.strip() for _, text in headers)
        assert len(body) < 20_000
        well_formed(template, body)


@pytest.mark.parametrize(("name", "situation", "template"), ANSWERS)
def test_an_answer_does_without_values(name: str, situation: Situation, template: Template) -> None:
    """Whatever is not known is left out, and no placeholder is ever seen by a client."""
    _, headers, body = render(template, {})
    assert not re.search(rb"\{[a-z_:/*]+\}", body + b"".join(value for _, value in headers))
    well_formed(template, body)


@pytest.mark.parametrize("name", NAMES)
def test_a_users_copy_works_alike(name: str, tmp_path: Path) -> None:
    """A file beside the configuration is read as the built-in one of which it is a copy."""
    (tmp_path / "mine.yaml").write_text(text_of(name))
    assert policy("./mine.yaml", tmp_path) == policy(name, tmp_path)


def test_a_dialect_may_be_parsed_again() -> None:
    """Parsing has no effect on the document."""
    assert parse_dialect(tree("adyen"), "adyen")[0] == parse_dialect(tree("adyen"), "adyen")[0]
