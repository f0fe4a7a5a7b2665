"""nginx and haproxy between the gateway and the upstream: which of their settings keep the promise beyond them.

The gateway sends an operation once to the hop. A hop that sends it twice runs it twice, and nobody before it can know.
"""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

import pytest
import pytest_asyncio

from tests.support.client import Answer, ask
from tests.support.services import Services
from tests.system.interop.hops import KINDS, hop, hop_ports
from tests.system.interop.stage import REST, Stage, answer_to, staged
from tests.system.interop.traffic import every_framing, request

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = ("everything", "connects", "nothing", "plain")
NOTHING_SENT = {"nginx": 502, "haproxy": 503}
"""What a hop answers that reached no server. nginx says the same when it lost a server that may have executed."""
ASSERTED = ", release_on: [401, 407, 421, 425, 429, 503], doubt_on: [408, 502, 504]"
"""For a hop that repeats failed connects alone and says 503 only then, in front of an upstream that never says 503 after it ran."""


def route(kind: str, setting: str, name: str = "", more: str = "") -> str:
    """A guarded route to one port of a hop. The first segment of its targets is left to the fault; the next two name the route."""
    name = name or setting
    policy = f"{{principal: [{{header: Authorization}}]{more}}}"
    return (
        f'\n  - {{id: {kind}-{name}, methods: [POST, PUT], path: "/{{fault}}/{kind}/{name}/**", '
        f"upstream: {kind}-{setting}, idempotency: {policy}}}"
    )


@dataclass(frozen=True, slots=True)
class Behind:
    """A stage whose gateway reaches the upstream through a hop of one kind; the hop goes on through the stage's `back`."""

    kind: str
    stage: Stage

    def where(self, fault: str, name: str) -> str:
        return f"{fault}/{self.kind}/{name}"

    async def ask(self, fault: str, name: str, token: str, method: str = "POST") -> Answer:
        return await ask(self.stage.front.port, request(self.where(fault, name), token, method=method))


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=KINDS)
async def behind(request: pytest.FixtureRequest, services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Behind]:
    kind, ports = request.param, hop_ports()
    routes = "".join(route(kind, setting) for setting in SETTINGS) + route(kind, "connects", "asserted", ASSERTED) + REST
    upstreams = {f"{kind}-{setting}": port for setting, port in asdict(ports).items()}
    async with (
        staged(services, tmp_path_factory.mktemp("gateway"), routes, upstreams) as stage,
        hop(kind, ports, stage.back.port, tmp_path_factory.mktemp(kind)),
    ):
        yield Behind(kind, stage)


@pytest.mark.parametrize("setting", SETTINGS)
async def test_a_client_that_lost_the_answer_gets_it_whatever_the_hop_repeats(behind: Behind, token: str, setting: str) -> None:
    """What is lost before the gateway never gets as far as the hop."""
    behind.stage.front.drop_reply_to(token.encode())
    with pytest.raises((EOFError, ConnectionError)):
        await behind.ask("usual", setting, token)
    answer = await behind.ask("usual", setting, token)
    assert (answer.status, answer.body, answer.field("idempotent-replayed")) == (200, answer_to(token), b"true")
    assert behind.stage.runs(token) == 1


@pytest.mark.parametrize("setting", ["connects", "nothing", "plain"])
async def test_a_hop_that_repeats_no_sent_request_keeps_the_promise(behind: Behind, token: str, setting: str) -> None:
    """The upstream executes and hangs up, on a kept connection: one run, then an unknown outcome for every retry."""
    assert (await behind.ask("usual", setting, token + "_first")).status == 200
    first, again = await behind.ask("silent", setting, token), await behind.ask("silent", setting, token)
    assert first.status == 502
    assert (again.status, again.problem) == (409, "outcome-unknown")
    assert behind.stage.runs(token) == 1


async def test_a_hop_that_repeats_what_it_sent_breaks_the_promise(behind: Behind, token: str) -> None:
    """With `non_idempotent` or `retry-on all-retryable-errors` the upstream runs twice for one request of the gateway."""
    before = await behind.stage.decisions(f"{behind.kind}-everything")
    answer = await behind.ask("flaky", "everything", token)
    assert (answer.status, answer.body) == (200, answer_to(token, 2))
    assert behind.stage.runs(token) == 2
    await behind.stage.decided(before, f"{behind.kind}-everything", execute=1)


@pytest.mark.parametrize(("setting", "runs"), [("connects", {"nginx": 2, "haproxy": 1}), ("nothing", {"nginx": 1, "haproxy": 1})])
async def test_a_guarded_put_is_safe_only_where_nothing_sent_is_repeated(
    behind: Behind, token: str, setting: str, runs: dict[str, int]
) -> None:
    """nginx repeats methods that HTTP calls idempotent unless `proxy_next_upstream` is off, also when they were sent."""
    answer = await behind.ask("flaky", setting, token, "PUT")
    assert answer.status == (200 if runs[behind.kind] == 2 else 502)
    assert behind.stage.runs(token) == runs[behind.kind]


@pytest.mark.parametrize("setting", ["everything", "connects"])
async def test_failed_connects_may_be_repeated(behind: Behind, token: str, setting: str) -> None:
    """One of the hop's two servers refuses connections: every operation runs once, at the other, and no outcome is unknown."""
    for number in range(4):
        answer = await behind.ask("half", setting, token + str(number))
        assert (answer.status, answer.body) == (200, answer_to(token + str(number)))
        assert behind.stage.runs(token + str(number)) == 1


@pytest.mark.parametrize(("fault", "setting"), [("half", "nothing"), ("none", "connects"), ("none", "nothing")])
async def test_a_hop_that_reached_nobody_leaves_a_doubt(behind: Behind, token: str, fault: str, setting: str) -> None:
    """Its 502 or 503 says nothing of what was sent: the outcome is unknown, though nothing ran. Safe, and work for reconciliation."""
    tokens = [token + str(number) for number in range(2)]
    first = [await behind.ask(fault, setting, token) for token in tokens]
    doubtful = [token for token, answer in zip(tokens, first, strict=True) if answer.status == NOTHING_SENT[behind.kind]]
    assert len(doubtful) >= 1
    for token in doubtful:
        again = await behind.ask(fault, setting, token)
        assert (again.status, again.problem) == (409, "outcome-unknown")
        assert behind.stage.runs(token) == 0


async def test_an_operator_may_assert_that_nothing_ran(behind: Behind, token: str) -> None:
    """Where 503 is the hop's word for "reached nobody", a route may release on it; nginx says 502 and leaves the doubt."""
    before = await behind.stage.decisions(f"{behind.kind}-asserted")
    answers = [await behind.ask("none", "asserted", token) for _ in range(2)]
    if behind.kind == "haproxy":
        assert [answer.status for answer in answers] == [503, 503]
        await behind.stage.decided(before, "haproxy-asserted", execute=1, execute_retry=1)
    else:
        assert [answer.status for answer in answers] == [502, 409]
        await behind.stage.decided(before, "nginx-asserted", execute=1, unknown=1)
    assert behind.stage.runs(token) == 0


@pytest.mark.parametrize("setting", SETTINGS)
async def test_every_framing_passes_over_kept_connections(behind: Behind, token: str, setting: str) -> None:
    """Lengths and chunks both ways, HEAD, refusals and replays go through the hop, on few connections unless it keeps none."""
    opened = behind.stage.back.connections
    await every_framing(behind.stage, behind.stage.front.port, behind.where("usual", setting), token)
    assert setting == "plain" or behind.stage.back.connections - opened <= 2
