"""A scope that may mean something else by now: nothing of it is sent."""

from dataclasses import dataclass, replace

from gateway.core.decision import Label
from gateway.core.model import Status
from gateway.core.policy import Mode, OnUnknown, Policy
from gateway.engine.answers import Refused
from gateway.engine.engine import Engine
from gateway.ports import DoubtReason, InDoubt, StoreUnavailable
from tests.engine.stage import POLICY, Stage, refused, scene, told
from tests.engine.upstream import Part


@dataclass
class Hold:
    """A process's hold on its scopes, as the scene has it."""

    known_different: bool = False
    sure: bool = False
    confirms: bool | None = True
    asked: int = 0

    def differs(self, _policy: Policy) -> bool:
        return self.known_different

    def held(self, _policy: Policy) -> bool:
        return self.sure

    async def confirm(self, _policy: Policy) -> bool:
        self.asked += 1
        if self.confirms is None:
            raise StoreUnavailable("postgres", "timeout", may_have_landed=False)
        return self.confirms


def engine_with(stage: Stage, hold: Hold) -> Engine:
    engine = stage.another()[0]
    engine._deps = replace(engine._deps, meanings=hold)
    stage.engine = engine
    return engine


@scene
async def test_a_hold_that_is_sure_costs_no_look(stage: Stage) -> None:
    """The usual case."""
    hold = Hold(sure=True)
    engine_with(stage, hold)
    stage.upstream.plays(Part())
    assert told(await stage.ask())[1] == 201
    assert hold.asked == 0


@scene
async def test_one_that_is_not_sure_looks_between_the_reserve_and_the_first_byte(stage: Stage) -> None:
    """Whoever changes the scope afterwards finds the record."""
    hold = Hold()
    engine_with(stage, hold)
    stage.upstream.plays(Part())
    assert told(await stage.ask())[1] == 201
    assert hold.asked == 1


@scene
async def test_without_a_confirmation_nothing_is_sent_and_the_key_stays_free(stage: Stage) -> None:
    """Whether the scope means something else or nobody can say: released, 503, and a retry may run."""
    for confirms in (False, None):
        hold = Hold(confirms=confirms)
        engine_with(stage, hold)
        reply = await stage.ask()
        assert refused(reply) == (503, "upstream-unreachable")
        assert isinstance(reply.answer, Refused)
        assert reply.answer.members["reason"] == "scope_unconfirmed"
        assert stage.upstream.sent == []
        assert (await stage.record()).status is Status.FAILED_RETRYABLE
    stage.upstream.plays(Part())
    engine_with(stage, Hold(sure=True))
    assert told(await stage.ask())[1] == 201


@scene
async def test_of_a_scope_that_differs_nothing_is_even_reserved(stage: Stage) -> None:
    """Nor replayed: whose answers these are is another question by now."""
    engine_with(stage, Hold(known_different=True))
    reply = await stage.ask()
    assert (reply.label, refused(reply)) == (Label.STORE_UNAVAILABLE, (503, "store-unavailable"))
    assert await stage.memory.find(stage.request().key) is None


@scene
async def test_a_reexecution_that_is_not_confirmed_stays_in_doubt(stage: Stage) -> None:
    """Nothing was sent this time; of the attempt before nobody knows more."""
    policy = replace(POLICY, on_unknown=OnUnknown.REEXECUTE, max_execution=1.0)
    stage.upstream.plays(Part(raises=InDoubt(DoubtReason.DISCONNECTED)))
    assert refused(await stage.ask(policy)) == (502, "outcome-unknown")
    await stage.clock.sleep(200)
    engine_with(stage, Hold(confirms=False))
    await stage.ask(policy)
    assert len(stage.upstream.sent) == 1
    assert (await stage.record()).status is Status.UNKNOWN


@scene
async def test_an_observing_route_asks_nobody(stage: Stage) -> None:
    """It guards nothing."""
    hold = Hold(confirms=False)
    engine = engine_with(stage, hold)
    stage.upstream.plays(Part())
    reply = await engine.handle(stage.request(policy=replace(POLICY, mode=Mode.OBSERVE)))
    assert told(reply)[1] == 201
    assert hold.asked == 0
