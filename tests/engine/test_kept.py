"""What is kept of a request for a look: made before anything is sent, and not for a replay from memory."""

from dataclasses import dataclass, replace

from gateway.core.decision import Label
from gateway.core.model import Intent, Lease, Record, Tombstone
from gateway.core.packing import INLINE
from gateway.core.policy import Policy
from gateway.core.reconcile.policy import Reconcile, Resend
from gateway.engine.engine import Engine
from gateway.engine.foreign_fingerprints import ForeignFingerprints
from gateway.ports import Recollection, Store
from tests.background.house import SEALER
from tests.engine.stage import POLICY, Stage, scene, told
from tests.engine.store import TroubledStore
from tests.engine.test_injected import recollection
from tests.support.requests import StagedRequest

RESENDS: Policy = replace(POLICY, reconcile=Reconcile(probe=Resend()))


@dataclass(slots=True)
class Noting(StagedRequest):
    """Captures a value, and counts how often."""

    times: int = 0

    def capture(self) -> None:
        assert self.payload, "its body is there"
        self.captured = {"order": "o-1"}
        self.times += 1


def noting(stage: Stage, body: bytes = b"{}") -> Noting:
    plain = stage.request(body, RESENDS)
    return Noting(plain.request_id, plain.guard, plain.key, plain.payload)


class Watched(TroubledStore):
    """Remembers what was to be reserved."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, stage.memory)
        self.reserved: list[Intent] = []

    async def reserve(self, intent: Intent) -> Lease | Record | Tombstone:
        self.reserved.append(intent)
        return await super().reserve(intent)


def engine(stage: Stage, remembered: Recollection | None = None, store: Store | None = None) -> Engine:
    deps = replace(stage.engine._deps, sealer=SEALER, remembered=remembered, store=store or stage.store)
    return Engine(deps, ForeignFingerprints(stage._lookup, b""))


@scene
async def test_the_reserve_takes_what_a_look_needs(stage: Stage) -> None:
    """Whatever the size of the body, before the request is sent."""
    for body in (b"{}", b"x" * (INLINE + 1)):
        request, store = noting(stage, body), Watched(stage)
        stage.engine = engine(stage, store=store)
        assert told(await stage.engine.handle(request))[0] is Label.EXECUTE
        (intent,) = store.reserved
        assert intent.captured == {"order": "o-1"}
        assert intent.sealed is not None
        assert request.times == 1
        stage.forget()


@scene
async def test_a_replay_from_memory_makes_nothing_of_it(stage: Stage) -> None:
    """Nothing will be sent."""
    await stage.ask(RESENDS)
    request = noting(stage)
    reply = engine(stage, await recollection(stage)).answer(request)
    assert told(reply)[0] is Label.REPLAY  # type: ignore[arg-type]  # at once
    assert (request.times, request.sealed) == (0, None)
