"""nginx and haproxy in front of the gateway, repeating whatever they can: their retries meet the record, so the upstream runs once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.client import Client, ask
from tests.support.services import Services
from tests.system.interop.hops import KINDS, Ports, hop, hop_ports
from tests.system.interop.stage import REST, Stage, answer_to, guarded, staged
from tests.system.interop.traffic import every_framing, request

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = "".join(guarded(name) for name in ("usual", "half", "slow", "held", "silent", "streamed")) + guarded("away", "away") + REST


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(services, tmp_path_factory.mktemp("gateway"), ROUTES) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=KINDS)
async def ports(request: pytest.FixtureRequest, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ports]:
    """Where the hop listens. It goes on to the gateway through the stage's `front`."""
    ports = hop_ports()
    async with hop(request.param, ports, stage.front.port, tmp_path_factory.mktemp(request.param)):
        yield ports


async def test_a_lost_answer_is_replayed_to_the_hop(stage: Stage, ports: Ports, token: str) -> None:
    """The hop loses the gateway's answer and repeats the request: its client gets the first answer."""
    before = await stage.decisions("usual")
    stage.front.drop_reply_to(token.encode())
    answer = await ask(ports.everything, request("usual", token))
    assert (answer.status, answer.body, answer.field("idempotent-replayed")) == (200, answer_to(token), b"true")
    assert stage.runs(token) == 1
    await stage.decided(before, "usual", execute=1, replay=1)


async def test_an_unknown_outcome_is_not_run_again_by_the_hop(stage: Stage, ports: Ports, token: str) -> None:
    """The upstream executes and hangs up: the hop repeats after our 502 and passes our 409 on."""
    before = await stage.decisions("silent")
    answer = await ask(ports.everything, request("silent", token))
    assert (answer.status, answer.problem) == (409, "outcome-unknown")
    assert stage.runs(token) == 1
    await stage.decided(before, "silent", execute=1, unknown=1)


async def test_an_upstream_that_comes_back_runs_once(stage: Stage, ports: Ports, token: str) -> None:
    """The upstream refuses the first connection: the hop's next try runs the operation, and the client notices nothing."""
    before = await stage.decisions("away")
    await stage.back.refuse()
    refused = stage.front.hold_reply_to(token.encode())
    async with await Client.connect(ports.everything) as client:
        await client.send(request("away", token))
        await refused.reached.wait()
        await stage.back.heal()
        refused.let_go()
        answer = await client.receive()
    assert (answer.status, answer.body, answer.field("idempotent-replayed")) == (200, answer_to(token), None)
    assert stage.runs(token) == 1
    await stage.decided(before, "away", execute=1, execute_retry=1)


@pytest.mark.parametrize("fault", ["slow", "held"])
async def test_a_repetition_meets_the_running_operation(stage: Stage, ports: Ports, token: str, fault: str) -> None:
    """A hop that loses its patience and a client that hangs up both come back while the first try runs: 409, then the answer."""
    decided, settled = await stage.decisions(fault), await stage.settlements(fault)
    if fault == "held":
        async with await Client.connect(ports.everything) as client:
            await client.send(request(fault, token))
            await stage.running[token].wait()
            client.reset()
    answer = await ask(ports.everything, request(fault, token))
    assert (answer.status, answer.problem, answer.field("retry-after")) == (409, "request-in-progress", b"1")
    stage.released[token].set()
    await stage.settled(settled, fault, "complete")
    answer = await ask(ports.everything, request(fault, token))
    assert (answer.status, answer.body, answer.field("idempotent-replayed")) == (200, answer_to(token), b"true")
    assert stage.runs(token) == 1
    await stage.decided(decided, fault, execute=1, in_progress=1, replay=1)


async def test_a_gateway_that_is_away_is_passed_over(stage: Stage, ports: Ports, token: str) -> None:
    """One of the hop's two gateways refuses connections: every operation runs once, at the other."""
    for number in range(4):
        answer = await ask(ports.everything, request("half", token + str(number)))
        assert (answer.status, answer.body) == (200, answer_to(token + str(number)))
        assert stage.runs(token + str(number)) == 1


@pytest.mark.parametrize("target", ["usual", "streamed"])
async def test_every_framing_passes_over_kept_connections(stage: Stage, ports: Ports, token: str, target: str) -> None:
    """Lengths and chunks both ways, HEAD, refusals and replays follow each other from the client to the gateway."""
    opened = stage.front.connections
    await every_framing(stage, ports.everything, target, token)
    assert stage.front.connections - opened <= 2


async def test_a_hop_without_any_setting_will_do(stage: Stage, ports: Ports, token: str) -> None:
    """Also over HTTP/1.0 and a connection for each request, the repetition gets the first answer."""
    for marked in (None, b"true"):
        answer = await ask(ports.plain, request("usual", token))
        assert (answer.status, answer.body, answer.field("idempotent-replayed")) == (200, answer_to(token), marked)
    assert stage.runs(token) == 1
