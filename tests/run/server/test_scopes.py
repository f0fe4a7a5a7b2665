"""What a process does when its scopes mean something else by now, with a real registry and time that passes on request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from gateway.config import Config
from gateway.core.policy import Policy
from gateway.devtools.embedded.ports import free_port
from gateway.observe import MetricsObserver
from gateway.ports import StoreUnavailable
from gateway.run.server.claims import guarded
from gateway.run.server.scopes import LOOK_EVERY, TRUSTED_FOR, Scopes
from gateway.runtime.system import SystemRandomness
from gateway.store.postgres import PostgresStore
from tests.config.support import HEAD, ROUTES, read
from tests.operate.commands.support import run_process
from tests.support.client import ask, payment
from tests.support.gateway import Setup, running
from tests.support.upstream import CountingUpstream


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def boottime(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def http_date(self) -> bytes:
        return b""


class House:
    """Processes over one database."""

    def __init__(self, dsn: str) -> None:
        self.stores: list[PostgresStore] = []
        self.clock = Clock()
        self.dsn = dsn

    def process(self, observer: MetricsObserver | None = None) -> Scopes:
        self.stores.append(PostgresStore(self.dsn, pool_size=2, timeout=10.0))
        return Scopes(self.stores[-1].registry, self.clock, SystemRandomness(), observer or MetricsObserver([], access_log_fd=None))


@pytest.fixture
async def house(database: str) -> AsyncIterator[House]:
    house = House(database)
    yield house
    for store in house.stores:
        await store.close()


Configured = Callable[..., Config]


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    def make(secret: str = "0123456789abcdef", routes: str = ROUTES) -> Config:
        return read(tmp_path, HEAD.replace("0123456789abcdef", secret) + routes)

    return make


def policy(config: Config) -> Policy:
    return next(guarded(config))


async def test_a_process_finds_out_that_another_was_let_in(house: House, configured: Configured, caplog: pytest.LogCaptureFixture) -> None:
    """It goes on for as long as its hold is trusted, then looks, says what changed and how to go on, and executes nothing more of it."""
    old, new = configured(), configured(secret="another-secret-0123456789")
    mine, theirs = house.process(), house.process()
    assert await mine.register(old) == []
    assert len(await theirs.register(new)) == 1
    assert await theirs.register(new, accept_change=True) == []
    assert mine.held(policy(old))
    house.clock.now += TRUSTED_FOR
    assert not mine.held(policy(old))
    assert not await mine.confirm(policy(old))
    assert mine.differs(policy(old))
    assert mine.problem() == "scope 'charge': the digest secret changed"
    assert "Scope 'charge' means something else in the database than in this process: the digest secret changed" in caplog.text
    assert "Restart this process with the configuration that the others have" in caplog.text


async def test_a_difference_that_was_undone_is_over_at_the_next_look(house: House, configured: Configured) -> None:
    """Looks go on, every few seconds, without anybody's request."""
    old, mine, theirs = configured(), house.process(), house.process()
    await mine.register(old)
    looking = asyncio.create_task(mine.run())
    try:
        await theirs.register(configured(secret="another-secret-0123456789"), accept_change=True)
        await until(lambda: mine.problem() is not None)
        await theirs.register(old, accept_change=True)
        await until(lambda: mine.problem() is None)
        assert mine.held(policy(old))
    finally:
        looking.cancel()


async def test_a_look_that_cannot_be_taken_is_the_stores_failure(
    house: House, configured: Configured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage of Postgres is told of as one, not as a defect of background work."""
    observer = MetricsObserver([], access_log_fd=None)
    mine = house.process(observer)
    await mine.register(configured())
    await house.stores[0].close()
    monkeypatch.setattr("gateway.run.server.scopes.LOOK_EVERY", 0.01)
    looking = asyncio.create_task(mine.run())
    try:
        await until(lambda: b'operation="scopes"' in observer.exposition()[0])
    finally:
        looking.cancel()
    failures = [line for line in observer.exposition()[0].splitlines() if line.startswith(b"idempotency_background_failures_total")]
    assert all(line.endswith(b" 0.0") for line in failures)
    assert "Background work failed" not in caplog.text


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10 * LOOK_EVERY):
        while not true():
            await asyncio.sleep(0.05)


async def test_a_hold_that_is_past_is_renewed_before_anything_runs(house: House, configured: Configured) -> None:
    """After an outage, or a freeze, one look serves all who wait; where nobody can be asked there is no yes."""
    config, mine = configured(), house.process()
    await mine.register(config)
    house.clock.now += TRUSTED_FOR
    assert await asyncio.gather(*[mine.confirm(policy(config)) for _ in range(20)]) == [True] * 20
    assert mine.held(policy(config))
    house.clock.now += TRUSTED_FOR
    await house.stores[0].close()
    with pytest.raises(StoreUnavailable):
        await mine.confirm(policy(config))


async def test_a_request_of_the_map_before_runs_only_in_a_meaning_of_now(house: House, configured: Configured) -> None:
    """Those whose scope left, or stayed as it was, go on; one whose scope means something else is stopped."""
    before, mine = configured(), house.process()
    await mine.register(before)
    assert await mine.register(configured(routes=ROUTES.replace("/v1/charges", "/v2/charges").replace("id: charge", "id: other"))) == []
    assert await mine.confirm(policy(before)), "it left"
    assert await mine.register(configured()) == []
    assert await mine.confirm(policy(before)), "it stayed"
    assert await mine.register(configured(routes=ROUTES + "      key: {header: X-Key}\n")) == []
    assert not await mine.confirm(policy(before)), "it changed"
    assert await mine.register(configured(routes=ROUTES.replace("id: charge", "id: renamed"))) == []
    assert not await mine.confirm(policy(before)), "its route is in another scope"


async def test_a_database_that_was_emptied_is_claimed_anew(house: House, configured: Configured, database: str) -> None:
    """The first to come says again what its scopes mean."""
    config, mine = configured(), house.process()
    await mine.register(config)
    connection = await asyncpg.connect(database)
    await connection.execute("TRUNCATE gateway_scopes, gateway_scope_holders")
    await connection.close()
    house.clock.now += TRUSTED_FOR
    assert await mine.confirm(policy(config))
    assert len(await house.process().register(configured(secret="another-secret-0123456789"))) == 1


async def test_two_gateways_with_different_secrets_on_an_empty_database(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """The second does not start, though nothing is recorded yet: a key would run once in each meaning."""
    config = tmp_path / "other.yaml"
    config.write_text(setup.yaml(free_port(), free_port()).replace("a-secret-of-the-tests", "another-secret-of-the-tests"))
    async with running(setup, tmp_path) as first:
        second = await asyncio.to_thread(run_process, "serve", "--config", config)
        assert second.code == 78
        assert "scope 'pay': the digest secret changed; 1 other process serves it as it was" in second.err
        assert (await ask(first.port, payment(b"k1"))).status == 201
    assert upstream.runs_of(b"k1") == 1
