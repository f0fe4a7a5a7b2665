"""What operators do about encrypted and personal data, over connections of its own: another key, and erasure."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gateway.config import Config
from gateway.core.model import RecordKey
from gateway.core.scope import scope_of
from gateway.operate.operations import By
from gateway.ports.reconciliation import Unsealable
from gateway.principal.named import parts_named
from gateway.run.server.claims import guarded
from gateway.run.server.operating import NotReady
from gateway.run.server.stores import make_authority, make_hot
from gateway.runtime.system import SystemClock, SystemRandomness
from gateway.store.postgres import PostgresStore
from gateway.store.postgres.reencryption import TABLES


@dataclass(slots=True)
class Reencryption:
    """How far it has come. `changed` have changed meanwhile, `unopened` are under a key that is not configured, `evident` hold evidence
    under another key until their doubt is resolved.
    """

    scanned: int = 0
    moved: int = 0
    changed: int = 0
    unopened: int = 0
    evident: int = 0

    @property
    def left(self) -> int:
        return self.changed + self.unopened + self.evident


async def reencrypt(config: Config, rate: int, told: Callable[[Reencryption], None]) -> Reencryption:
    """Move all that is encrypted to the present key, at most `rate` records a second. What is done stays done: begun anew, it goes on."""
    done = Reencryption()
    async with _authority(config) as authority:
        for table in TABLES:
            after: tuple[str, str] | None = None
            while True:
                walked = await authority.reencryption.walk(table, after)
                if walked.after is None:
                    break
                after = walked.after
                done.scanned += walked.scanned
                done.evident += walked.evident
                for place in walked.stale:
                    try:
                        moved = await authority.reencryption.move(table, place)
                    except Unsealable:
                        done.unopened += 1
                    else:
                        done.moved += moved
                        done.changed += not moved
                    await asyncio.sleep(1 / rate)
                told(done)
    return done


@dataclass(slots=True)
class Erasure:
    """What became of it. `left`: operations that have not ended, of which nothing was erased. `redis_wait`: seconds for which copies may
    stay in Redis, which nobody answers from.
    """

    erased: int = 0
    left: int = 0
    redis_wait: float = 0.0


def scope_ids_of(config: Config, values: Sequence[bytes]) -> list[str]:
    """The callers whom these raw values of principals' sources name, in all scopes of the route map."""
    secret = config.digest_secret or b""
    return sorted({scope_of(policy.scope, parts, secret).id for policy in guarded(config) for parts in parts_named(policy, values)})


async def erase(config: Config, scope_ids: Sequence[str], by: By) -> Erasure:
    """Drop what is stored of the ended operations of these callers. What is done stays done."""
    done = Erasure()
    async with _authority(config) as authority:
        link, tiered = make_hot(config, authority, SystemClock(), SystemRandomness())
        try:
            if link is not None:
                await link.start()
            for scope_id in scope_ids:
                after, left = "", 0
                while True:
                    batch = await authority.reencryption.erase(scope_id, after, by.actor, by.reason)
                    left = batch.left
                    if not batch.keys:
                        break
                    done.erased += len(batch.keys)
                    after = batch.keys[-1][0]
                    for key, completed in batch.keys:
                        if tiered is None:
                            break
                        done.redis_wait = max(done.redis_wait, await tiered.forget(RecordKey(scope_id, key), completed=completed))
                done.left += left
        finally:
            if tiered is not None:
                await tiered.close(1.0)
            if link is not None:
                await link.close()
    return done


@asynccontextmanager
async def _authority(config: Config) -> AsyncIterator[PostgresStore]:
    authority = make_authority(config)
    try:
        if (reason := await authority.ready()) is not None:
            raise NotReady(reason)
        yield authority
    finally:
        await authority.close()
