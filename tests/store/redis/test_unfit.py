"""A server that answers and cannot serve counts as away, is told of once, and is left as soon as its name leads to another one."""

import asyncio
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.devtools.embedded import RedisServer, start_redis
from gateway.ports import StoreUnavailable
from gateway.store.redis.codec import lease_prefix
from gateway.store.redis.connection import ErrorReply, Wire, opener
from gateway.store.redis.hotpath import Acquired, HotPath
from gateway.store.redis.link import Link
from gateway.store.redis.server import QUOTA_RIGHTS, REFUSALS, RIGHTS, Refusal, Unfit, judge
from gateway.store.redis.servers import faults_of
from tests.store.redis.relay import Relay
from tests.store.redis.support import breaker, digest, eventually, linked, token
from tests.store.redis.tiers import Heard
from tests.support.services import REDIS_VARIANTS, SYSTEM, missing, system_redis


@pytest.fixture(params=REDIS_VARIANTS, ids=lambda variant: f"redis-{variant}")
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    """A server whose settings a test may change."""
    binary = system_redis() if request.param == SYSTEM else None
    if request.param == SYSTEM and binary is None:
        missing("redis-server 7 or newer on the PATH")
    server = start_redis(tmp_path / "redis", binary=binary)
    yield server
    server.stop()


async def opened(url: str) -> Wire:
    wire = await Wire.open(opener(url), asyncio.get_running_loop().time() + 10)
    wire.close()
    return wire


async def test_a_server_that_can_serve_says_what_it_is(every_redis: RedisServer) -> None:
    """Two connections to one run of a server see the same instance, and the steps that were tried have left nothing."""
    first, second = await opened(every_redis.url), await opened(every_redis.url)
    assert first.server.version >= (6, 2)
    assert first.server.instance == second.server.instance != b""
    async with linked(every_redis.url) as link:
        assert await link.execute(b"KEYS", b"idem:{probe-*") == []


async def test_another_run_of_a_server_is_another_instance(tmp_path: Path) -> None:
    before = start_redis(tmp_path / "redis")
    first = await opened(before.url)
    before.stop()
    after = start_redis(tmp_path / "redis")
    try:
        assert (await opened(after.url)).server.instance != first.server.instance
    finally:
        after.stop()


async def test_a_replica_does_not_serve(own_server: RedisServer) -> None:
    """It is named with its primary, though it answers PING and INFO."""
    async with linked(own_server.url) as link:
        await link.execute(b"REPLICAOF", b"127.0.0.1", b"1")
    with pytest.raises(Unfit, match=r"its primary is 127\.0\.0\.1:1.*redis\.url must lead to the primary") as caught:
        await opened(own_server.url)
    assert caught.value.reason == "replica"
    async with linked(own_server.url) as link:
        assert link.open


