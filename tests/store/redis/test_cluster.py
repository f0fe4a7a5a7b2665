"""A real cluster of six nodes: each key goes to its node, wherever that is."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import pytest
from redis.exceptions import MovedError

from gateway.core.redis_url import ClusterUrl, parse_redis_url
from gateway.devtools.embedded.ports import LOOPBACK
from gateway.ports import StoreUnavailable
from gateway.runtime.system import SystemClock
from gateway.store.deletions import Deletions
from gateway.store.null_observer import NullObserver
from gateway.store.redis.cluster import Cluster
from gateway.store.redis.codec import entry_key, lease_prefix
from gateway.store.redis.connection import ErrorReply
from gateway.store.redis.hotpath import Acquired, Found, HotPath
from gateway.store.redis.server import CLUSTER_RIGHTS
from gateway.store.redis.servers import faults_of
from gateway.store.redis.slots import SLOTS, slot_of
from tests.store.redis.support import breaker, complete, delete, digest, eventually, token
from tests.support.redis_topologies import ClusterNodes, Node, cluster, until

FAR = 1 << 62


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    with cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


class Heard(NullObserver):
    """What an observer was told."""

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, str]] = Counter()
        self.away: bool | None = None

    def store_error(self, store: str, operation: str, reason: str) -> None:
        self.errors[operation, reason] += 1

    def redis_breaker(self, *, is_open: bool) -> None:
        self.away = is_open


@asynccontextmanager
async def hot_path(url: str, observer: NullObserver | None = None) -> AsyncIterator[HotPath]:
    parsed = parse_redis_url(url)
    assert isinstance(parsed, ClusterUrl)
    way = Cluster(parsed, breaker, timeout=5.0, connect_timeout=5.0, observer=observer)
    await way.start()
    try:
        yield HotPath(way, observer)
    finally:
        await way.close()


def lookup_in(slots: range) -> bytes:
    """A record whose entry is in one of these slots."""
    while True:
        lookup = digest()
        if slot_of(entry_key(lookup)) in slots:
            return lookup


def slot(lookup: bytes) -> int:
    return slot_of(entry_key(lookup))


async def lease(hot: HotPath, lookup: bytes) -> bytes:
    """The owner token of a lease that is set now."""
    owner = token()
    assert await hot.acquire(lookup, lease_prefix(owner), 60_000) == Acquired()
    return owner


async def test_each_key_goes_to_its_node(nodes: ClusterNodes) -> None:
    """All steps, for keys of all nodes, at once; one node of the cluster is enough to find the others."""
    async with hot_path(nodes.url_of(nodes.nodes[4])) as hot:
        lookups = [lookup_in(range(start, start + 1024)) for start in range(0, SLOTS, 1024)]
        owners = await asyncio.gather(*(lease(hot, lookup) for lookup in lookups))
        for lookup, owner in zip(lookups, owners, strict=True):
            assert nodes.owner(slot(lookup)).ask("GET", entry_key(lookup)) == lease_prefix(owner)
        assert await asyncio.gather(*(hot.acquire(lookup, b"x", 1000) for lookup in lookups)) == [
            Found(lease_prefix(one)) for one in owners
        ]
        assert all(await asyncio.gather(*(hot.extend(lookup, owner, 60_000) for lookup, owner in zip(lookups, owners, strict=True))))
        first, second, third, *_ = zip(lookups, owners, strict=True)
        assert await complete(hot, *first, b"completed", 60_000)
        assert await delete(hot, *second)
        assert await hot.forget(third[0])
        assert [await hot.get(lookup) for lookup in lookups[:4]] == [b"completed", None, None, lease_prefix(owners[3])]
        assert not hot.open


async def test_a_slot_that_has_moved_is_followed(nodes: ClusterNodes) -> None:
    """A map out of date costs nobody an error: the node says where the key is, and that begins another era of this slot alone."""
    lookup, other = digest(), digest()
    source, target = nodes.owner(slot(lookup)), next(node for node in nodes.nodes[:3] if node is not nodes.owner(slot(lookup)))
    async with hot_path(nodes.url) as hot:
        owner, before, others = await lease(hot, lookup), hot.era(lookup), hot.era(other)
        nodes.move(slot(lookup), source, target)
        assert await hot.acquire(lookup, b"x", 1000) == Found(lease_prefix(owner))
        assert before < hot.era(lookup) < FAR
        assert hot.era(other) == others
        assert await complete(hot, lookup, owner, b"completed", 60_000)
        assert target.ask("GET", entry_key(lookup)) == b"completed"
    nodes.move(slot(lookup), target, source)


async def test_a_slot_that_moves_is_asked_in_both_places(nodes: ClusterNodes) -> None:
    """What has gone already is found where it is, what is new goes there. Nothing of the slot is believed until it has moved, and for
    a while if it has stayed.
    """
    lookup = digest()
    source, target = nodes.owner(slot(lookup)), next(node for node in nodes.nodes[:3] if node is not nodes.owner(slot(lookup)))
    new = next(one for one in iter(digest, None) if slot(one) == slot(lookup))
    async with hot_path(nodes.url) as hot:
        owner = await lease(hot, lookup)
        nodes.begin_move(slot(lookup), source, target)
        assert await hot.get(lookup) == lease_prefix(owner)
        assert hot.era(lookup) < FAR
        source.ask("MIGRATE", LOOPBACK, target.port, entry_key(lookup), 0, 5000, "AUTH", nodes.word)
        assert await hot.acquire(lookup, b"x", 1000) == Found(lease_prefix(owner))
        await lease(hot, new)
        assert hot.era(lookup) == hot.era(new) > FAR
        assert await complete(hot, lookup, owner, b"completed", 60_000)
        assert await hot.forget(new)
        nodes.end_move(slot(lookup), source, target)
        assert await hot.get(lookup) == target.ask("GET", entry_key(lookup)) == b"completed"
        assert hot.era(lookup) < FAR
    nodes.move(slot(lookup), target, source)


async def test_a_node_that_lost_its_scripts_is_told_them_again(nodes: ClusterNodes) -> None:
    async with hot_path(nodes.url) as hot:
        lookup = digest()
        owner = await lease(hot, lookup)
        nodes.owner(slot(lookup)).ask("SCRIPT FLUSH")
        assert await complete(hot, lookup, owner, b"completed", 60_000)


async def test_nodes_that_send_a_key_to_one_another_are_given_up(nodes: ClusterNodes) -> None:
    """A command goes so far and no further: Postgres answers, and nothing has landed."""
    lookup = digest()
    owner = nodes.owner(slot(lookup))
    async with hot_path(nodes.url) as hot:
        way = hot.link
        assert isinstance(way, Cluster)
        told: list[str] = []

        def redirect(command: object, error: ErrorReply) -> None:  # as if the node that was named named another one
            told.append(error.code)
            Cluster.redirect(way, command, ErrorReply("MOVED", f"MOVED {slot(lookup)} {LOOPBACK}:{wrong.port}"))  # type: ignore[arg-type]

        wrong = next(node for node in nodes.nodes[:3] if node is not owner)
        way.redirect = redirect  # type: ignore[method-assign]
        way._owners[slot(lookup)] = next(link for host, link in way._links.items() if host[1] == wrong.port)
        with pytest.raises(StoreUnavailable) as caught:
            await hot.acquire(lookup, b"x", 1000)
        assert (caught.value.reason, caught.value.may_have_landed) == ("not_ready", False)
        assert told == ["MOVED"] * 5


@pytest.mark.parametrize("where", ["redirect", "send"])
async def test_an_exception_on_the_way_ends_in_an_error_and_no_hang(
    nodes: ClusterNodes, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails while a command goes to another node: its caller hears of it, and the next command is served."""
    lookup = digest()
    source, target = nodes.owner(slot(lookup)), next(node for node in nodes.nodes[:3] if node is not nodes.owner(slot(lookup)))
    async with hot_path(nodes.url) as hot:
        way = hot.link
        assert isinstance(way, Cluster)
        nodes.move(slot(lookup), source, target)

        def fail(*_: object) -> None:
            raise RuntimeError("out of order")

        with monkeypatch.context() as patch:
            named = next(link for host, link in way._links.items() if host[1] == target.port)
            patch.setattr(way if where == "redirect" else named, where, fail)
            with pytest.raises(StoreUnavailable) as caught:
                await hot.acquire(lookup, b"x", 1000)
            assert caught.value.reason == "error"
        await again(hot, lookup)
    nodes.move(slot(lookup), target, source)


