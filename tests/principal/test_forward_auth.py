"""An auth service's answer is a principal: only a 2xx that names one caller is a yes, and only a yes is remembered."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from gateway.core.headers import Fields
from gateway.core.policy import Policy
from gateway.core.principal_source import ForwardAuthPrincipal
from gateway.ports import Upstream
from gateway.principal import Facts, Identifier, Part, PrincipalError, Unidentified, forward_auth
from gateway.principal.forward_auth import MAX_REMEMBERED, MAX_VALUE
from gateway.upstream import Balancer, Health, HttpUpstream, UpstreamSettings
from tests.principal.servers import Answering, TurnedClock, response
from tests.principal.tokens import facts
from tests.upstream.stub import Peer, Stub, until

SOURCE = ForwardAuthPrincipal("auth", "/check?for=pay", "X-Caller", ("Authorization", "Cookie"), cache=5.0)
YES = response(b"", b"200 OK", b"X-Caller: tenant-a")


@dataclass
class Bench:
    """An auth service, and an identifier that asks it."""

    service: Answering
    upstream: HttpUpstream
    clock: TurnedClock
    identifier: Identifier

    async def ask(self, request: Facts | None = None) -> Part | Unidentified:
        found = await self.identifier.identify(credentials() if request is None else request, policy())
        return found if isinstance(found, Unidentified) else found[0]

    async def caller(self, request: Facts | None = None) -> bytes:
        found = await self.ask(request)
        assert not isinstance(found, Unidentified)
        assert found[0].startswith(b"forward_auth:")
        return found[1]

    async def refused(self, request: Facts | None = None) -> Unidentified:
        found = await self.ask(request)
        assert isinstance(found, Unidentified)
        return found


def policy(source: ForwardAuthPrincipal = SOURCE) -> Policy:
    return Policy("pay", (source,))


def credentials(value: bytes = b"Bearer a", *more: tuple[bytes, bytes]) -> Facts:
    return facts((b"Authorization", value), *more)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Answering(YES) as service:
        clock = TurnedClock()
        upstream = HttpUpstream(UpstreamSettings(service.url))
        identifier = Identifier([policy()], {"auth": upstream}, clock)
        yield Bench(service, upstream, clock, identifier)
        await identifier.close()
        await upstream.close()


async def test_what_the_service_is_sent(bench: Bench) -> None:
    """The named fields and what is being asked for; no other field, no body, and nothing that the client says of itself."""
    request = credentials(
        b"Bearer a", (b"Cookie", b"s=1; t=2"), (b"X-Forwarded-Uri", b"/harmless"), (b"Idempotency-Key", b"k"), (b"Content-Length", b"9")
    )
    assert await bench.caller(request) == b"tenant-a"
    assert bench.service.requests[0].startswith(b"GET /check?for=pay HTTP/1.1\r\n")
    assert bench.service.fields() == [
        b"Host: api.test",
        b"Authorization: Bearer a",
        b"Cookie: s=1; t=2",
        b"X-Forwarded-Method: POST",
        b"X-Forwarded-Proto: https",
        b"X-Forwarded-Host: api.test",
        b"X-Forwarded-Uri: /v1/pay?a=b",
    ]


@pytest.mark.parametrize("status", [b"200 OK", b"201 Created", b"204 No Content", b"299 Fine"])
async def test_any_2xx_is_yes(bench: Bench, status: bytes) -> None:
    """Any 2xx that names one caller is a yes, with a body or without, in chunks or not."""
    bench.service.answer = b"HTTP/1.1 %b\r\nx-caller:  tenant-a\t\r\n\r\n" % status
    if not status.startswith(b"204"):
        bench.service.answer = response(b"welcome", status, b"x-caller:  tenant-a\t")
    assert await bench.caller() == b"tenant-a"


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
async def test_no_is_a_refusal(bench: Bench, status: bytes) -> None:
    """401 and 403 are the service's no, even if they name a caller; its challenge goes on to the client, and nothing is remembered."""
    bench.service.answer = response(b"no", status, b"X-Caller: tenant-a", b'WWW-Authenticate: Bearer realm="x"', b"WWW-Authenticate: Basic")
    found = await bench.refused()
    assert (found.unavailable, found.challenges) == (False, (b'Bearer realm="x"', b"Basic"))
    bench.service.answer = YES
    assert await bench.caller() == b"tenant-a"


