"""The example route maps that the project ships."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import Place, UnixListener, load
from gateway.config.fields import CONFIG
from gateway.config.kinds import Kind, Reader
from gateway.config.shapes import ListOf, MapOf, Struct
from gateway.config.source import MapNode, compose

FOLDER = Path(__file__).parents[2] / "config"
ENV = {"GATEWAY_DIGEST_SECRET": "0123456789abcdef", "GATEWAY_POSTGRES_DSN": "postgresql://gateway@db/gateway"}
CHOSEN = {"scope", "principal", "methods"}
"""Fields that have no fixed default: the example shows a value."""


def test_no_example_is_left_out() -> None:
    """Each file of the folder is loaded by a test here."""
    assert {path.name for path in FOLDER.iterdir()} == {"gateway.yaml", "minimal.yaml", "sidecar.yaml"}


@pytest.mark.parametrize("name", ["gateway.yaml", "minimal.yaml"])
def test_an_example_needs_two_variables(name: str) -> None:
    """The secret and the database are all that must be set; nothing is warned about."""
    config = load(FOLDER / name, ENV)
    assert [(route.id, route.policy is not None) for route in config.routes] == [("create-charge", True), ("rest", False)]
    assert config.warnings == ()


def test_the_full_example_means_the_same_as_the_least() -> None:
    """Spelling every default out changes nothing: both guard the same route with the same policy."""
    full, least = load(FOLDER / "gateway.yaml", ENV), load(FOLDER / "minimal.yaml", ENV)
    assert full.routes[0].policy == least.routes[0].policy
    assert (full.listen, full.admin, full.workers, full.postgres, full.redis, full.drain, full.problem_base, full.access_log) == (
        least.listen, least.admin, least.workers, least.postgres, least.redis, least.drain, least.problem_base, least.access_log
    )  # fmt: skip


def test_the_sidecar_example_takes_its_secret_from_a_file(tmp_path: Path) -> None:
    """The sidecar listens on a Unix socket and on loopback alone."""
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    config = load(FOLDER / "sidecar.yaml", {**ENV, "GATEWAY_DIGEST_SECRET_FILE": str(tmp_path / "secret")})
    assert config.listen == UnixListener("/run/gateway/gateway.sock")
    assert config.admin.listen.loopback
    assert [route.policy.principal if route.policy else None for route in config.routes] == [("X-Account-Id",), ("X-Account-Id",), None]
    assert config.warnings == ()


def test_the_full_example_shows_every_field_with_its_default() -> None:
    """No setting is missing from the commented example, and none is shown with another value than its default."""
    shown = yaml.safe_load((FOLDER / "gateway.yaml").read_text())
    _compare(CONFIG, shown, "")


def _compare(struct: Struct, shown: dict[str, Any], path: str) -> None:
    assert set(shown) == {field.name for field in struct.table}, path
    for field in struct.table:
        value, here = shown[field.name], f"{path}.{field.name}"
        match field.kind:
            case Struct() if here == ".defaults":
                assert value == {}
            case Struct() as inner:
                _compare(inner, value, here)
            case ListOf(item=Struct() as inner):
                _compare(inner, value[0], here)
            case MapOf(section=inner):
                _compare(inner, next(iter(value.values())), here)
            case kind if not field.required and field.name not in CHOSEN:
                if here != ".digest_secret":
                    assert _meaning(kind, value) == field.default, here
            case _:
                pass


def _meaning(kind: Kind[Any], value: Any) -> object:
    """What a value of the example means without any variable set."""
    text = yaml.safe_dump({"value": value}, default_flow_style=True)
    node = compose(text)
    assert isinstance(node, MapNode)
    reader = Reader({}, FOLDER)
    found = kind.read(reader, node.entries[0].value, Place(1, 1))
    assert not reader.mistakes
    return None if found is None else found.value
