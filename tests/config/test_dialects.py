"""Dialects in a route map: names, files of one's own, and who has the last word."""

from pathlib import Path

import pytest

from gateway.config import dialect_table, settings_table
from gateway.config.dialect_files import builtin_dialect
from gateway.core.dialect_model import Dialect, Replay, Situation, Template
from gateway.core.key_policy import HeaderKey, KeyMode, QueryKey
from gateway.core.policy import Policy
from gateway.dialects import names
from tests.config.support import HEAD, ROUTES, mistakes, read

BASE = HEAD + ROUTES
OWN = f"{BASE}      dialect: ./house.yaml\n"
HOUSE = """\
name: house
about: Ours.
idempotency:
  key: {query: id, mode: raw, max_length: 40}
  retention: 7d
  release_on: [429]
answers:
  mismatch: {status: 409, body: {code: "$1 $$ {key}"}}
  replayed: {status: 409}
replay: conflict
first_headers: {X-First: "yes"}
replay_headers: {}
"""


def policy(folder: Path, text: str) -> Policy:
    found = read(folder, text).routes[0].policy
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "house.yaml").write_text(HOUSE)
    return tmp_path


@pytest.mark.parametrize("name", names())
def test_each_dialect_that_comes_along_is_good(tmp_path: Path, name: str) -> None:
    """A route that names it loads, speaks it, and is warned about nothing."""
    config = read(tmp_path, f"{BASE}      dialect: {name}\n")
    found = config.routes[0].policy
    assert found is not None
    assert found.dialect == builtin_dialect(name).dialect
    assert found.dialect.name == name
    assert config.warnings == ()


def test_the_default_dialect_changes_nothing(tmp_path: Path) -> None:
    """Named or not, it is the policy's own default."""
    assert policy(tmp_path, BASE) == policy(tmp_path, f"{BASE}      dialect: ietf\n") == Policy(scope="charge", principal=())


def test_a_file_of_ones_own_is_read_beside_the_configuration(folder: Path) -> None:
    """Its wire form arrives, text with dollar signs as it is, and its settings take the place of the built-in ones."""
    found = policy(folder, OWN)
    assert found.dialect == Dialect(
        "house",
        {
            Situation.MISMATCH: Template(409, (("Content-Type", "application/json"),), '{"code":"$1 $$ {key}"}'),
            Situation.REPLAYED: Template(409),
        },
        Replay.CONFLICT,
        (("X-First", "yes"),),
        (),
    )
    assert (found.key.place, found.key.mode, found.key.max_length, found.key.required) == (QueryKey("id"), KeyMode.RAW, 40, True)
    assert (found.retention, found.release_on) == (604800.0, frozenset({429}))


def test_dialect_then_defaults_then_route(folder: Path) -> None:
    """Each level fills in what the ones above leave out, nested fields one by one."""
    text = OWN.replace("routes:", "defaults: {retention: 3d, key: {header: A, min_length: 2}, release_on: [401]}\nroutes:")
    found = policy(folder, text + "      key: {min_length: 3}\n      release_on: [421]\n")
    assert (found.key.place, found.key.min_length, found.key.max_length, found.key.mode) == (HeaderKey("A"), 3, 40, KeyMode.RAW)
    assert (found.retention, found.release_on) == (259200.0, frozenset({421}))


def test_a_dialect_of_defaults_serves_all_routes(folder: Path) -> None:
    """A route may name another."""
    text = f"{HEAD}defaults: {{dialect: house.yaml}}\n{ROUTES}" + (
        "  - {id: b, path: /b, upstream: payments, idempotency: {principal: none, dialect: stripe-v1}}\n"
    )
    assert [route.policy.dialect.name for route in read(folder, text).routes if route.policy] == ["house", "stripe-v1"]


