"""The pipelined connection under load, errors and faults, against real servers."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from gateway.devtools.embedded import RedisServer, start_redis
from gateway.ports import StoreUnavailable
from gateway.store.null_observer import NullObserver
from gateway.store.redis.connection import Command, ErrorReply, Wire, opener, pack
from gateway.store.redis.link import Link
from tests.store.redis.relay import Relay
from tests.store.redis.support import breaker, eventually, linked


@pytest.fixture
async def relay(redis_db: str) -> AsyncIterator[Relay]:
    async with Relay(redis_db) as relay:
        yield relay


async def failure(call: "asyncio.Future[object] | asyncio.Task[object]") -> StoreUnavailable:
    """The error that a call ends with, long before a test's patience does."""
    with pytest.raises(StoreUnavailable) as caught:
        async with asyncio.timeout(10):
            await call
    return caught.value


class Heard(NullObserver):
    """What an observer was told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.away: list[bool] = []

    def store_batch(self, operation: str, size: int) -> None:
        assert operation == "redis"
        self.batches.append(size)

    def redis_breaker(self, *, is_open: bool) -> None:
        self.away.append(is_open)


def as_many(things: list[float], number: int) -> bool:
    return len(things) == number


def later(link: Link, *command: bytes | int) -> "asyncio.Task[object]":
    return asyncio.get_running_loop().create_task(link.execute(*command))  # every test awaits what it starts


async def test_every_command_gets_its_own_reply(every_redis_db: str) -> None:
    """Hundreds of concurrent commands of all sizes each get the reply that is theirs."""
    async with linked(every_redis_db) as link:
        texts = [b"%d:" % number + b"x" * (number * 37 % 5000) for number in range(600)]
        assert await asyncio.gather(*(link.execute(b"ECHO", text) for text in texts)) == texts


async def test_more_than_one_batch_of_large_values(every_redis_db: str) -> None:
    """Values that do not fit into one batch, nor into the socket's buffers, come back whole."""
    async with linked(every_redis_db) as link:
        texts = [b"%d:" % number + bytes(400_000) for number in range(18)]
        assert await asyncio.gather(*(link.execute(b"ECHO", text) for text in texts)) == texts


async def test_commands_that_come_meanwhile_share_a_write(relay: Relay) -> None:
    """Commands queued while a batch is in flight go out together."""
    async with linked(relay.url) as link:
        relay.replies.clear()
        first = later(link, b"PING")
        before = relay.chunks
        await eventually(lambda: relay.chunks == before + 1)
        others = [later(link, b"ECHO", b"%d" % number) for number in range(50)]
        await asyncio.sleep(0)
        relay.replies.set()
        assert await asyncio.gather(first, *others) == [b"PONG", *(b"%d" % number for number in range(50))]
        assert relay.chunks == before + 2


async def test_the_version_is_known(every_redis: RedisServer) -> None:
    """The server's version is read at each connect."""
    async with linked(every_redis.url) as link:
        assert link.server.version >= (6, 2)


async def test_errors_concern_only_their_command(redis_db: str) -> None:
    """An error reply goes to its own command; its neighbours in the pipeline and the connection live on."""
    async with linked(redis_db) as link:
        await link.execute(b"LPUSH", b"list", b"x")
        calls = (link.execute(b"ECHO", b"a"), link.execute(b"GET", b"list"), link.execute(b"NONSENSE"), link.execute(b"ECHO", b"b"))
        first, wrong_type, unknown, last = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, last) == (b"a", b"b")
        assert isinstance(wrong_type, ErrorReply)
        assert wrong_type.code == "WRONGTYPE"
        assert isinstance(unknown, ErrorReply)
        assert unknown.code == "ERR"
        assert not link.open


async def test_a_timeout_ends_the_connection(relay: Relay) -> None:
    """A reply that comes after its command gave up goes to nobody: the next command runs on a new connection."""
    async with linked(relay.url, timeout=0.5) as link:
        relay.replies.clear()
        error = await failure(later(link, b"ECHO", b"late"))
        assert (error.store, error.reason, error.may_have_landed) == ("redis", "timeout", True)
        relay.replies.set()
        await eventually(lambda: not link.open)
        assert await link.execute(b"ECHO", b"next") == b"next"
        assert relay.accepted >= 2


async def test_a_stalled_server_costs_one_timeout(relay: Relay) -> None:
    """All that wait on the stalled connection fail together; whoever comes afterwards is told at once."""
    async with linked(relay.url, timeout=0.5) as link:
        relay.requests.clear()
        waiting = [later(link, b"ECHO", b"%d" % number) for number in range(20)]
        assert {(error.reason) for error in [await failure(call) for call in waiting]} == {"timeout"}
        assert link.open
        for _ in range(100):
            with pytest.raises(StoreUnavailable, match="not_ready") as caught:
                # Nothing is awaited: the call must fail before it first waits.
                link.execute(b"PING").send(None)
            assert not caught.value.may_have_landed
        relay.requests.set()
        await eventually(lambda: not link.open)
        assert await link.execute(b"ECHO", b"back") == b"back"