NAMED = b"X-Caller: tenant-a"
NEITHER = {
    "100 only": b"HTTP/1.1 100 Continue\r\n\r\n",
    "redirect": response(b"", b"302 Found", NAMED, b"Location: /sign-in"),
    "not modified": b"HTTP/1.1 304 Not Modified\r\nX-Caller: tenant-a\r\n\r\n",
    "not found": response(b"", b"404 Not Found", NAMED),
    "proxy": response(b"", b"407 Proxy Authentication Required", NAMED),
    "too many": response(b"", b"429 Too Many Requests", NAMED),
    "broken": response(b"", b"500 Internal Server Error", NAMED),
    "busy": response(b"", b"503 Service Unavailable", NAMED),
    "nobody named": response(b"", b"200 OK"),
    "empty name": response(b"", b"200 OK", b"X-Caller: "),
    "two names": response(b"", b"200 OK", NAMED, NAMED),
    "a name and none": response(b"", b"200 OK", NAMED, b"x-caller:"),
    "too long a name": response(b"", b"200 OK", b"X-Caller: " + b"x" * (MAX_VALUE + 1)),
    "garbage": b"yes\r\n\r\n",
    "cut in its body": response(b"welcome", b"200 OK", NAMED)[:-1],
}


@pytest.mark.parametrize("answer", NEITHER)
async def test_neither_yes_nor_no(bench: Bench, answer: str) -> None:
    """Anything else tells nothing: the caller is neither known nor refused, and nothing is remembered."""

    async def close_after(peer: Peer, _request: bytes) -> None:
        await peer.answer(NEITHER[answer])
        peer.close()

    bench.service.behave = close_after
    found = await bench.refused()
    assert found.unavailable
    assert found.challenges == ()
    bench.service.behave = None
    assert await bench.caller() == b"tenant-a"


async def test_a_large_answer(bench: Bench) -> None:
    """The body of an answer is of no interest, however long it is."""
    bench.service.answer = response(b"x" * 3_000_000, b"200 OK", NAMED)
    assert await bench.caller() == b"tenant-a"


async def test_a_yes_is_remembered_for_a_short_time(bench: Bench) -> None:
    """Within `cache` seconds of the question the same fields are not asked about again; after that they are."""
    assert await bench.caller() == b"tenant-a"
    bench.service.answer = response(b"", b"401 Unauthorized")
    bench.clock.ahead += SOURCE.cache - 1
    assert await bench.caller() == b"tenant-a"
    assert bench.service.asked == 1
    bench.clock.ahead += 1
    assert not (await bench.refused()).unavailable
    assert bench.service.asked == 2
    assert not (await bench.refused()).unavailable
    assert bench.service.asked == 3


async def test_a_yes_counts_from_the_question(bench: Bench) -> None:
    """A slow answer is remembered for as much less: it tells of the time when it was asked for."""
    bench.service.gate.clear()
    first = asyncio.ensure_future(bench.caller())
    await until(lambda: bench.service.asked == 1)
    bench.clock.ahead += SOURCE.cache
    bench.service.gate.set()
    assert await first == b"tenant-a"
    assert await bench.caller() == b"tenant-a"
    assert bench.service.asked == 2


OTHERS = [
    credentials(b"Bearer b"),
    credentials(b"Bearer a", (b"Cookie", b"s=1")),
    facts((b"Cookie", b"Bearer a")),
    credentials()._replace(method="DELETE"),
    credentials()._replace(target=b"/v1/other"),
    credentials()._replace(host=b"other.test"),
    credentials()._replace(scheme=b"http"),
]


async def test_a_yes_is_for_what_was_asked(bench: Bench) -> None:
    """A yes never counts for other credentials, nor for another request that the service might judge otherwise."""
    assert await bench.caller() == b"tenant-a"
    bench.service.answer = response(b"", b"403 Forbidden")
    for other in OTHERS:
        await bench.refused(other)
    assert bench.service.asked == 1 + len(OTHERS)
    assert await bench.caller(credentials(b"Bearer a", (b"X-Other", b"1"))) == b"tenant-a"


