"""What a route map claims a scope and a fingerprint policy to mean, as the registry keeps it.

A changed claim while live records exist would move retries into another namespace, where they execute again: the registry refuses it.
"""

import json
from collections.abc import Iterator

from gateway.config import Config
from gateway.core.fingerprint import VERSION, policy_digest, policy_text
from gateway.core.policy import Policy
from gateway.core.scope import NO_PRINCIPAL, secret_check_value
from gateway.store.postgres import ScopeClaim


def scope_claims(config: Config) -> list[ScopeClaim]:
    """One claim for each scope name; the configuration has made sure that all routes of a scope agree."""
    claims = {policy.scope: _claim(policy, config.digest_secret or b"") for policy in guarded(config)}
    return [claims[scope] for scope in sorted(claims)]


def policy_claims(config: Config) -> list[tuple[bytes, int, str]]:
    """Digest, fingerprint version and full text of each fingerprint policy in use."""
    texts = sorted({policy_text(policy.fingerprint) for policy in guarded(config)})
    return [(policy_digest(text), VERSION, text) for text in texts]


def guarded(config: Config) -> Iterator[Policy]:
    """The policies of the guarded routes."""
    return (route.policy for route in config.routes if route.policy is not None)


def _claim(policy: Policy, secret: bytes) -> ScopeClaim:
    principal = json.dumps({"header": [name.lower() for name in policy.principal]}) if policy.principal else NO_PRINCIPAL
    key = json.dumps({"header": policy.key.header.lower(), "mode": policy.key.mode.value})
    return ScopeClaim(policy.scope, principal, key, secret_check_value(secret))
