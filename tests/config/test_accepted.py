"""What a route must have for accepted work, and what makes no sense beside it."""

from pathlib import Path

import pytest

from gateway.core.policy import Execution, MaxPending
from tests.config.support import mistakes, read

BASE = """
digest_secret: 0123456789abcdef
postgres: {dsn: "postgresql://u@h/d"}
KEY
upstreams:
  payments: {url: "http://payments:8000"}
routes:
  - {id: pay, methods: [POST], path: /v1/pay, upstream: payments, idempotency: {principal: [{header: X-Account}], MORE}}
"""
KEY = "encryption_key: 0123456789abcdef0123456789abcdef"


def text(more: str, key: str = KEY) -> str:
    return BASE.replace("KEY", key).replace("MORE", more)


@pytest.mark.parametrize(
    ("more", "key", "words"),
    [
        ("execution: async", "", "it needs `encryption_key`"),
        ("execution: prefer", "", "it needs `encryption_key`"),
        ("execution: async, limits: {request_body: 2MiB}", KEY, "bodies of up to 1MiB"),
        ("execution: async, stream: true", KEY, "nobody to relay an answer to"),
        ("execution: async, on_store_outage: forward", KEY, "write `on_store_outage: reject`"),
        ("execution: async, mode: observe", KEY, "accepts nothing"),
        ("in_flight: accepted, mode: observe", KEY, "accepts nothing"),
        ("execution: later", KEY, "expected one of sync, async, prefer"),
        ("execution: async, pending_for: 31d", KEY, "pending_for"),
        ("execution: async, concurrency: 0", KEY, "must be from 1 to 10000"),
        ("execution: async, max_pending: {route: 0}", KEY, "must be from 1 to 1000000"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, more: str, key: str, words: str) -> None:
    (mistake,) = mistakes(tmp_path, text(more, key))
    assert words in mistake


@pytest.mark.parametrize("path", ["/", "ops", "/a//b", "/a/../b", "/a/", "/a?b", "/%61"])
def test_an_operations_path_is_plain(tmp_path: Path, path: str) -> None:
    """It could be read in two ways, or take paths that it does not name."""
    (mistake,) = mistakes(tmp_path, text("execution: async").replace(KEY, f'{KEY}\noperations_path: "{path}"'))
    assert "operations_path" in mistake


def test_what_is_good_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, text("execution: prefer, in_flight: accepted, pending_for: 2h, concurrency: 3, max_pending: {principal: 5}"))
    policy = config.routes[0].policy
    assert policy is not None
    assert (policy.execution, policy.pending_for, policy.concurrency) == (Execution.PREFER, 7200.0, 3)
    assert policy.max_pending == MaxPending(10_000, 5)
    assert (policy.accepts, policy.has_status) == (True, True)
    assert config.warnings == ()


def test_settings_that_do_nothing_are_told(tmp_path: Path) -> None:
    config = read(tmp_path, text("pending_for: 2h, concurrency: 3"))
    assert [str(warning) for warning in config.warnings if "execution: sync" in str(warning)] != []