MISTAKES = [
    pytest.param("about: Ours.\n", "", ["1:1: about: is required: a sentence that says whose answers these are"], id="about"),
    pytest.param(
        "name: house",
        "nme: house",
        ["1:6: nme: unknown key; did you mean `name`?", "1:1: name: is required: 1 to 64 characters of a-z 0-9 . _ -"],
        id="unknown-key",
    ),
    pytest.param(
        "retention: 7d",
        "retention: 7",
        ["5:14: idempotency.retention: 7 has no unit; write 7s for seconds (units: ms, s, m, h, d)"],
        id="setting",
    ),
    pytest.param(
        "retention: 7d", "retenton: 7d", ["5:3: idempotency.retenton: unknown key; did you mean `retention`?"], id="unknown-setting"
    ),
    pytest.param(
        "{query: id,", "{query: id, header: a,", ["4:28: idempotency.key.header: `query` is given too; keep one of them"], id="two"
    ),
    pytest.param(
        "retention: 7d",
        "dialect: ietf",
        ["5:3: idempotency.dialect: a dialect cannot name another one; copy the fields that you want from it"],
        id="dialect",
    ),
    pytest.param(
        "[429]", "[503]", ["6:15: idempotency.release_on: 503 in both release_on and doubt_on; an outcome settles one way"], id="together"
    ),
    pytest.param(
        "status: 409, body", "status: 42, body", ["8:22: answers.mismatch.status: is required: a status from 200 to 599"], id="status"
    ),
    pytest.param(
        "replayed: {status: 409}",
        "replaid: {status: 409}",
        [
            "9:12: answers.replaid: unknown key; did you mean `replayed`?",
            "8:3: answers.replayed: is required with `replay: conflict`: it is what a retry gets",
        ],
        id="situation",
    ),
    pytest.param('"yes"', "true", ['11:26: first_headers.X-First: must be text; put it in quotes, as in "true"'], id="flag-in-header"),
    pytest.param(
        '{X-First: "yes"}',
        '{X-First: "yes", X-First: "no"}',
        ["11:33: first_headers.X-First: duplicate key (first in line 11)"],
        id="duplicate",
    ),
    pytest.param("name: house", "name: !x house", ["1:7: name: the tag !x is not supported"], id="tag"),
    pytest.param("name: house", "name: [", ["3:12: expected ',' or ']', but got ':' (while parsing a flow sequence)"], id="syntax"),
    pytest.param(HOUSE, "", ["1:1: the file is empty"], id="empty"),
    pytest.param(HOUSE, "- a", ["1:1: must be a mapping, `key: value` in each line"], id="list"),
    pytest.param(
        HOUSE, "name: a\nabout: b\nidempotency: 5\n", ["3:14: idempotency: expected a mapping, found a whole number"], id="number"
    ),
]


@pytest.mark.parametrize(("good", "bad", "expected"), MISTAKES)
def test_a_mistake_in_a_dialect_is_found_where_it_stands(folder: Path, good: str, bad: str, expected: list[str]) -> None:
    """Each is told with the dialect's own file and line, and the configuration is refused."""
    assert good in HOUSE
    (folder / "house.yaml").write_text(HOUSE.replace(good, bad))
    found = mistakes(folder, OWN)
    assert [one for one in found if not one.startswith("house.yaml:")] == []
    for start in expected:
        assert any(one.removeprefix("house.yaml:").startswith(start) for one in found), found


def test_one_dialect_of_two_routes_is_told_about_once(folder: Path) -> None:
    """And before it, in file order, what is wrong with the configuration itself."""
    (folder / "house.yaml").write_text(HOUSE.replace("7d", "7"))
    text = OWN + "      lease: 5\n  - {id: b, path: /b, upstream: payments, idempotency: {principal: none, dialect: ./house.yaml}}\n"
    assert [one.split(":")[:2] for one in mistakes(folder, text)] == [["gateway.yaml", "12"], ["house.yaml", "5"]]


NAMES = [
    pytest.param(
        "strip-v1",
        'unknown dialect "strip-v1"; did you mean `stripe-v1`?; `idempotency-gateway dialects` lists them, '
        "and a file of your own is named by its path, as in ./house.yaml",
        id="name",
    ),
    pytest.param("./none.yaml", "none.yaml: cannot read the file: No such file or directory", id="file"),
    pytest.param("none.yml", "none.yml: cannot read the file: No such file or directory", id="file-without-folder"),
    pytest.param("12", "expected the name of a dialect, or a file such as ./house.yaml, found 12", id="number"),
    pytest.param('"a\\0/"', "a path cannot hold a NUL character", id="nul"),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_a_dialect_that_is_not_there_is_a_mistake(tmp_path: Path, name: str, expected: str) -> None:
    """At the setting that names it."""
    assert mistakes(tmp_path, f"{BASE}      dialect: {name}\n") == [f"gateway.yaml:11:16: routes[0].idempotency.dialect: {expected}"]


def test_what_a_dialect_sets_is_judged_at_the_route(folder: Path) -> None:
    """Where a value of the dialect does not fit one of the route, the route's is the one to change."""
    assert mistakes(folder, OWN + "      key: {min_length: 41}\n") == [
        "gateway.yaml:12:25: routes[0].idempotency.key.min_length: min_length 41 is greater than max_length 40"
    ]


def test_the_listing_shows_what_a_dialect_sets(folder: Path) -> None:
    """Its name, and each setting that is not by default, as if the route itself had it."""
    rows = [line.split(maxsplit=1) for line in settings_table(read(folder, OWN)).splitlines()]
    assert rows == [
        ["SETTING", "VALUE"],
        ["routes.charge.dialect", "house"],
        ["routes.charge.key.mode", "raw"],
        ["routes.charge.key.max_length", "40"],
        ["routes.charge.release_on", "429"],
    ]


def test_the_table_of_dialects_has_a_line_for_each() -> None:
    """A name, and the sentence of its file."""
    lines = dialect_table().splitlines()
    assert [line.split()[0] for line in lines] == ["DIALECT", *names()]
    assert all(line.endswith(".") for line in lines[1:])