async def test_no_cache() -> None:
    """With a `cache` of 0 every request is asked about."""
    source = replace(SOURCE, cache=0.0)
    async with Answering(YES) as service:
        upstream = HttpUpstream(UpstreamSettings(service.url))
        identifier = Identifier([policy(source)], {"auth": upstream}, TurnedClock())
        for _ in range(3):
            assert not isinstance(await identifier.identify(credentials(), policy(source)), Unidentified)
        assert service.asked == 3
        assert service.connections == 1
        await identifier.close()
        await upstream.close()


async def test_equal_requests_share_a_question(bench: Bench) -> None:
    """Any number of requests with the same fields at the same time are one question; others are not mixed up with it."""

    async def by_credential(peer: Peer, request: bytes) -> None:
        name = b"b" if b"Bearer b" in request else b"a"
        await peer.answer(response(b"", b"200 OK", b"X-Caller: tenant-" + name, b"Connection: close"))
        peer.close()

    bench.service.behave = by_credential
    bench.service.gate.clear()
    ones = [asyncio.ensure_future(bench.caller()) for _ in range(40)]
    await until(lambda: bench.service.asked == 1)
    others = [asyncio.ensure_future(bench.caller(credentials(b"Bearer b"))) for _ in range(40)]
    await until(lambda: bench.service.asked == 2)
    ones.pop().cancel()
    bench.service.gate.set()
    assert set(await asyncio.gather(*ones)) == {b"tenant-a"}
    assert set(await asyncio.gather(*others)) == {b"tenant-b"}
    assert bench.service.asked == 2


async def test_nothing_to_ask_about(bench: Bench) -> None:
    """A request without any of the fields, or with one of them twice, is refused without asking."""
    nothing = (facts(), facts((b"Authorization", b"")), facts((b"X-Other", b"a")))
    for request in nothing:
        found = await bench.refused(request)
        assert (found.absent, found.unavailable) == (True, False)
    for line in ((b"Authorization", b"Bearer a"), (b"Cookie", b"a=b")):
        found = await bench.refused(facts(line, line))
        assert (found.absent, found.unavailable) == (False, False)
    assert bench.service.asked == 0


async def test_fields_of_proxies(bench: Bench) -> None:
    """What says who the client is goes on only if a trusted proxy says it."""
    source = replace(SOURCE, forward=("X-Forwarded-For", "Forwarded", "X-Real-IP"))
    identifier = Identifier([policy(source)], {"auth": bench.upstream}, bench.clock)
    lines = ((b"X-Forwarded-For", b"10.0.0.1"), (b"Forwarded", b"for=10.0.0.1"), (b"X-Real-IP", b"10.0.0.1"))
    assert isinstance(await identifier.identify(facts(*lines), policy(source)), Unidentified)
    assert bench.service.asked == 0
    assert not isinstance(await identifier.identify(facts(*lines, trusted=True), policy(source)), Unidentified)
    assert b"X-Forwarded-For: 10.0.0.1" in bench.service.fields()
    await identifier.close()


async def test_no_request_is_smuggled(bench: Bench) -> None:
    """A value that would end its line writes nothing to the service."""
    found = await bench.refused(credentials(b"a\r\nX-Caller: b\r\n\r\nGET / HTTP/1.1"))
    assert not found.unavailable
    assert bench.service.asked == 0


async def test_a_service_that_is_away(bench: Bench) -> None:
    """A refused connection, a reset and silence are no answer, within a bounded time."""

    async def reset(peer: Peer, _request: bytes) -> None:
        peer.reset()

    bench.service.behave = reset
    assert (await bench.refused()).unavailable
    assert bench.service.asked == 2  # a lost connection may have been an idle one that was just being closed
    bench.service.behave = None
    bench.service.gate.clear()
    async with asyncio.timeout(30):
        assert (await bench.refused()).unavailable
    bench.service.gate.set()
    assert await bench.caller() == b"tenant-a"
    async with Stub() as gone:
        url = gone.url
    identifier = Identifier([policy()], {"auth": HttpUpstream(UpstreamSettings(url))}, bench.clock)
    found = await identifier.identify(credentials(), policy())
    assert isinstance(found, Unidentified)
    assert found.unavailable


