"""Every block of YAML in the pages can be read; those of docs/deployment.md are used as what they say they are."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.rendering import chart, needs_tools
from tests.documents.test_prose import PAGES

DEPLOYMENT = next(page for page in PAGES if page.name == "deployment.md")


def blocks(page: Path) -> Iterator[str]:
    yield from re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def block(name: str) -> Any:
    """The block of the page on deployment that begins with a comment of this name."""
    (found,) = (text for text in blocks(DEPLOYMENT) if text.startswith(f"# {name}\n"))
    return yaml.safe_load(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_are_yaml(page: Path) -> None:
    """A block that is indented wrongly, or has a stray quote, costs its reader an hour."""
    for text in blocks(page):
        assert yaml.safe_load(text) is not None


@needs_tools
def test_the_values_of_the_page_make_a_release() -> None:
    """The chart takes them, and makes what the page promises."""
    made = {one["kind"] for one in chart(block("values.yaml"))}
    assert made >= {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy", "Job"}
    assert made >= {"ServiceMonitor", "PrometheusRule"}


def test_the_adapter_serves_what_the_autoscaler_asks_for() -> None:
    """The rule's series is the metric of the chart."""
    (rule,) = block("Prometheus adapter")["rules"]
    name = rule["seriesQuery"].partition("{")[0]
    assert name in (DEPLOYMENT.parents[1] / "deploy/helm/idempotency-gateway/templates/horizontalpodautoscaler.yaml").read_text()


def test_the_page_makes_the_files_of_the_overlay() -> None:
    """Each secret that the overlay mounts is written by the block, and made readable."""
    (block_,) = (
        text for text in re.findall(r"^```sh\n(.*?)^```", DEPLOYMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE) if "openssl" in text
    )
    overlay = yaml.safe_load((DEPLOYMENT.parents[1] / "deploy" / "compose" / "secret-files.yml").read_text())
    assert {f"./{name}" for name in re.findall(r"> (secrets/[\w-]+)", block_)} == {one["file"] for one in overlay["secrets"].values()}