async def test_a_lost_reply_may_have_landed(relay: Relay, redis_db: str) -> None:
    """A command whose reply is lost is reported as one that may have landed, and it did."""
    async with linked(relay.url, timeout=0.5) as link, linked(redis_db) as direct:
        relay.swallow = True
        error = await failure(later(link, b"SET", b"k", b"v"))
        assert error.may_have_landed
        assert await direct.execute(b"GET", b"k") == b"v"


async def test_a_connection_cut_in_flight(relay: Relay, redis_db: str) -> None:
    """What was sent may have landed; what still waited for its turn was not sent and is known not to have landed."""
    async with linked(relay.url) as link, linked(redis_db) as direct:
        relay.replies.clear()
        before = relay.chunks
        sent = later(link, b"SET", b"sent", b"1")
        await eventually(lambda: relay.chunks > before)
        queued = later(link, b"SET", b"queued", b"1")
        await asyncio.sleep(0)
        relay.cut()
        errors = [await failure(sent), await failure(queued)]
        assert [error.reason for error in errors] == ["disconnected", "disconnected"]
        assert [error.may_have_landed for error in errors] == [True, False]
        assert await direct.execute(b"EXISTS", b"queued") == 0


async def test_a_cancelled_caller_drops_only_its_own_wait(relay: Relay) -> None:
    """A command cancelled in flight is still read: the next reply goes to the next command, on the same connection."""
    async with linked(relay.url) as link:
        relay.replies.clear()
        before = relay.chunks
        cancelled = later(link, b"ECHO", b"cancelled")
        await eventually(lambda: relay.chunks > before)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        following = later(link, b"ECHO", b"following")
        relay.replies.set()
        assert await following == b"following"
        assert relay.accepted == 1


async def test_a_command_cancelled_in_the_queue_is_not_sent(relay: Relay) -> None:
    """A command that was cancelled before its turn leaves nothing behind."""
    async with linked(relay.url) as link:
        relay.replies.clear()
        before = relay.chunks
        first = later(link, b"PING")
        await eventually(lambda: relay.chunks > before)
        cancelled = later(link, b"SET", b"k", b"v")
        await asyncio.sleep(0)
        cancelled.cancel()
        relay.replies.set()
        await asyncio.gather(first, cancelled, return_exceptions=True)
        assert await link.execute(b"EXISTS", b"k") == 0


async def test_bytes_that_nobody_asked_for_are_noticed(relay: Relay) -> None:
    """Before each batch nothing may be readable: a surplus reply or an end of file shows that the connection is out of step."""
    loop = asyncio.get_running_loop()
    for disturb in (partial(relay.invent, b"+surplus\r\n"), relay.cut):
        wire = await Wire.open(opener(relay.url), loop.time() + 5)
        try:
            assert wire.in_step
            disturb()
            async with asyncio.timeout(5):
                while wire.in_step:
                    await asyncio.sleep(0)
        finally:
            wire.close()


async def test_an_idle_connection_that_ended_is_replaced(relay: Relay) -> None:
    """A server that closed an idle connection costs no command more than a new connection."""
    async with linked(relay.url) as link:
        await link.execute(b"PING")
        relay.cut()
        await eventually(lambda: link._wire is None)
        assert await link.execute(b"ECHO", b"again") == b"again"
        assert relay.accepted == 2


