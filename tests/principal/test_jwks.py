"""Keys behind an address: fetched once for all who wait, rotated, kept while the address fails, and never for too long."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import pytest
import trustme

from gateway.core.policy import Policy
from gateway.core.principal_source import Combine, JwksUrl, JwtPrincipal
from gateway.principal import Facts, Identifier, Part, PrincipalError, Unidentified
from gateway.principal.jwks import MAX_SET, RETRY, SEARCH
from tests.principal.servers import Answering, TurnedClock, response
from tests.principal.tokens import Signer, bearer, facts, key_set
from tests.upstream.stub import Peer, Stub, until

ONE = Signer(key_id="one")
TWO = Signer(key_id="two", number=1)
REFRESH, STALE = 300.0, 3600.0


@dataclass
class Bench:
    """An issuer's key server, and an identifier that goes by it."""

    server: Answering
    clock: TurnedClock
    identifier: Identifier
    policy: Policy

    def has_asked(self, times: int) -> bool:
        return self.server.asked == times

    async def ask(self, request: Facts) -> list[Part] | Unidentified:
        found = await self.identifier.identify(request, self.policy)
        return found if isinstance(found, Unidentified) else list(found)

    async def knows(self, token: bytes) -> bool:
        """Whether the token identifies somebody. It must not be for want of keys if it does not."""
        found = await self.ask(bearer(token))
        assert not isinstance(found, Unidentified) or not found.unavailable
        return not isinstance(found, Unidentified)

    async def unavailable(self, token: bytes) -> bool:
        found = await self.ask(bearer(token))
        return isinstance(found, Unidentified) and found.unavailable


def policy(url: str, refresh: float = REFRESH, stale: float = STALE) -> Policy:
    return Policy("pay", (JwtPrincipal(("sub",), JwksUrl(url, refresh, stale), ("ES256",)),))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Answering(response(key_set(ONE.jwk()))) as server:
        clock = TurnedClock()
        rules = policy(f"{server.url}/keys?v=1")
        identifier = Identifier([rules], {}, clock)
        yield Bench(server, clock, identifier, rules)
        await identifier.close()


async def test_the_first_requests_share_one_question(bench: Bench) -> None:
    """Nothing is asked before a token comes; any number of first requests wait for one answer."""
    bench.server.gate.clear()
    assert bench.server.connections == 0
    asking = [asyncio.ensure_future(bench.knows(ONE.token(f"tenant-{n}"))) for n in range(50)]
    await until(lambda: bench.server.asked > 0)
    bench.server.gate.set()
    assert all(await asyncio.gather(*asking))
    assert await bench.knows(ONE.token())
    assert bench.server.asked == 1
    line, *fields = bench.server.requests[0].split(b"\r\n")
    assert line == b"GET /keys?v=1 HTTP/1.1"
    assert f"Host: 127.0.0.1:{bench.server.port}".encode() in fields


