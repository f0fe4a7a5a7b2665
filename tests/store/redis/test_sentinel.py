"""A primary that real Sentinels know: found, followed, and told from what is none."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gateway.core.redis_url import SentinelUrl, parse_redis_url
from gateway.ports import StoreUnavailable
from gateway.store.null_observer import NullObserver
from gateway.store.redis.codec import lease_prefix
from gateway.store.redis.hotpath import Acquired, Found, HotPath
from gateway.store.redis.link import Link
from gateway.store.redis.sentinel import SentinelPlace, Told, told_by
from gateway.store.redis.server import Refusal, Unfit
from gateway.store.redis.servers import faults_of, topology_of
from tests.store.redis.relay import Relay
from tests.store.redis.support import breaker, digest, token
from tests.support.redis_topologies import MASTER, Sentinels, sentinels, until


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    with sentinels(tmp_path_factory.mktemp("sentinels")) as house:
        yield house


@asynccontextmanager
async def hot_path(url: str) -> AsyncIterator[HotPath]:
    way = topology_of(url, lambda: 0.5, timeout=5.0)
    await way.start()
    try:
        yield HotPath(way)
    finally:
        await way.close()


async def again(hot: HotPath, seconds: float = 20.0) -> None:
    """Wait until entries are taken again. Nothing but `StoreUnavailable` is heard on the way."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                assert await hot.acquire(digest(), lease_prefix(token()), 5000) == Acquired()
            except StoreUnavailable:
                await asyncio.sleep(0.02)
            else:
                return


async def test_the_primary_is_found(house: Sentinels) -> None:
    """Also from a process that the first Sentinel does not answer; what was written is there for all."""
    async with Relay(house.nodes[0].url) as silent:
        silent.requests.clear()
        quiet = house.url.replace(f"127.0.0.1:{house.ports[0]}", f"127.0.0.1:{silent.port}")
        async with hot_path(house.url) as one, hot_path(quiet) as two:
            lookup = digest()
            assert await one.acquire(lookup, value := lease_prefix(token()), 5000) == Acquired()
            assert await two.acquire(lookup, lease_prefix(token()), 5000) == Found(value)


async def test_a_promotion_is_followed(house: Sentinels) -> None:
    """The old primary goes on as a replica, or dies: commands reach the new one within seconds, in another era. The one that died comes
    back as a replica, and nobody asks it.
    """
    async with hot_path(house.url) as hot:
        for killed in (False, True):
            house.settle()
            before, era = house.primary, hot.era(b"")
            if killed:
                before.kill()
            else:
                house.ask("SENTINEL FAILOVER", MASTER)
            until(lambda before=before: house.primary is not before and house.primary.primary)  # type: ignore[misc]
            async with asyncio.timeout(20):
                while hot.era(b"") == era:  # the old one takes writes until it is told
                    await again(hot)
            await again(hot)
            assert isinstance(hot.link, Link)
            assert hot.link._place.address == f"127.0.0.1:{house.primary.port}"
            if killed:
                before.start()
                house.settle()
                await again(hot)


async def test_a_link_leaves_a_primary_that_the_sentinels_no_longer_name(house: Sentinels, caplog: pytest.LogCaptureFixture) -> None:
    """As one that was cut off from them, and does not know it: it would go on to take writes that are lost."""

    class Elsewhere(SentinelPlace):
        """Finds another server first."""

        lost = True

        async def _look(self, deadline: float) -> Told:
            return Told(0, ("127.0.0.1", cut_off.port)) if self.lost else await super()._look(deadline)

    async with Relay(house.primary.url) as cut_off:
        url = parse_redis_url(house.url)
        assert isinstance(url, SentinelUrl)
        place = Elsewhere(url)
        link = Link(place, breaker(), timeout=5.0)
        await link.start()
        try:
            assert await link.execute(b"PING") == b"PONG"
            place.lost = False
            async with asyncio.timeout(10):
                while not cut_off.idle:
                    await asyncio.sleep(0.02)
            with caplog.at_level(logging.WARNING, "gateway"):
                assert await link.execute(b"PING") == b"PONG"
            assert place.address == f"127.0.0.1:{house.primary.port}"
            assert not caplog.records
        finally:
            await link.close()


