"""Fingerprints under the route's own policy, and under the one that a record was written with."""

import pytest

from gateway.core.fingerprint import Content, make_fingerprinter, policy_digest, policy_text
from gateway.core.model import Fingerprint
from gateway.core.policy import BodyMode, FingerprintPolicy
from gateway.engine.fingerprints import Fingerprints
from gateway.ports import StoreUnavailable

SECRET = b"secret"
OWN = FingerprintPolicy()
OLD = FingerprintPolicy(BodyMode.BYTES)
CONTENT = Content("charges", "POST", b"/v1/charges", ((b"Content-Type", b"application/json"),), b'{"b":1,"a":2}')
SENT = make_fingerprinter(OWN, SECRET).fingerprint(CONTENT)
KEPT = make_fingerprinter(OLD, SECRET).fingerprint(CONTENT)


class Registry:
    """Policy texts by digest, and how often they were asked for."""

    def __init__(self, *texts: str, version: int = 1) -> None:
        self.texts = {policy_digest(text): (version, text) for text in texts}
        self.asked: list[bytes] = []

    async def __call__(self, digest: bytes) -> tuple[int, str] | None:
        self.asked.append(digest)
        return self.texts.get(digest)


def fingerprints(registry: Registry) -> Fingerprints:
    return Fingerprints({"create-charge": make_fingerprinter(OWN, SECRET)}, registry, SECRET)


def test_current_is_the_routes_own() -> None:
    """A request is reserved under the policy of its route."""
    assert fingerprints(Registry()).current("create-charge", CONTENT) == SENT


async def test_the_same_policy_needs_no_registry() -> None:
    """A record under the route's own policy is compared at once, whatever its digest."""
    registry = Registry()
    other = Fingerprint(SENT.version, SENT.policy, b"x" * 32)
    assert await fingerprints(registry).comparable(CONTENT, SENT, other) == SENT
    assert registry.asked == []


async def test_a_record_is_compared_under_its_own_policy() -> None:
    """A record written under an older policy is compared under that one, with the same secret; the text is looked up once."""
    registry = Registry(policy_text(OLD))
    subject = fingerprints(registry)
    assert await subject.comparable(CONTENT, SENT, KEPT) == KEPT
    changed = Content("charges", "POST", b"/v1/charges", CONTENT.headers, b'{"a":2,"b":1}')
    assert await subject.comparable(changed, SENT, KEPT) not in {None, KEPT}
    assert registry.asked == [KEPT.policy]


async def test_what_cannot_be_computed_is_none() -> None:
    """An unknown version, an unregistered policy, a policy of a later version or with an unknown text is never a mismatch: None."""
    later = Fingerprint(2, KEPT.policy, KEPT.digest)
    assert await fingerprints(Registry(policy_text(OLD))).comparable(CONTENT, SENT, later) is None
    assert await fingerprints(Registry()).comparable(CONTENT, SENT, KEPT) is None
    assert await fingerprints(Registry(policy_text(OLD), version=2)).comparable(CONTENT, SENT, KEPT) is None
    for text in ("not json", "{}", '{"body":"xml","headers":[],"ignore":[]}', '{"body":"auto","headers":[5],"ignore":[]}'):
        kept = Fingerprint(1, policy_digest(text), KEPT.digest)
        assert await fingerprints(Registry(text)).comparable(CONTENT, SENT, kept) is None


async def test_an_unknown_policy_is_asked_for_again() -> None:
    """That a policy is not registered is no lasting knowledge: another process may be about to register it."""
    registry = Registry()
    subject = fingerprints(registry)
    assert await subject.comparable(CONTENT, SENT, KEPT) is None
    registry.texts.update(Registry(policy_text(OLD)).texts)
    assert await subject.comparable(CONTENT, SENT, KEPT) == KEPT


async def test_a_store_that_is_away_is_told() -> None:
    """A registry that cannot be asked is an outage, not an unknown policy."""

    async def away(_: bytes) -> tuple[int, str] | None:
        raise StoreUnavailable("postgres", "refused", may_have_landed=False)

    with pytest.raises(StoreUnavailable):
        await Fingerprints({}, away, SECRET).comparable(CONTENT, SENT, KEPT)
