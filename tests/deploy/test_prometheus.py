"""deploy/compose/prometheus.yml agrees with the gateway that it watches."""

from typing import Any

import pytest
import yaml

from gateway.config import TcpListener
from gateway.operate.admin import make_admin
from tests.deploy.support import ROOT, route_map, services, silent_ports


@pytest.fixture
def prometheus() -> dict[str, Any]:
    """The configuration of the compose file's Prometheus."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text())
    return document


def test_it_scrapes_the_admin_listener(prometheus: dict[str, Any]) -> None:
    """The target is the gateway's service and its admin port; the path is one that the admin listener serves without its token."""
    (job,) = prometheus["scrape_configs"]
    (target,) = (target for group in job["static_configs"] for target in group["targets"])
    host, port = target.split(":")
    admin = route_map().admin
    assert host in services()
    assert admin.listen == TcpListener("0.0.0.0", int(port))
    assert admin.token is not None
    paths = {resource.canonical for resource in make_admin(silent_ports(), admin.token).router.resources()}
    assert job["metrics_path"] in paths
    assert not job["metrics_path"].startswith("/admin/")


def test_a_scrape_ends_before_the_next_begins(prometheus: dict[str, Any]) -> None:
    """Prometheus refuses a timeout longer than the interval."""
    times = prometheus["global"]
    assert int(times["scrape_timeout"].removesuffix("s")) <= int(times["scrape_interval"].removesuffix("s"))


def test_it_reads_the_mounted_file() -> None:
    """The path that Prometheus is told is where the file is mounted, and its data goes to the volume."""
    service = services()["prometheus"]
    targets = dict(mount.split(":")[:2] for mount in service["volumes"])
    assert f"--config.file={targets['./deploy/compose/prometheus.yml']}" in service["command"]
    assert f"--storage.tsdb.path={targets['prometheus-data']}" in service["command"]
