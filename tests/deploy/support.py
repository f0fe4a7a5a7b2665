"""Reads the deployment's files: the compose file with its defaults filled in, and the Dockerfile's instructions."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.config import Config, load
from gateway.operate.admin import AdminPorts

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
CONFIG_FOLDER = "/etc/idempotency-gateway"
IMAGE = "idempotency-gateway:dev"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile, its lines joined."""

    name: str
    value: str


def stages() -> list[list[Instruction]]:
    """The Dockerfile's instructions: those before the first FROM, then each stage's, its FROM included."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n", " ", text)
    found: list[list[Instruction]] = [[]]
    for line in filter(str.strip, joined.splitlines()):
        name, _, value = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, value.strip()))
    return found


def final(name: str) -> str:
    """The last value of an instruction in the final stage."""
    return [one.value for one in stages()[-1] if one.name == name][-1]


def health_command() -> list[str]:
    """What the image's HEALTHCHECK runs."""
    command: list[str] = json.loads(final("HEALTHCHECK").partition("CMD ")[2])
    return command


def compose(env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The compose file as compose reads it, with the variables of `env` and defaults for all others."""
    return filled(COMPOSE.read_text(), env)


def filled(text: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A compose file of this text, as `compose` reads it."""
    values = env or {}

    def fill(found: re.Match[str]) -> str:
        return values.get(found["name"]) or found["default"]

    document: dict[str, Any] = yaml.load(re.sub(r"\$\{(?P<name>[A-Z_]+):-(?P<default>[^}]*)\}", fill, text), yaml.CSafeLoader)
    return document


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def route_map() -> Config:
    """The route map, read with the environment of the gateway's container."""
    env = {name: str(value) for name, value in services()["gateway"]["environment"].items()}
    return load(ROOT / "deploy" / "compose" / "gateway.yaml", env)


def seconds(text: str) -> float:
    """A duration of the compose file, in whole seconds."""
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None, text
    return float(found[1])


def silent_ports() -> AdminPorts:
    """An admin listener's ports with nothing behind them: its own routes are what counts here."""

    async def readiness() -> Mapping[str, str | None]:
        return {}

    async def config() -> object:
        return {}

    async def reload() -> Sequence[str]:
        return []

    return AdminPorts(readiness, lambda _: (b"", "text/plain"), config, reload)