async def test_an_exception_in_a_look_at_the_map_does_not_end_the_looks(nodes: ClusterNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with hot_path(nodes.url) as hot:
        way = hot.link
        assert isinstance(way, Cluster)
        looked = 0

        async def fail(_: object) -> None:
            nonlocal looked
            looked += 1
            raise RuntimeError("out of order")

        with monkeypatch.context() as patch:
            patch.setattr(way, "_ask", fail)
            way._wanted.set()
            await eventually(lambda: looked > 0)
        way._map = None
        way._wanted.set()
        await eventually(lambda: way._map is not None)


async def again(hot: HotPath, lookup: bytes, seconds: float = 20.0) -> None:
    """Wait until the entry can be read. Nothing but `StoreUnavailable` is heard on the way."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await hot.get(lookup)
            except StoreUnavailable:
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_user_needs_its_rights_on_every_node(nodes: ClusterNodes) -> None:
    """With those that the message names all is well; one that is missing on one node is told with that node."""
    rights = CLUSTER_RIGHTS.split()
    for node in nodes.nodes[:3]:
        node.ask("ACL", "SETUSER", "app", "on", ">word", *rights)
    url = nodes.url.replace(f":{nodes.word}@", "app:word@")
    try:
        assert await faults_of(url) == []
        assert all("for quotas" in fault for fault in await faults_of(url, quotas=True))
        assert len(await faults_of(url, quotas=True)) == 3
        async with hot_path(url) as hot:
            await lease(hot, digest())
        nodes.nodes[1].ask("ACL", "SETUSER", "app", "-evalsha")
        (fault,) = await faults_of(url)
        assert fault.startswith(f"{LOOPBACK}:{nodes.nodes[1].port}: NOPERM")
        assert f"on all nodes and have the rights {CLUSTER_RIGHTS}" in fault
        heard = Heard()
        async with hot_path(url, heard) as hot:
            assert heard.away
            assert heard.errors["connect", "no_permission"]
    finally:
        for node in nodes.nodes[:3]:
            node.ask("ACL", "DELUSER", "app")


async def test_what_is_wrong_is_told(nodes: ClusterNodes, redis_db: str) -> None:
    """By kind, and with the remedy: a node for a server, a server for a node, a node that is away, slots that are nobody's."""
    assert await faults_of(nodes.url) == []
    (fault,) = await faults_of(nodes.nodes[0].url)
    assert "its cluster has 3 primaries: it is one node of a Redis Cluster; write redis+cluster://" in fault
    (fault,) = await faults_of(redis_db.replace("redis://", "redis+cluster://"))
    assert "redis+cluster:// must name nodes of a Redis Cluster" in fault
    (fault,) = await faults_of(f"{nodes.url},{LOOPBACK}:1")
    assert fault.startswith(f"{LOOPBACK}:1: ")


async def test_a_killed_node_costs_its_own_keys_a_moment(nodes: ClusterNodes, caplog: pytest.LogCaptureFixture) -> None:
    """Keys of other nodes are served all the while, unless the cluster says that it is down. The replica takes over, in another era; the
    node comes back as its replica.
    """
    nodes.settle()
    heard = Heard()
    lookup = digest()
    killed: Node = nodes.owner(slot(lookup))
    async with hot_path(nodes.url, heard) as hot:
        await lease(hot, lookup)
        era = hot.era(lookup)
        assert heard.away is False
        with caplog.at_level(logging.WARNING, "gateway"):
            killed.kill()
            with suppress(StoreUnavailable):
                await hot.get(lookup)
            await again(hot, lookup)
            await eventually(lambda: heard.away is False)
        assert nodes.owner(slot(lookup)) is not killed
        assert era < hot.era(lookup) < FAR
        assert f"Redis at {LOOPBACK}:{killed.port} is away" in caplog.text
        killed.start()
        nodes.settle()
        await lease(hot, digest())
        with pytest.raises(MovedError):
            killed.ask("GET", entry_key(lookup))
    assert await faults_of(nodes.url) == []


async def test_a_promoted_replica_that_lacks_a_deletion_is_not_believed(nodes: ClusterNodes) -> None:
    """Its copy of the deleted entry is genuine to the byte, and it has the slots: only the list of deleted lives tells."""
    nodes.settle()
    lookup, deleted, kept = digest(), UUID(int=1), UUID(int=2)
    primary = nodes.owner(slot(lookup))
    behind = next(node for node in nodes.nodes if node.ask("INFO", "replication").get("master_port") == primary.port)
    lives: dict[UUID, int] = {}

    async def read(_: int) -> tuple[int, dict[UUID, int]]:
        return len(lives), lives

    async with hot_path(nodes.url) as hot:
        deletions = Deletions(read, lambda: hot.link.eras.last, lambda: 1, SystemClock())
        owner = await lease(hot, lookup)
        assert await complete(hot, lookup, owner, b"completed", 60_000)
        until(lambda: primary.ask("WAIT", 1, 1000) == 1)
        behind.ask("CONFIG", "SET", "masterauth", "wrong")
        behind.ask("CLIENT", "KILL", "TYPE", "master")
        await deletions.refresh()
        assert deletions.believes(deleted, hot.era(lookup))
        lives[deleted] = 2
        assert await hot.forget(lookup)
        era = hot.era(lookup)
        behind.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        await again(hot, lookup)
        async with asyncio.timeout(20):
            while hot.era(lookup) == era:
                await again(hot, lookup)
        await again(hot, lookup)
        assert await hot.get(lookup) == b"completed"
        assert not deletions.believes(deleted, hot.era(lookup))
        await deletions.refresh()
        assert [deletions.believes(life, hot.era(lookup)) for life in (deleted, kept)] == [False, True]
    behind.ask("CONFIG", "SET", "masterauth", nodes.word)
    nodes.settle()
