"""The fixtures of tests of accepted work."""

from dataclasses import replace

import pytest

from tests.support.gateway import Setup
from tests.support.stack import gateway, setup, upstream

__all__ = ["accepting", "gateway", "setup", "upstream"]

ROUTES = """
  - id: pay
    methods: [POST]
    path: /v1/pay
    upstream: payments
    idempotency: {principal: [{header: Authorization}], execution: async}
  - id: charge
    methods: [POST]
    path: /v1/charge
    upstream: payments
    idempotency: {principal: [{header: Authorization}], execution: prefer, in_flight: accepted}
  - id: slow
    methods: [POST]
    path: /v1/slow
    upstream: payments
    idempotency:
      principal: [{header: Authorization}]
      execution: async
      concurrency: 1
      max_pending: {route: 3, principal: 2}
  - id: brief
    methods: [POST]
    path: /v1/brief
    upstream: payments
    idempotency: {principal: [{header: Authorization}], execution: async, pending_for: 3s}
  - id: sync
    methods: [POST]
    path: /v1/sync
    upstream: payments
    idempotency: {principal: [{header: Authorization}], in_flight: accepted}
  - {id: rest, path: /**, upstream: payments}
"""


TIMEOUTS = "{connect: 1s, first_byte: 20s, read_idle: 1s, total: 40s}"


@pytest.fixture
def accepting(setup: Setup) -> Setup:
    """A gateway that accepts work."""
    return replace(setup, routes=ROUTES, timeouts=TIMEOUTS, more="encryption_key: a-key-of-the-tests-0123456789-0123456789")