async def test_an_answer_that_is_no_redis_ends_the_connection(relay: Relay) -> None:
    """Bytes that cannot be parsed end the connection; Redis counts as away for a moment and comes back."""
    async with linked(relay.url) as link:
        relay.swallow = True
        before = relay.chunks
        call = later(link, b"PING")
        await eventually(lambda: relay.chunks > before)
        relay.invent(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert (await failure(call)).reason == "disconnected"
        relay.swallow = False
        await eventually(lambda: not link.open)
        assert await link.execute(b"ECHO", b"next") == b"next"


async def test_a_refused_connection(relay: Relay) -> None:
    """While nobody listens every call fails at once, having sent nothing; when somebody does again, calls succeed."""
    relay.refuse()
    async with linked(relay.url) as link:
        assert link.open
        error = await failure(later(link, b"PING"))
        assert (error.reason, error.may_have_landed) == ("not_ready", False)
        await relay.listen()
        await eventually(lambda: not link.open)
        assert await link.execute(b"PING") == b"PONG"


async def test_the_observer_hears_of_outages_and_batches(relay: Relay) -> None:
    """The gauge follows the breaker, and the size of each batch is told."""
    heard = Heard()
    link = Link(relay.url, breaker(), timeout=5.0, observer=heard)
    await link.start()
    try:
        await asyncio.gather(*(link.execute(b"PING") for _ in range(5)))
        relay.refuse()
        await failure(later(link, b"PING"))
        await relay.listen()
        await eventually(lambda: not link.open)
    finally:
        await link.close()
    assert heard.batches[:1] == [5]
    assert heard.away[:3] == [True, False, True]
    assert heard.away.count(False) == 2
    assert not heard.away[-1]


async def test_one_probe_at_a_time_on_schedule(relay: Relay) -> None:
    """While Redis is away there is one attempt to connect after each pause of the schedule, and none between."""
    pauses: list[float] = []
    tick = asyncio.Semaphore(0)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await tick.acquire()

    relay.reset = True
    link = Link(relay.url, breaker(first=0.25, limit=5.0), sleep=sleep)
    await link.start()
    try:
        for number, nominal in enumerate((0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0), start=1):
            await eventually(partial(as_many, pauses, number))
            assert pauses[-1] == nominal
            for _ in range(10):
                assert (await failure(later(link, b"PING"))).reason == "not_ready"
            assert relay.accepted == number
            tick.release()
        relay.reset = False
        tick.release()
        await eventually(lambda: not link.open)
        assert await link.execute(b"PING") == b"PONG"
    finally:
        await link.close()


async def test_a_server_that_answers_nothing_but_probes(relay: Relay) -> None:
    """It is looked for ever more rarely, until it has served a command."""
    pauses: list[float] = []
    tick = asyncio.Semaphore(0)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await tick.acquire()

    link = Link(relay.url, breaker(first=0.25, limit=5.0), timeout=0.5, connect_timeout=10.0, sleep=sleep)
    await link.start()
    try:
        for nominal, serve in ((0.25, False), (0.5, False), (1.0, True), (0.25, False)):
            await eventually(lambda: not link.open)
            relay.swallow = True
            assert (await failure(later(link, b"PING"))).reason == "timeout"
            relay.swallow = False
            await eventually(lambda: link.open)
            assert pauses[-1] == nominal
            tick.release()
            if serve:
                await eventually(lambda: not link.open)
                assert await link.execute(b"PING") == b"PONG"
    finally:
        await link.close()


async def test_the_queue_is_bounded(relay: Relay) -> None:
    """A call above the bound of what may wait is refused at once, having sent nothing; those within it are served."""
    async with linked(relay.url) as link:
        relay.replies.clear()
        before = relay.chunks
        first = later(link, b"PING")
        await eventually(lambda: relay.chunks > before)
        waiting = [later(link, b"ECHO", b"%d" % number) for number in range(1024)]
        await asyncio.sleep(0)
        error = await failure(later(link, b"PING"))
        assert (error.reason, error.may_have_landed) == ("overloaded", False)
        relay.replies.set()
        assert await asyncio.gather(first, *waiting) == [b"PONG", *(b"%d" % number for number in range(1024))]


async def test_a_server_that_does_not_read_fills_no_memory(relay: Relay) -> None:
    """One batch is buffered for it, and the rest waits in the queue, which is bounded in bytes, too."""
    async with linked(relay.url) as link:
        relay.requests.clear()
        value = bytes(400_000)
        waiting = [later(link, b"ECHO", value) for _ in range(18)]
        await asyncio.sleep(0.05)
        assert link._wire is not None
        assert link._wire._transport is not None
        assert len(link._wire.flying) == 3
        assert link._wire._transport.get_write_buffer_size() < 2_000_000
        refused = [later(link, b"ECHO", value) for _ in range(10)]
        assert {(await failure(call)).reason for call in refused[5:]} == {"overloaded"}
        relay.requests.set()
        assert set(await asyncio.gather(*waiting, *refused[:5])) == {value}


class Faulty(Command):
    """A command whose reply nobody can take, because of a fault of ours."""

    def __init__(self) -> None:
        super().__init__(pack(b"ECHO", b"faulty"))
        self.heard: list[object] = []

    def take(self, reply: object) -> None:
        self.heard.append(reply)
        raise RuntimeError("a fault of ours")


async def test_a_fault_of_ours_fails_all_that_wait(redis_db: str) -> None:
    """Whoever cannot take its reply is told once more, all behind it fail at once, those before it have their replies; then it goes on."""
    async with linked(redis_db) as link:
        before, faulty = link.enqueue(b"ECHO", b"before"), Faulty()
        link.send(faulty)
        behind = [link.enqueue(b"ECHO", b"%d" % number) for number in range(20)]
        assert await before == b"before"
        errors = [await failure(call) for call in behind]
        assert {(error.reason, error.may_have_landed) for error in errors} == {("error", True)}
        reply, told = faulty.heard
        assert reply == b"faulty"
        assert isinstance(told, StoreUnavailable)
        await eventually(lambda: not link.open)
        assert await link.execute(b"ECHO", b"next") == b"next"


async def test_a_fault_while_sending_fails_all_that_wait(redis_db: str) -> None:
    """As of an observer that breaks its word and raises."""

    class Raising(Heard):
        def store_batch(self, operation: str, size: int) -> None:
            if not self.batches:
                self.batches.append(size)
                raise RuntimeError("a fault of ours")

    link = Link(redis_db, breaker(), timeout=5.0, observer=Raising())
    await link.start()
    try:
        calls = [later(link, b"PING") for _ in range(5)]
        assert {(await failure(call)).reason for call in calls} == {"error"}
        await eventually(lambda: not link.open)
        assert await link.execute(b"PING") == b"PONG"
    finally:
        await link.close()


async def test_a_surplus_reply_ends_the_connection(relay: Relay) -> None:
    """More replies than commands: what came in that batch may be another's, and nothing is read from that connection any more."""
    async with linked(relay.url) as link:
        relay.swallow = True
        before = relay.chunks
        call = later(link, b"PING")
        await eventually(lambda: relay.chunks > before)
        relay.invent(b"+PONG\r\n+surplus\r\n")
        assert await call == b"PONG"
        relay.swallow = False
        assert await link.execute(b"ECHO", b"next") == b"next"
        assert relay.accepted == 2


async def test_closing_fails_what_waits(relay: Relay) -> None:
    """Close ends every waiting call and later ones, may be repeated, and leaves no connection."""
    async with linked(relay.url) as link:
        relay.replies.clear()
        before = relay.chunks
        call = later(link, b"PING")
        await eventually(lambda: relay.chunks > before)
        await link.close()
        assert (await failure(call)).may_have_landed
        assert (await failure(later(link, b"PING"))).reason == "not_ready"
        await link.close()


async def test_a_wrong_password_is_a_refusal(redis_server: RedisServer) -> None:
    """A server that does not let us in counts as away."""
    async with linked(f"redis://:wrong@127.0.0.1:{redis_server.port}/0") as link:
        assert link.open
    async with linked(f"redis://127.0.0.1:{redis_server.port}/0") as link:
        assert link.open


async def test_the_database_of_the_url_is_selected(redis_db: str) -> None:
    """The URL's database number is where commands go."""
    async with linked(redis_db) as zero, linked(redis_db.removesuffix("/0") + "/3") as three:
        await three.execute(b"SET", b"k", b"v", b"PX", 5000)
        assert await zero.execute(b"EXISTS", b"k") == 0
        assert await three.execute(b"EXISTS", b"k") == 1


async def test_a_unix_socket(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A `unix://` URL with password and database leads to a local server."""
    folder = tmp_path_factory.mktemp("unix")
    server = start_redis(folder / "redis", settings={"unixsocket": str(folder / "s")})
    try:
        password = urlsplit(server.url).password
        async with linked(f"unix://:{password}@{folder}/s?db=2") as link:
            assert await link.execute(b"PING") == b"PONG"
            assert not link.open
    finally:
        server.stop()


async def test_tls(redis_db: str, tmp_path: Path) -> None:
    """A `rediss://` URL leads to a server that shows a certificate of an authority that we know, and to no other."""
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with Relay(redis_db, context) as relay:
        async with linked(f"{relay.url}?ssl_ca_certs={tmp_path / 'ca.pem'}") as link:
            assert await link.execute(b"ECHO", bytes(300_000)) == bytes(300_000)
        async with linked(relay.url) as link:
            assert link.open


async def test_the_name_of_the_url_is_set(redis_db: str) -> None:
    """As operators see it in CLIENT LIST."""
    async with linked(f"{redis_db}?client_name=gateway-7") as link:
        assert await link.execute(b"CLIENT", b"GETNAME") == b"gateway-7"


@pytest.mark.parametrize("url", ["http://localhost", "redis://localhost:port/0", "redis://localhost?nonsense=1", "localhost:6379"])
def test_unusable_urls(url: str) -> None:
    """A URL that cannot be used is an error before anything is connected."""
    with pytest.raises(ValueError, match=r".+"):
        opener(url)


@pytest.mark.parametrize("query", ["retry_on_timeout=yes", "socket_timeout=9", "health_check_interval=1", "protocol=3"])
def test_a_url_cannot_turn_the_drivers_own_rules_on(query: str) -> None:
    """Whatever the URL's query says, the driver neither retries nor times out nor pings by itself."""
    connection = opener(f"redis://localhost?{query}")()
    assert connection.retry.get_retries() == 0
    assert connection.socket_timeout is None
    assert connection.health_check_interval == 0
    assert connection.protocol == 2