async def test_an_idle_connection_that_was_closed(bench: Bench) -> None:
    """The service closes a kept connection just as the next question is written: the question is asked again, and answered."""
    assert await bench.caller() == b"tenant-a"
    turns = iter([True, False])

    async def once(peer: Peer, _request: bytes) -> None:
        if next(turns):
            peer.close()
        else:
            await peer.answer(YES)

    bench.service.behave = once
    assert await bench.caller(credentials(b"Bearer b")) == b"tenant-a"
    assert bench.service.asked == 3


async def test_a_breaker_is_no_answer(bench: Bench) -> None:
    """A service that its breaker has given up is unavailable at once."""
    async with Stub() as gone:
        url = gone.url
    balancer = Balancer([(url, HttpUpstream(UpstreamSettings(url)), Health(1, 60.0))])
    identifier = Identifier([policy()], {"auth": balancer}, bench.clock)
    for _ in range(3):
        found = await identifier.identify(credentials(), policy())
        assert isinstance(found, Unidentified)
        assert found.unavailable
    await identifier.close()


async def test_memory_is_bounded(bench: Bench) -> None:
    """However many credentials come by, only so many are remembered, the latest among them."""
    service = bench.identifier._services[SOURCE]
    for number in range(MAX_REMEMBERED + 50):
        service._remember(b"%d" % number, bench.clock.boottime() + 5, b"x")
    assert len(service._remembered) == MAX_REMEMBERED
    assert b"%d" % (MAX_REMEMBERED + 49) in service._remembered
    bench.clock.ahead += 6
    assert await bench.caller() == b"tenant-a"
    assert len(service._remembered) == 1


async def test_questions_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many questions under way nobody is asked, and nobody waits in line.

    The bound is made small, and the patience long: a busy machine takes its time for hundreds of connections.
    """
    monkeypatch.setattr(forward_auth, "MAX_ASKING", 8)
    monkeypatch.setattr(forward_auth, "PATIENCE", 100.0)
    bench.service.gate.clear()
    asking = [asyncio.ensure_future(bench.ask(credentials(b"Bearer %d" % number))) for number in range(8)]
    await until(lambda: bench.service.asked == 8)
    assert (await bench.refused(credentials(b"Bearer x"))).unavailable
    await bench.identifier.close()
    assert all(isinstance(one, Unidentified) and one.unavailable for one in await asyncio.gather(*asking))
    assert (await bench.refused()).unavailable
    bench.service.gate.set()


@pytest.mark.parametrize("name", ["Content-Length", "Host", "Connection", "Transfer-Encoding", "X-Forwarded-Uri", "Expect", "TE"])
async def test_fields_that_cannot_be_sent_on(bench: Bench, name: str) -> None:
    """Fields of the connection, of the framing, and those that tell the service what is asked for, are no credentials."""
    with pytest.raises(PrincipalError, match=name):
        Identifier([policy(replace(SOURCE, forward=("Authorization", name)))], {"auth": bench.upstream}, bench.clock)


async def test_services_that_cannot_be_asked(bench: Bench) -> None:
    """An unknown upstream, a path that is none and an empty list of fields are refused when the route map is loaded."""
    upstreams: dict[str, Upstream] = {"auth": bench.upstream}
    for source, why in (
        (replace(SOURCE, upstream="other"), "no upstream `other`"),
        (replace(SOURCE, path="check"), "`check` is no path"),
        (replace(SOURCE, path="/a b"), "is no path"),
        (replace(SOURCE, path="/a\r\nX: y"), "is no path"),
        (replace(SOURCE, forward=()), "no field is sent on"),
    ):
        with pytest.raises(PrincipalError, match=why):
            Identifier([policy(source)], upstreams, bench.clock)


async def test_another_service_is_another_source(bench: Bench) -> None:
    """Two services that call a caller by one name do not mean the same one."""
    other = replace(SOURCE, path="/staff")
    identifier = Identifier([policy(), policy(other)], {"auth": bench.upstream}, bench.clock)
    request = Facts(Fields(((b"Authorization", b"x"),)), "POST", b"/")
    one, two = await identifier.identify(request, policy()), await identifier.identify(request, policy(other))
    assert not isinstance(one, Unidentified)
    assert not isinstance(two, Unidentified)
    assert one[0][1] == two[0][1] == b"tenant-a"
    assert one[0][0] != two[0][0]
    await identifier.close()
