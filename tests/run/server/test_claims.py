import json
from pathlib import Path

from gateway.core.fingerprint import policy_digest
from gateway.run.server.claims import policy_claims, scope_claims
from tests.config.support import HEAD, read

MAP = (
    HEAD
    + """\
routes:
  - {id: a, path: "/v1/{thing}/x", upstream: payments, methods: [PUT], idempotency: {scope: money, principal: none}}
  - {id: b, path: /v1/pay, upstream: payments, idempotency: {scope: money, principal: none}}
  - id: c
    path: /v1/c
    upstream: payments
    methods: [POST]
    idempotency: {principal: [{header: X-Tenant}, {header: X-User}], key: {header: X-Key, mode: raw}}
  - {id: rest, path: /**, upstream: payments}
"""
)


def test_a_claim_says_all_that_a_scope_means(tmp_path: Path) -> None:
    """Principal and key settings in words, and one entry for each method of each guarded route of the scope."""
    tenant, money = scope_claims(read(tmp_path, MAP))
    assert (tenant.scope, tenant.principal, tenant.key_settings) == ("c", "header x-tenant, x-user", "header x-key, raw")
    assert json.loads(tenant.routes) == [["POST", "/v1/c", "payments"]]
    assert (money.scope, money.principal, money.key_settings) == ("money", "none", "header idempotency-key, lenient")
    assert json.loads(money.routes) == [
        ["PATCH", "/v1/pay", "payments"], ["POST", "/v1/pay", "payments"], ["PUT", "/v1/{}/x", "payments"]
    ]  # fmt: skip
    assert "0123456789abcdef" not in str(money)


def test_policies_are_claimed_under_the_version_that_is_written(tmp_path: Path) -> None:
    """The registry keeps each text under the version whose fingerprints are made with it."""
    for version in (2, 3):
        text = MAP if version == 3 else f"fingerprint_version: {version}\n{MAP}"
        ((digest, claimed, policy),) = policy_claims(read(tmp_path, text))
        assert (digest, claimed) == (policy_digest(policy, version), version)


def test_what_does_not_matter_changes_no_claim(tmp_path: Path) -> None:
    """The order of routes, the case of header names and the names of parameters are no part of what a scope means."""
    lines = MAP.replace("{thing}", "{other}").replace("X-Tenant", "x-tenant").replace("X-Key", "x-KEY").splitlines()
    lines[5], lines[6] = lines[6], lines[5]
    assert scope_claims(read(tmp_path, "\n".join(lines))) == scope_claims(read(tmp_path, MAP))
