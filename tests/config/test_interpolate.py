"""Variables in values."""

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.interpolate import Interpolated, interpolate
from tests.config.support import HEAD, ROUTES, mistakes, read

ENV = {"A": "x", "EMPTY": "", "TRICKY": "${A} $$ }"}

GOOD = {
    "plain": ("plain", False),
    "${A}": ("x", True),
    "<${A}${A}>": ("<xx>", True),
    "${EMPTY}": ("", True),
    "${NONE:-d}": ("d", True),
    "${NONE:-}": ("", True),
    "${EMPTY:-d}": ("d", True),
    "${A:-d}": ("x", True),
    "${NONE:-a:b - c?$}": ("a:b - c?$", True),
    "${A:?say}": ("x", True),
    "${TRICKY}": ("${A} $$ }", True),
    "$$": ("$", False),
    "$${A}": ("${A}", False),
    "$$${A}": ("$x", True),
    "$A $ ${A}$": ("$A $ x$", True),
    "}": ("}", False),
}

BAD = {
    "${NONE}": "the environment variable NONE is not set; ${NONE:-default} would give it a default",
    "${NONE:?}": "the environment variable NONE is not set",
    "${NONE:?make one: openssl rand}": "the environment variable NONE is not set: make one: openssl rand",
    "${EMPTY:?say}": "the environment variable EMPTY is not set: say",
    "${NONE:?a} ${OTHER:?b}": "the environment variable NONE is not set: a; the environment variable OTHER is not set: b",
}
SHELL = ["$A", "$GATEWAY_DIGEST_SECRET", "$_X1", "Bearer $TOKEN"]
TEXT = ["$", "$1", "$filter", "$a", "a$A", "$A/$B", "pa$WORD"]
MALFORMED = ["${", "${A", "${}", "${1A}", "${A-d}", "${A:d}", "${A:}", "${A b}", "${NONE:-${A}}", "x${"]


@pytest.mark.parametrize(("text", "expected"), GOOD.items())
def test_variables_are_replaced(text: str, expected: tuple[str, bool]) -> None:
    """Each form gives its value; what a variable holds is not looked at again."""
    assert interpolate(text, ENV) == Interpolated(*expected)


@pytest.mark.parametrize(("text", "message"), BAD.items())
def test_missing_variables_are_named(text: str, message: str) -> None:
    """Every variable that is missing is named, with its own message."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        interpolate(text, ENV)


@pytest.mark.parametrize("text", SHELL)
def test_a_variable_of_a_shell_is_refused(text: str) -> None:
    """`$VAR` alone is a variable with its braces forgotten: as text it would make a secret that everybody knows."""
    with pytest.raises(ValueError, match=re.escape("write ${VAR} for its value, or $$VAR for this very text")):
        interpolate(text, ENV)
    assert interpolate(text.replace("$", "$$"), ENV) == Interpolated(text, from_env=False)


@pytest.mark.parametrize("text", TEXT)
def test_other_dollar_signs_are_text(text: str) -> None:
    """Names of query parameters, templates and passwords may hold dollar signs."""
    assert interpolate(text, ENV) == Interpolated(text, from_env=False)


def test_a_secret_is_never_the_name_of_its_variable(tmp_path: Path) -> None:
    """A digest secret, whose braces are forgotten, would be long enough, and known to all."""
    text = (HEAD + ROUTES).replace("digest_secret: ", "digest_secret: $GATEWAY_DIGEST_SECRET # ")
    (found,) = mistakes(tmp_path, text, {"GATEWAY_DIGEST_SECRET": "0123456789abcdef"})
    assert "digest_secret: `$VAR` is text and no variable; write ${VAR}" in found


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_variable_is_refused(text: str) -> None:
    """A `${` that is no variable is a mistake, never text."""
    with pytest.raises(ValueError, match=r"must be \$\{VAR\}, \$\{VAR:-default\} or \$\{VAR:\?message\}"):
        interpolate(text, ENV)


@given(st.text())
def test_text_escaped_by_doubling_is_itself(text: str) -> None:
    """Whatever a text holds, with its dollar signs doubled it passes unchanged."""
    assert interpolate(text.replace("$", "$$"), {}) == Interpolated(text, from_env=False)


@given(st.text(), st.text().filter(lambda text: "$" not in text), st.text().filter(lambda text: "$" not in text))
def test_a_value_is_taken_as_it_is(value: str, before: str, after: str) -> None:
    """A variable's value enters byte for byte, and changes nothing around it."""
    assert interpolate(f"{before}${{V}}{after}", {"V": value}).text == before + value + after


@given(st.text(alphabet="${}:-?AB ", max_size=24))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes it fail in another way than ValueError."""
    with contextlib.suppress(ValueError):
        interpolate(text, {"A": "1"})


@given(st.text(alphabet=st.characters(exclude_characters="\r\0", exclude_categories=["Cs", "Cc"]), max_size=30))
def test_a_variable_cannot_change_the_shape_of_the_file(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    """Whatever a variable holds, YAML included, it stays one value."""
    text = HEAD.replace("0123456789abcdef", "${SECRET}") + ROUTES
    secret = f"}}, listen: [\n - &a {value}: '\" #{value}"
    config = read(tmp_path_factory.mktemp("yaml"), text, {"SECRET": secret})
    assert config.digest_secret == secret.encode()


def test_a_variable_takes_the_type_that_its_field_wants(tmp_path: Path) -> None:
    """Numbers, flags, durations and words may come from the environment, quoted or not."""
    text = (
        HEAD
        + ROUTES
        + '      stream: ${S}\n      lease: "${L}s"\n      release_on: ["4${R}"]\n      on_store_outage: ${O:-forward}\nworkers: "${W}"\n'
    )
    config = read(tmp_path, text, {"S": "true", "L": "20", "R": "29", "W": "3"})
    policy = config.routes[0].policy
    assert policy is not None
    assert (policy.stream, policy.lease, policy.release_on, policy.on_store_outage.value) == (True, 20.0, frozenset({429}), "forward")
    assert config.workers == 3


def test_a_variable_of_the_wrong_type_is_a_mistake(tmp_path: Path) -> None:
    """What comes from the environment is checked like what is written."""
    text = HEAD + ROUTES + "      stream: ${S}\nworkers: ${W}\naccess_log: ${EMPTY:-}\n"
    assert mistakes(tmp_path, text, {"S": "yes", "W": "1.5"}) == [
        'gateway.yaml:11:15: routes[0].idempotency.stream: expected true or false, found "yes"',
        'gateway.yaml:12:10: workers: expected a whole number from 1 to 256, found "1.5"',
        'gateway.yaml:13:13: access_log: expected true or false, found ""',
    ]


def test_a_quoted_number_is_text_without_a_variable(tmp_path: Path) -> None:
    """Only a variable loses its type; a quoted number stays text."""
    assert mistakes(tmp_path, HEAD + ROUTES + 'workers: "2"\n') == [
        'gateway.yaml:11:10: workers: expected a whole number from 1 to 256, found text "2"'
    ]


def test_keys_are_not_interpolated(tmp_path: Path) -> None:
    """Variables stand in values alone."""
    assert mistakes(tmp_path, HEAD + ROUTES + '"${A}": 1\n', {"A": "workers"}) == ['gateway.yaml:11:1: "${A}": unknown key']
