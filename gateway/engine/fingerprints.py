"""Fingerprints of requests, under the route's own policy and under the one that a record was written with."""

from collections.abc import Awaitable, Callable, Mapping

from gateway.core.fingerprint import VERSIONS, Content, Fingerprinter, make_fingerprinter, parse_policy
from gateway.core.model import Fingerprint

PolicyLookup = Callable[[bytes], Awaitable[tuple[int, str] | None]]
"""Finds (fingerprint version, policy text) by policy digest in the registry; None if it is not there. Raises StoreUnavailable."""


class Fingerprints:
    """Computes fingerprints. Foreign policies are looked up once and kept: a policy text never changes under its digest."""

    def __init__(self, by_route: Mapping[str, Fingerprinter], lookup: PolicyLookup, secret: bytes) -> None:
        self.by_route = by_route
        self._lookup = lookup
        self._secret = secret
        self._foreign: dict[bytes, Fingerprinter] = {}

    def current(self, route_id: str, content: Content) -> Fingerprint:
        """Under the policy of the guarded route at hand."""
        return self.by_route[route_id].fingerprint(content)

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
