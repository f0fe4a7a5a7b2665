"""The operators' service over a process's stores; and with connections of its own, for commands and for a supervisor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from gateway.config import Config
from gateway.core.model import RecordKey
from gateway.core.policy import Policy
from gateway.core.scope import key_digest
from gateway.observe.tracing import harmless, tracer_of
from gateway.operate.operations import Operator, Told
from gateway.run.server.asking import UpstreamAsker
from gateway.run.server.stores import make_authority, make_hot, make_replays
from gateway.runtime.system import SystemClock, SystemRandomness
from gateway.store.postgres import PostgresStore
from gateway.store.replay_cache import ReplayCache
from gateway.store.tiered import TieredStore


class NotReady(Exception):
    """Postgres cannot be worked with; `str()` says why."""


@contextlib.asynccontextmanager
async def operating(config: Callable[[], Config], *, changes: bool = True, ready: bool = False) -> AsyncIterator[Operator]:
    """An operator over the stores that `config` names at the start. `config` is asked anew for the routes' policies.

    Postgres is connected to when it is first used; with `ready` at once, and `NotReady` is raised if it is away, or its
    schema is another than ours. Without `changes` it does not connect to Redis.
    """
    at_start = config()
    authority = make_authority(at_start)
    clock = SystemClock()
    tracing = at_start.tracing if changes else None
    tracer = None if tracing is None else tracer_of(tracing.endpoint, at_start.name)
    link, tiered = make_hot(at_start, authority, clock, SystemRandomness()) if changes else (None, None)
    try:
        if ready and (reason := await authority.ready()) is not None:
            raise NotReady(reason)
        if link is not None:
            await link.start()
        yield make_operator(
            config, authority, tiered, make_replays(at_start, tiered, clock), None if tracer is None else harmless(tracer.verdict)
        )
    finally:
        if tracer is not None:
            await asyncio.to_thread(tracer.close)
        if tiered is not None:
            await tiered.close(1.0)
        if link is not None:
            await link.close()
        await authority.close()


def digest_of(config: Callable[[], Config]) -> Callable[[RecordKey], str]:
    """What gives a key as logs show it."""
    return lambda key: key_digest(config().digest_secret or b"", key.scope_id, key.key)


def make_operator(
    config: Callable[[], Config],
    authority: PostgresStore,
    tiered: TieredStore | None,
    replays: ReplayCache | None,
    told: Told | None = None,
) -> Operator:
    """What people may do to records, over these stores."""

    def policies() -> dict[str, Policy]:
        return {route.id: route.policy for route in config().routes if route.policy is not None}

    forget = None if tiered is None else tiered.forget
    return Operator(
        authority.operations,
        authority.reconciliation,
        policies,
        forget,
        replays,
        digest_of(config),
        approvals=authority.approvals,
        second=lambda: config().admin.second_approval,
        seals=lambda: config().encryption.answers,
        asker=UpstreamAsker(config, SystemClock()),
        told=told,
    )