async def test_a_primary_that_is_demoted_is_left(own_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """The first READONLY counts, and opens the breaker; one line names the server and the remedy; promoted again, it serves again."""
    heard = Heard()
    link = Link(own_server.url, breaker(), timeout=5.0, observer=heard)
    hot = HotPath(link, heard)
    await link.start()
    async with linked(own_server.url) as control:
        assert await hot.acquire(digest(), lease_prefix(token()), 5000) == Acquired()
        await control.execute(b"REPLICAOF", b"127.0.0.1", b"1")
        with caplog.at_level(logging.WARNING, "gateway"):
            with pytest.raises(StoreUnavailable) as caught:
                await hot.acquire(digest(), lease_prefix(token()), 5000)
            assert (caught.value.reason, caught.value.may_have_landed) == ("replica", False)
            await eventually(lambda: ("connect", "replica") in heard.errors)
        assert link.open
        (line,) = [
            record.message for record in caplog.records if record.name.startswith("gateway") and str(own_server.port) in record.message
        ]
        assert line.startswith(f"Redis at 127.0.0.1:{own_server.port} is away (replica: READONLY")
        assert "redis.url must lead to the primary" in line
        await control.execute(b"REPLICAOF", b"NO", b"ONE")
        await eventually(lambda: not link.open)
        assert await hot.acquire(digest(), lease_prefix(token()), 5000) == Acquired()
    await link.close()


async def test_one_node_of_a_cluster_does_not_serve(tmp_path: Path) -> None:
    """Half of the slots are somebody else's business: such keys are refused, whatever PING says."""
    server = start_redis(tmp_path / "redis", settings={"cluster-enabled": "yes", "cluster-require-full-coverage": "no"})
    try:
        with pytest.raises(Unfit, match="one node of a Redis Cluster") as caught:
            await opened(server.url)
        assert caught.value.reason == "cluster"
    finally:
        server.stop()


async def test_a_user_without_the_rights_does_not_serve(own_server: RedisServer) -> None:
    """Each right that an entry needs is tried; what is missing is told with all that are needed. With those it serves."""
    user, word = secrets.token_hex(4), secrets.token_hex(8)
    url = own_server.url.replace(f":{urlsplit(own_server.url).password}@", f"{user}:{word}@")
    async with linked(own_server.url) as link:
        rights = [right.encode() for right in RIGHTS.replace(" +cluster|info", "").split()]
        await link.execute(b"ACL", b"SETUSER", user.encode(), b"on", b">" + word.encode(), *rights)
        assert (await opened(url)).server.version >= (6, 2)
        for right in (b"-set", b"-get", b"-del", b"-pexpire", b"-eval", b"-evalsha"):
            await link.execute(b"ACL", b"SETUSER", user.encode(), right)
            with pytest.raises(Unfit, match=r"must be known there and have the rights ~idem:\* \+get") as caught:
                await opened(url)
            assert caught.value.reason == "no_permission"
            await link.execute(b"ACL", b"SETUSER", user.encode(), right.replace(b"-", b"+"))
        await link.execute(b"ACL", b"SETUSER", user.encode(), b"-info")
        server = (await opened(url)).server
        assert server.version == (0, 0)
        assert server.instance != (await opened(url)).server.instance
    with pytest.raises(Unfit, match="must be known there") as caught:
        await opened(url.replace(word, "wrong"))
    assert caught.value.reason == "no_permission"


async def test_the_rights_that_quotas_need_are_tried_where_there_are_some(own_server: RedisServer) -> None:
    """Each of them, and nothing is left behind. Who has no quotas needs none of them."""
    user, word = secrets.token_hex(4), secrets.token_hex(8)
    url = own_server.url.replace(f":{urlsplit(own_server.url).password}@", f"{user}:{word}@")
    async with linked(own_server.url) as link:
        rights = [right.encode() for right in f"{RIGHTS} {QUOTA_RIGHTS}".replace(" +cluster|info", "").split()]
        await link.execute(b"ACL", b"SETUSER", user.encode(), b"on", b">" + word.encode(), *rights)
        assert await faults_of(url, quotas=True) == []
        for right in QUOTA_RIGHTS.split():
            await link.execute(b"ACL", b"SETUSER", user.encode(), right.replace("+", "-").encode())
            (fault,) = await faults_of(url, quotas=True)
            assert fault.endswith(f"; for quotas {QUOTA_RIGHTS}, too")
            assert await faults_of(url) == []
            await link.execute(b"ACL", b"SETUSER", user.encode(), right.encode())
        async with asyncio.timeout(10):
            while await link.execute(b"DBSIZE"):  # what a trial that broke off has left
                await asyncio.sleep(0.05)


async def test_a_full_server_that_evicts_nothing_does_not_serve(own_server: RedisServer) -> None:
    async with linked(own_server.url) as link:
        await link.execute(b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction")
        await link.execute(b"CONFIG", b"SET", b"maxmemory", b"1")
        with pytest.raises(Unfit, match=r"OOM.*maxmemory") as caught:
            await opened(own_server.url)
        assert caught.value.reason == "writes_refused"


@pytest.mark.parametrize("code", REFUSALS)
async def test_what_is_about_the_server_opens_the_breaker(redis_db: str, code: str) -> None:
    """The command gets its error, what waits behind it goes elsewhere at once, and the next connection finds out anew."""
    async with Relay(redis_db) as relay, linked(relay.url) as link:
        relay.swallow = True
        before = relay.chunks
        call = asyncio.ensure_future(link.execute(b"PING"))
        await eventually(lambda: relay.chunks > before)
        relay.invent(b"-%b 1 127.0.0.1:7000\r\n" % code.encode())
        with pytest.raises(ErrorReply) as caught:
            await call
        assert caught.value.code == code
        await eventually(lambda: link.open or relay.accepted > 1)
        relay.swallow = False
        await eventually(lambda: not link.open and relay.accepted > 1)
        assert await link.execute(b"ECHO", b"next") == b"next"


ROLE = b"role:master\r\nmaster_replid:def\r\n"
TRIED = [b"OK", 1, 1, 0]


def test_what_a_server_says_of_itself_is_judged() -> None:
    """What it does not tell is left open; what it tells against itself counts."""
    about = b"# Server\r\nredis_version:7.2.4\r\nrun_id:abc\r\n"
    no_cluster = Refusal("ERR", "ERR This instance has cluster support disabled")
    server = judge([about, ROLE, no_cluster, *TRIED])
    assert (server.version, server.instance) == ((7, 2), b"abcdef")
    untold = [judge([Refusal("NOPERM", ""), ROLE, no_cluster, *TRIED]).instance for _ in range(2)]
    assert untold[0] != untold[1]
    assert judge([b"redis_version:nonsense", ROLE, b"cluster_size:1", *TRIED]).version == (0, 0)
    with pytest.raises(Unfit, match="its cluster has 3 primaries"):
        judge([about, ROLE, b"cluster_state:ok\r\ncluster_size:3\r\n", *TRIED])
    with pytest.raises(Unfit, match=r"its primary is 10\.0\.0\.1:6379"):
        judge([about, b"role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n", no_cluster, *TRIED])
    with pytest.raises(Unfit, match="ERR unknown command") as caught:
        judge([about, ROLE, no_cluster, b"OK", Refusal("ERR", "ERR unknown command"), 1, 0])
    assert caught.value.reason == "no_permission"
