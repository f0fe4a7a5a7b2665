"""The limit on open files follows the configuration."""

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.http.connection import TURNED_AWAY
from gateway.run.server.descriptors import SPARE, affordable, raise_limit, wanted_descriptors

TEXT = """
postgres: {dsn: "postgresql://localhost/x", pool_size: 3}
client: {max_connections: 500}
upstreams:
  one: {url: "http://one:1", max_connections: 10}
  two: {targets: ["http://two:1", "http://two:2"], max_connections: 20}
routes:
  - {id: rest, path: /**, upstream: one}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "gateway.yaml"
    path.write_text(TEXT)
    return load(path, {})


def test_every_connection_counts(config: Config) -> None:
    """Clients, each target's connections, the database's, and what else may be open."""
    assert wanted_descriptors(config) == 500 + 10 + 40 + 3 + SPARE + TURNED_AWAY


def test_clients_never_use_up_what_others_need(config: Config) -> None:
    """Where the system allows fewer files than are wanted, fewer clients are taken: operators still get in."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for soft, clients in ((wanted_descriptors(config), 500), (900, 450), (300, 150)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
            assert affordable(config) == clients
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_and_never_lowered(config: Config) -> None:
    """As far as is needed and allowed."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, before[1]))
        raise_limit(config)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == wanted_descriptors(config)
        raise_limit(replace(config, postgres=replace(config.postgres, pool_size=1)))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == wanted_descriptors(config)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_that_cannot_be_raised_far_enough_is_told(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """With both numbers and the remedy."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    raise_before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        raise_limit(replace(config, client=replace(config.client, max_connections=hard)))
        assert "ulimit -Hn" in caplog.text
        assert str(hard) in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, raise_before)
