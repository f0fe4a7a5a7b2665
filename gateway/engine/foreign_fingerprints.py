"""Fingerprints of requests under the version and policy that a record was written with, where that is not the route's own."""

from collections.abc import Awaitable, Callable

from gateway.core.fingerprint import VERSIONS, Content, Fingerprinter, make_fingerprinter, parse_policy
from gateway.core.model import Fingerprint

PolicyLookup = Callable[[bytes], Awaitable[tuple[int, str] | None]]
"""Finds (fingerprint version, policy text) by policy digest in the registry; None if it is not there. Raises StoreUnavailable."""


class ForeignFingerprints:
    """Computes them. Foreign policies are looked up once and kept: a policy text never changes under its digest."""

    def __init__(self, lookup: PolicyLookup, secret: bytes) -> None:
        self._lookup = lookup
        self._secret = secret
        self._foreign: dict[bytes, Fingerprinter] = {}

    async def comparable(self, content: Content, sent: Fingerprint, kept: Fingerprint) -> Fingerprint | None:
        """Under the record's own version and policy, or None if this process cannot compute that one."""
        if kept.version == sent.version and kept.policy == sent.policy:
            return sent
        if kept.version not in VERSIONS:
            return None
        fingerprinter = self._foreign.get(kept.policy)
        if fingerprinter is None:
            found = await self._lookup(kept.policy)
            if found is None or found[0] != kept.version:
                return None
            try:
                fingerprinter = make_fingerprinter(parse_policy(found[1]), self._secret, kept.version)
            except ValueError:
                return None
            if fingerprinter.digest != kept.policy:
                return None
            self._foreign[kept.policy] = fingerprinter
        return fingerprinter.fingerprint(content)