async def test_one_who_leaves_disturbs_nobody(bench: Bench) -> None:
    """A client that hangs up while the keys are being fetched neither stops nor repeats that."""
    bench.server.gate.clear()
    first, second = (asyncio.ensure_future(bench.knows(ONE.token())) for _ in range(2))
    await until(lambda: bench.server.asked > 0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    bench.server.gate.set()
    assert await second
    assert bench.server.asked == 1


async def test_no_token_no_question(bench: Bench) -> None:
    """Requests without a token, with a malformed one or one in a forbidden algorithm are refused without asking anybody."""
    for request in (facts(), bearer(b"x.y.z"), bearer(b"a" * 100_000), bearer(Signer("HS256").token()), bearer(Signer("RS256").token())):
        found = await bench.ask(request)
        assert isinstance(found, Unidentified)
        assert not found.unavailable
    assert bench.server.asked == 0


async def test_rotation(bench: Bench) -> None:
    """A token of a new key makes the keys be fetched once; then it counts, and tokens of the removed key do not any more."""
    assert await bench.knows(ONE.token())
    bench.server.answer = response(key_set(TWO.jwk()))
    assert all(await asyncio.gather(*[bench.knows(TWO.token()) for _ in range(20)]))
    assert bench.server.asked == 2
    assert not await bench.knows(ONE.token())


async def test_rotation_without_key_ids(bench: Bench) -> None:
    """The same where neither tokens nor keys have ids."""
    old, new = Signer(key_id=None), Signer(key_id=None, number=1)
    bench.server.answer = response(key_set(old.jwk()))
    assert await bench.knows(old.token())
    bench.server.answer = response(key_set(new.jwk()))
    assert await bench.knows(new.token())
    assert bench.server.asked == 2


async def test_invented_key_ids_are_worth_one_question_in_a_while(bench: Bench) -> None:
    """However many tokens of unknown keys come, the address is asked once in `SEARCH` seconds for their sake."""
    assert await bench.knows(ONE.token())
    for number in range(30):
        assert not await bench.knows(Signer(key_id=f"made-up-{number}").token())
    assert bench.server.asked == 2
    bench.clock.ahead += SEARCH + 1
    assert not await bench.knows(Signer(key_id="made-up").token())
    assert bench.server.asked == 3
    assert await bench.knows(ONE.token())


async def test_a_bad_signature_is_worth_no_question(bench: Bench) -> None:
    """A forged signature under a known key id is refused without asking again."""
    assert await bench.knows(ONE.token())
    assert not await bench.knows(Signer(key_id="one", number=2).token())
    assert bench.server.asked == 1


async def test_old_keys_are_refreshed_in_the_background(bench: Bench) -> None:
    """Past `refresh` the keys at hand are used at once, however slow the address is, and new ones take their place."""
    assert await bench.knows(ONE.token())
    bench.clock.ahead += REFRESH + 1
    bench.server.answer = response(key_set(TWO.jwk()))
    bench.server.gate.clear()
    assert await bench.knows(ONE.token())
    assert await bench.knows(ONE.token())
    await until(lambda: bench.server.asked == 2)
    bench.server.gate.set()

    async def replaced() -> bool:
        return not await bench.knows(ONE.token())

    async with asyncio.timeout(10):
        while not await replaced():
            await asyncio.sleep(0.001)
    assert bench.server.asked in {2, 3}  # the token that is unknown now asks once more


async def test_much_older_keys_are_waited_for(bench: Bench) -> None:
    """A key that was withdrawn long ago does not come to life because nobody has asked for long."""
    assert await bench.knows(ONE.token())
    bench.server.answer = response(key_set(TWO.jwk()))
    bench.clock.ahead += 2 * REFRESH + 1
    assert not await bench.knows(ONE.token())


async def test_an_address_that_is_down_at_first(bench: Bench) -> None:
    """Without any keys nobody can be told, which is no refusal; one question in `RETRY` seconds finds out when it is back."""
    good, bench.server.answer = bench.server.answer, response(b"", b"503 Service Unavailable")
    for _ in range(5):
        assert await bench.unavailable(ONE.token())
    assert bench.server.asked == 1
    bench.server.answer = good
    bench.clock.ahead += RETRY + 0.1
    assert await bench.knows(ONE.token())
    assert bench.server.asked == 2


async def cut(peer: Peer, _request: bytes) -> None:
    peer.reset()


async def half(peer: Peer, _request: bytes) -> None:
    await peer.answer(response(key_set(TWO.jwk()))[:-10])


async def endless(peer: Peer, _request: bytes) -> None:
    await peer.answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(MAX_SET // 4096 + 64):
        await peer.answer(b"[" * 4096)


FAULTS: dict[str, bytes | Callable[[Peer, bytes], Awaitable[None]]] = {
    "cut": cut,
    "half": half,
    "endless": endless,
    "garbage": response(b"<html>sign in</html>"),
    "not http": b"SSH-2.0-OpenSSH\r\n\r\n",
    "no set": response(b"{}"),
    "nested": response(b"[" * 200_000),
    "too large": response(b" " * (MAX_SET + 1)),
    "redirect": response(b"", b"302 Found", b"Location: /elsewhere"),
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "forbidden": response(key_set(TWO.jwk()), b"403 Forbidden"),
    "partial": response(key_set(TWO.jwk()), b"206 Partial Content"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failing_address(bench: Bench, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """While the address fails, in whatever way, the keys at hand are used until they are `stale`, and not a moment longer."""
    assert await bench.knows(ONE.token())
    good, what = bench.server.answer, FAULTS[fault]
    bench.server.behave, bench.server.answer = (None, what) if isinstance(what, bytes) else (what, b"")
    with caplog.at_level(logging.INFO, "gateway.principal.jwks"):
        for ahead in (REFRESH + 1, RETRY + 1, 2 * REFRESH, STALE - 3 * REFRESH - RETRY - 60):
            bench.clock.ahead += ahead
            asked = bench.server.asked
            assert await bench.knows(ONE.token())
            await until(partial(bench.has_asked, asked + 1))
            await settled()
        assert await bench.unavailable(TWO.token())
        bench.clock.ahead += 80
        assert await bench.unavailable(ONE.token())
        bench.server.behave, bench.server.answer = None, good
        bench.clock.ahead += RETRY + 1
        assert await bench.knows(ONE.token())
    told = [record for record in caplog.records if record.name == "gateway.principal.jwks" and record.levelno == logging.WARNING]
    assert len(told) == 1
    assert "can be had" in caplog.records[-1].message


async def settled() -> None:
    """Wait until the question under way has its answer. The same keys answer meanwhile, so nothing else shows it."""
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "jwks"]
    if tasks:
        await asyncio.wait(tasks)


async def test_unknown_keys_while_the_address_fails(bench: Bench) -> None:
    """A token of an unknown key may be good: as long as nobody can tell, it is not refused but put off."""
    assert await bench.knows(ONE.token())
    bench.server.behave = cut
    assert await bench.unavailable(TWO.token())
    assert await bench.unavailable(TWO.token())
    assert bench.server.asked == 2
    assert await bench.knows(ONE.token())
    bench.server.behave, bench.server.answer = None, response(key_set(ONE.jwk(), TWO.jwk()))
    bench.clock.ahead += SEARCH + 1
    assert await bench.knows(TWO.token())


async def test_a_refused_connection() -> None:
    """An address where nobody listens is unavailable."""
    async with Stub() as server:
        port = server.port
    rules = policy(f"http://127.0.0.1:{port}/keys")
    identifier = Identifier([rules], {}, TurnedClock())
    found = await identifier.identify(bearer(ONE.token()), rules)
    assert isinstance(found, Unidentified)
    assert found.unavailable
    await identifier.close()


async def test_an_address_that_hangs(bench: Bench) -> None:
    """An address that takes the request and says nothing holds a caller up for a bounded time only, and once."""
    bench.server.gate.clear()
    async with asyncio.timeout(30):
        assert await bench.unavailable(ONE.token())
    async with asyncio.timeout(1):
        assert await bench.unavailable(ONE.token())
    bench.server.gate.set()


async def test_an_address_known_to_fail_is_not_waited_for(bench: Bench) -> None:
    """Once a question has failed, no request waits for the next one as long as there are keys that may be used."""
    assert await bench.knows(ONE.token())
    good, bench.server.answer = bench.server.answer, response(b"", b"500 Internal Server Error")
    bench.clock.ahead += REFRESH + 1
    assert await bench.knows(ONE.token())
    await settled()
    bench.server.gate.clear()
    bench.clock.ahead += 2 * REFRESH
    assert await bench.knows(ONE.token())
    assert await bench.knows(ONE.token())
    await until(partial(bench.has_asked, 3))
    assert any(task.get_name() == "jwks" for task in asyncio.all_tasks())
    bench.server.answer = good
    bench.server.gate.set()
    await settled()


async def test_the_age_of_keys_counts_from_the_question(bench: Bench) -> None:
    """Keys are as old as the question that they answer: what was withdrawn while the answer was on its way is not used for longer."""
    bench.server.gate.clear()
    first = asyncio.ensure_future(bench.knows(ONE.token()))
    await until(partial(bench.has_asked, 1))
    bench.clock.ahead += REFRESH - 50
    bench.server.gate.set()
    assert await first
    assert await bench.knows(ONE.token())
    assert bench.server.asked == 1
    bench.clock.ahead += 60
    assert await bench.knows(ONE.token())
    await until(partial(bench.has_asked, 2))


async def test_an_empty_set_withdraws_all_keys(bench: Bench) -> None:
    """An answer without keys is an answer: their tokens are refused from then on."""
    assert await bench.knows(ONE.token())
    bench.server.answer = response(key_set())
    bench.clock.ahead += 2 * REFRESH + 1
    assert not await bench.knows(ONE.token())


async def test_keys_outlive_a_reload(bench: Bench) -> None:
    """A new route map takes over the keys for the same address, their age included; another address is asked."""
    assert await bench.knows(ONE.token())
    bench.server.behave = cut
    same, elsewhere = policy(f"{bench.server.url}/keys?v=1", refresh=60), policy(f"{bench.server.url}/other")
    following = Identifier([same, elsewhere], {}, bench.clock, before=bench.identifier)
    await bench.identifier.close()
    assert not isinstance(await following.identify(bearer(ONE.token()), same), Unidentified)
    found = await following.identify(bearer(ONE.token()), elsewhere)
    assert isinstance(found, Unidentified)
    assert found.unavailable
    bench.clock.ahead += STALE + 1
    assert isinstance(await following.identify(bearer(ONE.token()), same), Unidentified)
    await following.close()


async def test_closing_lets_those_who_wait_go(bench: Bench) -> None:
    """A closed identifier answers whoever waits, and asks nobody any more."""
    bench.server.gate.clear()
    waiting = asyncio.ensure_future(bench.unavailable(ONE.token()))
    await until(lambda: bench.server.asked > 0)
    await bench.identifier.close()
    assert await waiting
    assert await bench.unavailable(ONE.token())
    assert bench.server.asked == 1
    bench.server.gate.set()


async def test_keys_over_tls() -> None:
    """An https address is believed only with a certificate of a trusted authority."""
    authority = trustme.CA()
    tls, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(trusting)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(response(key_set(ONE.jwk())))

    async with Stub(script, tls=tls) as server:
        rules = policy(f"https://127.0.0.1:{server.port}/keys")
        for context, known in ((trusting, True), (None, False)):
            identifier = Identifier([rules], {}, TurnedClock(), tls=context)
            found = await identifier.identify(bearer(ONE.token()), rules)
            assert isinstance(found, Unidentified) is not known
            await identifier.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "keys",
        "ftp://issuer.test/keys",
        "http://",
        "https://user:pw@issuer.test/keys",
        "https://issuer.test/a b",
        "https://issuer.test/ü",
    ],
)
async def test_bad_addresses(url: str) -> None:
    """An address that cannot be asked is refused when the route map is loaded."""
    with pytest.raises(PrincipalError, match="jwks_url"):
        Identifier([policy(url)], {}, TurnedClock())


async def test_sources_share_the_keys_of_an_address(bench: Bench) -> None:
    """Routes and sources that name one address ask it once."""
    keys = JwksUrl(f"{bench.server.url}/keys", REFRESH, STALE)
    one = Policy("a", (JwtPrincipal(("sub",), keys, ("ES256",), issuer="x"), JwtPrincipal(("sub",), keys, ("ES256",))), combine=Combine.ALL)
    two = Policy("b", (JwtPrincipal(("org",), keys, ("ES256",)),))
    identifier = Identifier([one, two], {}, bench.clock)
    request = bearer(ONE.token(iss="x", org=7))
    assert not isinstance(await identifier.identify(request, one), Unidentified)
    assert not isinstance(await identifier.identify(request, two), Unidentified)
    assert bench.server.asked == 1
    await identifier.close()
