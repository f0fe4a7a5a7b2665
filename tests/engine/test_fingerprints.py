"""Fingerprints under the route's own policy, and under the policy and version that a record was written with."""

from dataclasses import replace

import pytest

from gateway.core.fingerprint import VERSION, VERSIONS, Content, make_fingerprinter, policy_digest, policy_text
from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.model import Fingerprint
from gateway.core.policy import Policy
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.ports import StoreUnavailable
from tests.support.requests import plan_of

SECRET = b"secret"
OWN = FingerprintPolicy()
OLD = FingerprintPolicy(BodyMode.BYTES)
CONTENT = Content("charges", "POST", b"/v1/charges", ((b"Content-Type", b"application/json"),), b'{"b":1,"a":2}')
SENT = make_fingerprinter(OWN, SECRET).fingerprint(CONTENT)
KEPT = make_fingerprinter(OLD, SECRET).fingerprint(CONTENT)


class Registry:
    """Policy texts by digest, and how often they were asked for."""

    def __init__(self, *texts: str, version: int = VERSION) -> None:
        self.texts = {policy_digest(text, version): (version, text) for text in texts}
        self.asked: list[bytes] = []

    async def __call__(self, digest: bytes) -> tuple[int, str] | None:
        self.asked.append(digest)
        return self.texts.get(digest)


def fingerprints(registry: Registry) -> ForeignFingerprints:
    return ForeignFingerprints(registry, SECRET)


def test_current_is_the_routes_own() -> None:
    """A request is reserved under the policy of its route."""
    assert plan_of(Policy("charges", (), fingerprint=OWN), secret=SECRET).fingerprinter.fingerprint(CONTENT) == SENT


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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("policy", [OWN, OLD])
async def test_a_record_is_compared_under_its_own_version(version: int, policy: FingerprintPolicy) -> None:
    """A record of an older version, under the route's own policy or another, is compared as that version reads it; one look-up each."""
    content = Content("charges", "POST", b"/v1/charges", ((b"Content-Type", b"application/x-www-form-urlencoded"),), b"a=1&b=2")
    kept = make_fingerprinter(policy, SECRET, version).fingerprint(content)
    sent = make_fingerprinter(OWN, SECRET).fingerprint(content)
    registry = Registry(policy_text(policy), version=version)
    subject = fingerprints(registry)
    for _ in range(2):
        assert await subject.comparable(content, sent, kept) == kept
    reordered = replace(content, body=b"b=2&a=1")
    again = make_fingerprinter(OWN, SECRET).fingerprint(reordered)
    assert (await subject.comparable(reordered, again, kept) == kept) == (version > 1 and policy is OWN)
    assert registry.asked == ([] if (version, policy) == (VERSION, OWN) else [kept.policy])


async def test_a_text_that_a_version_does_not_know_is_none() -> None:
    """A registered policy that its version cannot mean is never a mismatch: None."""
    text = policy_text(FingerprintPolicy(only=("/a",)))
    kept = Fingerprint(1, policy_digest(text, 1), KEPT.digest)
    assert await fingerprints(Registry(text, version=1)).comparable(CONTENT, SENT, kept) is None


async def test_what_cannot_be_computed_is_none() -> None:
    """An unknown version, an unregistered policy, a policy of a later version or with an unknown text is never a mismatch: None."""
    later = Fingerprint(VERSION + 1, KEPT.policy, KEPT.digest)
    assert await fingerprints(Registry(policy_text(OLD))).comparable(CONTENT, SENT, later) is None
    assert await fingerprints(Registry()).comparable(CONTENT, SENT, KEPT) is None
    registry = Registry(policy_text(OLD))
    registry.texts[KEPT.policy] = (VERSION + 1, policy_text(OLD))
    assert await fingerprints(registry).comparable(CONTENT, SENT, KEPT) is None
    for text in ("not json", "{}", '{"body":"xml","headers":[],"ignore":[]}', '{"body":"auto","headers":[5],"ignore":[]}'):
        kept = Fingerprint(VERSION, policy_digest(text), KEPT.digest)
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
        await ForeignFingerprints(away, SECRET).comparable(CONTENT, SENT, KEPT)