async def test_what_is_wrong_is_told(house: Sentinels) -> None:
    """By kind, and with the remedy; one Sentinel that is away is told, and does not hide the primary."""
    house.settle()
    assert await faults_of(house.url) == []
    (fault,) = await faults_of(house.url.replace(str(house.ports[1]), "1"))
    assert fault.startswith("127.0.0.1:1: ")
    unknown = await faults_of(house.url.replace(f"master={MASTER}", "master=others"))
    assert len(unknown) == 3
    assert all("No such master with that name: the name in ?master= must be one" in fault for fault in unknown)
    servers = ",".join(f"127.0.0.1:{node.port}" for node in house.nodes)
    wrong = f"redis+sentinel://:{house.word}@{servers}/0?master={MASTER}&sentinel_password={house.word}"
    assert all("redis+sentinel:// must name Sentinels" in fault for fault in await faults_of(wrong))
    for word in (house.word, "another"):
        (fault,) = await faults_of(f"redis://:{word}@127.0.0.1:{house.ports[0]}/0")
        assert ("it is a Sentinel and holds no entries; write redis+sentinel://" in fault) == (word == house.word)
    replica = next(node for node in house.nodes if not node.primary)
    (fault,) = await faults_of(replica.url)
    assert "redis.url must lead to the primary" in fault


class Heard(NullObserver):
    """What an observer was told, once."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] = []
        self.away = False

    def store_error(self, store: str, operation: str, reason: str) -> None:
        self.errors.append((operation, reason))

    def redis_breaker(self, *, is_open: bool) -> None:
        self.away = is_open


@pytest.mark.parametrize(("scheme", "reason"), [("redis", "sentinel"), ("redis+cluster", "no_cluster")])
async def test_a_running_gateway_tells_the_kind(house: Sentinels, scheme: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """In a metric, the gauge, and one line of the log."""
    heard = Heard()
    way = topology_of(f"{scheme}://:{house.word}@127.0.0.1:{house.ports[0]}", lambda: 0.5, observer=heard)
    with caplog.at_level(logging.WARNING, "gateway"):
        await way.start()
        await way.close()
    assert way.open
    assert heard.away
    assert set(heard.errors) == {("connect", reason)}
    (line,) = [record.message for record in caplog.records]
    assert f"({reason}: " in line


async def test_a_sentinel_that_is_behind_moves_nobody() -> None:
    """Of two answers the later promotion counts: else a link would be led to and fro while the Sentinels tell one another."""
    url = parse_redis_url(f"redis+sentinel://one/0?master={MASTER}")
    assert isinstance(url, SentinelUrl)
    place = SentinelPlace(url)
    assert place._supersedes(Told(4, ("new", 1)))
    place._found = Told(5, ("new", 1))
    said = [Told(4, ("old", 1)), Told(6, ("new", 1)), Told(5, ("other", 1)), Told(6, ("old", 1))]
    assert [place._supersedes(one) for one in said] == [False, False, True, True]


def test_replies_of_sentinels_are_read() -> None:
    said = told_by([b"ip", b"10.0.0.1", b"port", b"6379", b"flags", b"master", b"config-epoch", b"4"])
    assert said == Told(4, ("10.0.0.1", 6379))
    for answer in (b"OK", None, [], [b"ip"], 5, [b"ip", b"x", b"port", b"y", b"flags", b"", b"config-epoch", b"1"]):
        assert isinstance(told_by(answer), Unfit)
    refused = told_by(Refusal("NOAUTH", "NOAUTH Authentication required"))
    assert isinstance(refused, Unfit)
    assert refused.reason == "no_permission"
