"""A process's hold on its scopes. The process registers it at the start and confirms it every few seconds. The registry
refuses it when it has let in another process with another meaning (`--accept-scope-change`, a restored database, a
process that was frozen past its hold).

The process trusts its hold from the start of the last acknowledged look, on a clock that counts suspend, and for less
time than the hold lasts in the database. After that an attempt looks first. What was reserved before such a look is
live: no process changes its scope from then on.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence

from gateway.config import Config
from gateway.core.policy import Policy
from gateway.observe.observer import MetricsObserver
from gateway.ports import Clock, Randomness, StoreUnavailable
from gateway.run.server.claims import guarded, meaning, policy_claims, scope_claims
from gateway.runtime.outlasting import outlasting
from gateway.store.postgres import Registry, ScopeClaim
from gateway.store.postgres.meanings import NOT_REGISTERED, left_behind
from gateway.store.postgres.registry import HELD_FOR

LOOK_EVERY = 5.0
"""Seconds between two looks."""

TRUSTED_FOR = HELD_FOR * 2 / 3
"""Seconds for which the process trusts a look: less than the hold in the database, whatever the clocks' rates."""

_REMEDY = "Its requests get 503 here. Restart this process with the configuration that the others have, or end those and undo the change"

_log = logging.getLogger(__name__)


class Scopes:
    """The scopes that this process serves, as it understands them. `holder` is its name in the database."""

    def __init__(self, registry: Registry, clock: Clock, randomness: Randomness, observer: MetricsObserver) -> None:
        self.holder = uuid.uuid4()
        self._registry = registry
        self._clock = clock
        self._randomness = randomness
        self._observer = observer
        self._claims: dict[str, ScopeClaim] = {}
        self._fingerprints: Sequence[tuple[bytes, int, str]] = ()
        self._policies: dict[int, Policy] = {}
        self._digest: str | None = None
        self._trusted_until = 0.0
        self._different: dict[str, str] = {}
        self._registering = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    # ---- for the process's life

    async def register(self, config: Config, *, accept_change: bool = False) -> list[str]:
        """Hold what `config` claims. Returns what speaks against it; then all is held as it was. Raises
        `StoreUnavailable`.

        Scopes that left the map, and whose routes are not in another one, stay held: their last requests may still be
        under way.
        """
        wanted = {claim.scope: claim for claim in scope_claims(config)}
        async with self._registering:
            claims = {**left_behind(self._claims, wanted, self._different), **wanted}
            begun, self._trusted_until = self._clock.boottime(), 0.0  # attempts of the old meaning look first, and wait for this
            fingerprints = policy_claims(config)
            drifts = await self._registry.register(list(claims.values()), fingerprints, accept_change=accept_change, holder=self.holder)
            if not drifts:
                self._claims, self._fingerprints = claims, fingerprints
                # Those of the map before count until another one is served, where they mean the same.
                self._policies = {number: policy for number, policy in self._policies.items() if self._means(policy)}
                self._policies |= {id(policy): policy for policy in guarded(config)}
                self._digest, self._trusted_until = None, begun + TRUSTED_FOR
                self._note({})
            return drifts

    def serve(self, config: Config) -> None:
        """The map of `config` is in force, of those that were registered."""
        self._policies = {id(policy): policy for policy in guarded(config) if self._means(policy)}

    async def run(self) -> None:
        """Look for ever. A failed look is counted; requests find out by themselves when trust ends meanwhile."""
        while True:
            await self._clock.sleep(LOOK_EVERY * (0.75 + self._randomness.jitter() / 2))
            try:
                await self._look()
            except StoreUnavailable as error:
                self._observer.store_error("postgres", "scopes", error.reason)

    async def let_go(self) -> None:
        """Give up all holds. A hold that the database cannot be told to end ends by itself."""
        if self._claims:
            try:
                await self._registry.let_go(self.holder)
            except StoreUnavailable:
                return

    def problem(self) -> str | None:
        """Which scope has another meaning now, in words; None if none has."""
        return "; ".join(f"scope {scope!r}: {words}" for scope, words in self._different.items()) or None

    # ---- for attempts (`gateway.engine.meanings.Meanings`)

    def differs(self, policy: Policy) -> bool:
        return policy.scope in self._different

    def held(self, policy: Policy) -> bool:
        return id(policy) in self._policies and self._clock.boottime() < self._trusted_until and policy.scope not in self._different

    async def confirm(self, policy: Policy) -> bool:
        if self._clock.boottime() >= self._trusted_until:
            if self._looking is None or self._looking.done():  # one look for all who need it now
                self._looking = asyncio.get_running_loop().create_task(self._look(), name="scopes")
            await outlasting(self._looking)
        return policy.scope not in self._different and (id(policy) in self._policies or self._means(policy))

    def _means(self, policy: Policy) -> bool:
        """Whether the policy, perhaps of a map before, means what is held of its scope."""
        claim = self._claims.get(policy.scope)
        return claim is not None and meaning(policy) == (claim.principal, claim.key_settings)

    # ---- looks

    async def _look(self) -> None:
        async with self._registering:
            begun, claims = self._clock.boottime(), list(self._claims.values())
            digest = await self._registry.hold(claims, self.holder)
            different = self._different if digest == self._digest else await self._differences(claims)
            self._digest, self._trusted_until = digest, begun + TRUSTED_FOR
            self._note(different)

    async def _differences(self, claims: Sequence[ScopeClaim]) -> dict[str, str]:
        found = await self._registry.differences(claims)
        if any(NOT_REGISTERED in words for words in found.values()):  # a database that was emptied or restored: the first to come claims
            await self._registry.register(claims, self._fingerprints, holder=self.holder)
            found = await self._registry.differences(claims)
        return found

    def _note(self, different: dict[str, str]) -> None:
        for scope, words in different.items():
            if self._different.get(scope) != words:
                _log.error("Scope %r means something else in the database than in this process: %s. %s", scope, words, _REMEDY)
        for scope in self._different.keys() - different.keys():
            _log.info("Scope %r means again what it means in this process", scope)
        self._different = different
        self._observer.scopes_differ(len(different))
