"""The dashboard asks for metrics and labels that the gateway has, and compose shows it."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.observe.metrics import Families
from gateway.run.supervisor.merged import MergedMetrics
from tests.deploy.support import ROOT, services
from tests.deploy.test_alert_rules import needs_promtool
from tests.observe.support import parse

FOLDER = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds to every series."""


def queries() -> Iterator[str]:
    """Every expression, with the variables of the dashboard replaced as Grafana does it."""
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    values = {"$__rate_interval": "1m", "$__range": "1h", "$instance": ".*", "$route": ".*"}
    for expr in [*asked, *(one["expr"] for one in DASHBOARD["annotations"]["list"])]:
        yield re.sub(r"\$\w+", lambda found: values[found[0]], expr)


def labels() -> dict[str, set[str]]:
    """By the names of series: the labels that they have."""
    found = {name: {"instance"} for name, _ in parse(MergedMetrics().exposition()[0])}
    for family in Families().collector.families:
        names = {*family.label_names, *SCRAPED}
        suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[family.kind]
        found.update({family.name + suffix: names | ({"le"} if suffix == "_bucket" else set()) for suffix in suffixes})
    return {**found, "up": SCRAPED, "ALERTS": {"alertname", "alertstate"}}


def test_the_file_is_what_the_script_makes() -> None:
    """Nobody edits the JSON by hand."""
    made = subprocess.run([sys.executable, str(FOLDER / "generate.py")], capture_output=True, text=True, check=True).stdout
    assert (FOLDER / "dashboard.json").read_text() == made


@pytest.mark.parametrize("expr", [*queries()])
def test_what_it_asks_for_exists(expr: str) -> None:
    """Names of series, labels that select, and labels that are grouped by."""
    known = labels()
    asked = re.findall(r"(idempotency_\w+|\bup|\bALERTS)\{([^}]*)\}", expr)
    assert asked
    assert len(asked) == len(re.findall(r"idempotency_\w+|\bup\b|\bALERTS\b", re.sub(r'"[^"]*"', "", expr)))
    for name, selector in asked:
        assert set(re.findall(r"(\w+)(?:=|!=)~?\"", selector)) <= known[name], name
    grouped = {label for inside in re.findall(r"by \(([^)]*)\)", expr) for label in inside.split(", ")}
    assert grouped <= set.intersection(*(known[name] for name, _ in asked))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_its_legends_have_their_labels(panel: dict[str, Any]) -> None:
    """A legend shows only labels that its query keeps; without a legend there is one series."""
    for target in panel["targets"]:
        kept = {label for inside in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in inside.split(", ")}
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert shown == (kept - {"le"} if shown else set())
    assert panel["description"]


@pytest.mark.skipif(
    importlib.util.find_spec("grafana_foundation_sdk") is None and "CI" not in os.environ, reason="no schema: pip install --group deploy"
)
def test_grafana_knows_every_field() -> None:
    """Through Grafana's own classes and back: what they do not know would be ignored, misspelled or in the wrong place."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - it may not be there
    from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415 - as above
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415 - as above

    register_default_plugins()
    back = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(DASHBOARD)))
    assert set(lost(DASHBOARD, back)) == {"/annotations/list/0/titleFormat"}, "that is of the data source's own editor"


def lost(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Where something of ours is missing, or another."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            yield from lost(value, theirs.get(name), f"{at}/{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(*pair, f"{at}/{index}")
    elif ours != theirs:
        yield at


def test_panels_do_not_overlap() -> None:
    """Each has its own place on the grid."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@needs_promtool
def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    """Its own parser takes them."""
    rules = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(queries())]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [shutil.which("promtool") or "promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_compose_provisions_it() -> None:
    """Under a profile; its datasource is the Prometheus of the file, and the dashboard lies where its provider looks."""
    service = services()["grafana"]
    assert service["profiles"] == ["grafana"]
    (source,) = yaml.safe_load((FOLDER / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((FOLDER / "provisioning" / "dashboards" / "gateway.yml").read_text())["providers"]
    targets = dict(mount.split(":")[:2] for mount in service["volumes"])
    assert targets["./deploy/grafana/dashboard.json"].startswith(f"{provider['options']['path']}/")
    assert service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == targets["./deploy/grafana/dashboard.json"]
