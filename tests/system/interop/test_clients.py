"""Real clients with their own retries, while a connection is lost before or behind the gateway: one run, and one answer to all tries.

All faults of one client happen at once, each to an operation of its own, so that the client's pauses pass together.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.faults import FaultProxy, HeldReply, fault_proxy
from tests.support.services import Services
from tests.system.interop.clients import CLIENTS, TRIES, Client, Errand, Outcome
from tests.system.interop.stage import REST, Stage, answer_to, guarded, staged

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = guarded("lost") + guarded("held") + guarded("silent") + guarded("away", "away") + REST
TAKE_409_FOR_AN_ANSWER = {"curl"}


@dataclass(slots=True)
class Act:
    """One fault as it happens to one client. `front` is the fault proxy that only this client goes through."""

    fault: str
    stage: Stage
    front: FaultProxy
    client: Client
    errand: Errand
    before: Counter[str]

    def start(self) -> "asyncio.Future[Outcome]":
        return asyncio.ensure_future(self.client(self.errand))

    def hold_reply(self) -> HeldReply:
        return self.front.hold_reply_to(self.errand.token.encode())

    async def decided(self, **wanted: int) -> None:
        """Assert the decisions on all tries together."""
        await self.stage.decided(self.before, self.fault, **wanted)


async def until(event: asyncio.Event, outcome: "asyncio.Future[Outcome]") -> None:
    """Wait for what happens while the client is on its errand."""
    happened = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((happened, outcome), return_when=asyncio.FIRST_COMPLETED)
        assert happened.done(), outcome.result()
    finally:
        happened.cancel()


async def lose_the_reply(act: Act) -> Outcome:
    """The client's connection is reset in place of the answer."""
    act.front.drop_next_reply()
    return await act.start()


async def cut_while_it_runs(act: Act) -> Outcome:
    """The client's connection is reset while the upstream runs, which ends once the second try has been answered."""
    token, before = act.errand.token, await act.stage.settlements(act.fault)
    outcome = act.start()
    await until(act.stage.running[token], outcome)
    act.front.cut()
    second = act.hold_reply()
    await until(second.reached, outcome)
    act.stage.released[token].set()
    await act.stage.settled(before, act.fault, "complete")
    second.let_go()
    return await outcome


async def hang_up_upstream(act: Act) -> Outcome:
    """The upstream executes and closes the connection without a word."""
    return await act.start()


async def refuse_upstream(act: Act) -> Outcome:
    """The upstream refuses connections until the first try has been answered."""
    await act.stage.back.refuse()
    first, outcome = act.hold_reply(), act.start()
    await until(first.reached, outcome)
    await act.stage.back.heal()
    first.let_go()
    return await outcome


FAULTS: Mapping[str, Callable[[Act], Awaitable[Outcome]]] = {
    "lost": lose_the_reply,
    "held": cut_while_it_runs,
    "silent": hang_up_upstream,
    "away": refuse_upstream,
}


async def play(stage: Stage, name: str, fault: str, folder: Path) -> tuple[Act, Outcome]:
    """One client's errand under one fault, to its end."""
    async with asyncio.timeout(90), fault_proxy("127.0.0.1", stage.gateway.port) as front:
        errand = Errand(f"http://127.0.0.1:{front.port}/{fault}", f"sk_test_{name}_{fault}", folder)
        act = Act(fault, stage, front, CLIENTS[name], errand, await stage.decisions(fault))
        return act, await FAULTS[fault](act)


@dataclass(frozen=True, slots=True)
class Playing:
    """All errands of one client. `under` waits for one of them."""

    client: str
    tasks: Mapping[str, "asyncio.Task[tuple[Act, Outcome]]"]

    async def under(self, fault: str) -> tuple[Act, Outcome]:
        return await self.tasks[fault]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(services, tmp_path_factory.mktemp("gateway"), ROUTES) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=CLIENTS)
async def playing(request: pytest.FixtureRequest, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Playing]:
    folders = {fault: tmp_path_factory.mktemp(f"{request.param}-{fault}") for fault in FAULTS}
    tasks = {fault: asyncio.create_task(play(stage, request.param, fault, folder)) for fault, folder in folders.items()}
    yield Playing(request.param, tasks)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_a_client_that_lost_the_answer_gets_it_at_its_retry(stage: Stage, playing: Playing) -> None:
    """The connection is reset after the upstream ran: the client's next try is a replay of the answer that was lost."""
    act, outcome = await playing.under("lost")
    assert outcome == Outcome(200, answer_to(act.errand.token), "true")
    assert stage.runs(act.errand.token) == 1
    await act.decided(execute=1, replay=1)


async def test_a_client_that_is_cut_off_meets_its_running_operation_and_then_its_answer(stage: Stage, playing: Playing) -> None:
    """The retry comes while the first try runs: 409 with Retry-After, and the answer to whoever comes back once more."""
    act, outcome = await playing.under("held")
    assert stage.runs(act.errand.token) == 1
    if playing.client in TAKE_409_FOR_AN_ANSWER:
        assert (outcome.status, outcome.problem) == (409, "request-in-progress")
        await act.decided(execute=1, in_progress=1)
    else:
        assert outcome == Outcome(200, answer_to(act.errand.token), "true")
        await act.decided(execute=1, in_progress=1, replay=1)


async def test_no_retry_runs_an_operation_whose_outcome_is_unknown(stage: Stage, playing: Playing) -> None:
    """The upstream executes and drops the connection: the client ends with `outcome-unknown`, however often it tries."""
    act, outcome = await playing.under("silent")
    assert (outcome.status, outcome.problem) == (409, "outcome-unknown")
    assert stage.runs(act.errand.token) == 1
    await act.decided(execute=1, unknown=1 if playing.client in TAKE_409_FOR_AN_ANSWER else TRIES - 1)


async def test_a_retry_runs_an_operation_that_never_reached_the_upstream(stage: Stage, playing: Playing) -> None:
    """The upstream refuses the first connection: the key is free again, and the next try executes once."""
    act, outcome = await playing.under("away")
    assert outcome == Outcome(200, answer_to(act.errand.token), None)
    assert stage.runs(act.errand.token) == 1
    await act.decided(execute=1, execute_retry=1)
