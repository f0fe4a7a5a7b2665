"""Files that a route map includes."""

from pathlib import Path

import pytest
import yaml

from gateway.runtime.local_files import recording
from tests.config.support import HEAD, mistakes, read
from tests.config.test_schema import SCHEMA, accepts

MAIN = (
    HEAD
    + """\
routes:
  - {id: first, path: /first, upstream: payments}
  - include: teams/pay.yaml
  - {id: rest, path: /**, upstream: payments}
"""
)
PAY = """\
- id: pay
  path: /v1/pay
  upstream: payments
  idempotency: {principal: none, dialect: ./house.yaml}
- include: ../shared.yaml
"""
HOUSE = "name: house\nabout: Ours.\n"
SHARED = "- {id: shared, path: /shared, upstream: payments}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "teams").mkdir()
    put(tmp_path, pay=PAY, shared=SHARED)
    (tmp_path / "teams" / "house.yaml").write_text(HOUSE)
    return tmp_path


def put(folder: Path, *, pay: str | None = None, shared: str | None = None) -> None:
    for path, text in ((folder / "teams" / "pay.yaml", pay), (folder / "shared.yaml", shared)):
        if text is not None:
            path.write_text(text)


def test_routes_stand_where_their_file_is_named(folder: Path) -> None:
    """In order, through files that include others; what a file names is relative to it; each is watched."""
    with recording() as files:
        config = read(folder, MAIN)
    assert [route.id for route in config.routes] == ["first", "pay", "shared", "rest"]
    assert config.routes[1].policy is not None
    assert config.routes[1].policy.dialect.name == "house"
    assert {Path(name).resolve().name for name in files} >= {"gateway.yaml", "pay.yaml", "shared.yaml", "house.yaml"}


def test_a_variable_names_a_file(folder: Path) -> None:
    config = read(folder, MAIN.replace("teams/pay.yaml", '"teams/${TEAM}.yaml"'), {"TEAM": "pay"})
    assert len(config.routes) == 4


@pytest.mark.parametrize(
    ("pay", "expected"),
    [
        ("- {id: pay, path: v1, upstream: payments}\n", "teams/pay.yaml:1:19: [0].path: "),
        ("- {id: pay, path: /v1, upstream: nobody}\n", "teams/pay.yaml:1:34: [0].upstream: "),
        ("- {id: first, path: /v1, upstream: payments}\n", "duplicate route id `first` (first in the configuration file, line 6)"),
        ("- {id: pay, path: /first/x, upstream: payments}\n- {id: b, path: /first/x, upstream: payments}\n", "`pay` (line 1)"),
        ("- {id: pay, path: /first, upstream: payments}\n", "`first` (the configuration file, line 6)"),
        ("id: pay\n", "teams/pay.yaml:1:1: expected a list, found a mapping"),
        ("", "teams/pay.yaml:1:1: the file is empty"),
        ("- [\n", "teams/pay.yaml:2:1: "),
        ("- {include: }\n", "teams/pay.yaml:1:12: [0].include: has no value"),
        ("- {include: nowhere.yaml}\n", "teams/nowhere.yaml: cannot read the file: No such file or directory"),
        ("- {include: ../shared.yaml, id: pay}\n", "teams/pay.yaml:1:4: [0].include: "),
    ],
)
def test_a_mistake_names_its_file(folder: Path, pay: str, expected: str) -> None:
    put(folder, pay=pay)
    found = mistakes(folder, MAIN)
    assert any(expected in one.replace(f"{folder}/", "") for one in found), found


@pytest.mark.parametrize(
    ("pay", "shared", "where", "first"),
    [
        ("- {include: ../shared.yaml}\n- {include: ../shared.yaml}\n", SHARED, "teams/pay.yaml:2:13: [1].include: ", "by line 1"),
        ("- {include: ../gateway.yaml}\n", SHARED, "teams/pay.yaml:1:13: [0].include: ", "by the configuration file, line 1"),
        (PAY, "- {include: teams/pay.yaml}\n", "shared.yaml:1:13: [0].include: ", "by the configuration file, line 7"),
    ],
    ids=["double", "the file itself", "cycle"],
)
def test_a_file_is_included_once(folder: Path, pay: str, shared: str, where: str, first: str) -> None:
    """Both places are told, and nothing is read for ever."""
    put(folder, pay=pay, shared=shared)
    (mistake,) = [one.replace(f"{folder}/", "") for one in mistakes(folder, MAIN)]
    assert mistake.startswith((where, f"teams/../{where}"))
    assert first in mistake
    assert "a file is included once, and never by itself" in mistake


def test_editors_know_includes() -> None:
    assert accepts(SCHEMA, yaml.safe_load(MAIN))
    assert not accepts(SCHEMA, yaml.safe_load(MAIN.replace("include: teams/pay.yaml", "{include: a.yaml, id: b}")))
