"""Who stands before us and behind us: the forwarded family by mode and trust, the Host line, Via, Proxy-Status, several targets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.devtools.embedded.ports import free_port
from tests.http.wire.conftest import ROUTES, Wire
from tests.http.wire.peer import ask, connect, guarded, request
from tests.http.wire.stub import CREATED, FIN, RESET, Seen, Stub, Turn, reply
from tests.support.gateway import Gateway, Setup, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUTS = "{connect: 1s, first_byte: 1s, read_idle: 1s, total: 2s}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub() -> AsyncIterator[Stub]:
    """The peer behind all gateways of this module."""
    async with Stub() as stub:
        yield stub
        assert stub.faults == []


@contextlib.asynccontextmanager
async def before(database: str, folder: Path, upstream: str, more: str = "") -> AsyncIterator[Gateway]:
    """A gateway on Postgres alone with this upstream."""
    setup = Setup(database, 0, routes=ROUTES, timeouts=TIMEOUTS, upstream=upstream, more=more)
    async with running(setup, folder) as process:
        yield process


# ---- the forwarded family (RFC 7239, and the older fields)

SPOOFED = (
    b"X-Forwarded-For: 203.0.113.7",
    b"X-Forwarded-For: 198.51.100.1",
    b"X-Forwarded-Proto: https",
    b"X-Forwarded-Host: shop.test",
    b'Forwarded: for="[2001:db8::1]";proto=https;host=shop.test',
)
PLAIN, TRUSTED = "127.0.0.1", "127.0.0.2"


async def told(process: Gateway, stub: Stub, case: bytes, local: str) -> Seen:
    async with await connect(process.port, local=local) as client:
        assert (await ask(client, request(case, b"/plain", *SPOOFED))).status == 201
    return stub.one(case)


def elements(seen: Seen) -> list[dict[bytes, bytes]]:
    """The elements of Forwarded, each as its pairs."""
    line = b",".join(seen.values(b"Forwarded"))
    return [
        {name.strip().lower(): value.strip(b'"') for name, _, value in (pair.partition(b"=") for pair in one.split(b";"))}
        for one in line.split(b",")
        if one
    ]


@pytest.mark.parametrize("mode", ["x-forwarded", "forwarded", "both", "none"])
async def test_the_upstream_is_told_who_the_client_is(stub: Stub, module_database: str, tmp_path: Path, mode: str) -> None:
    """RFC 7239 4, 8.1: nobody but a trusted proxy speaks for another address; its word is appended to, on the right."""
    more = f"forwarded: {mode}\ntrusted_proxies: [127.0.0.2/32]"
    async with before(module_database, tmp_path, f'url: "http://127.0.0.1:{stub.port}"', more) as process:
        untrusted = await told(process, stub, f"{mode}-untrusted".encode(), PLAIN)
        trusted = await told(process, stub, f"{mode}-trusted".encode(), TRUSTED)
    older, newer = mode in {"x-forwarded", "both"}, mode in {"forwarded", "both"}
    names = (b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host")
    assert [untrusted.values(name) for name in names] == ([[b"127.0.0.1"], [b"http"], [b"gateway.test"]] if older else [[], [], []])
    mine = {b"for": b"127.0.0.1", b"proto": b"http", b"host": b"gateway.test"}
    assert elements(untrusted) == ([mine] if newer else [])
    if older:
        chain = [address.strip() for address in b",".join(trusted.values(b"X-Forwarded-For")).split(b",")]
        assert chain == [b"203.0.113.7", b"198.51.100.1", b"127.0.0.2"]
        assert (trusted.values(b"X-Forwarded-Proto"), trusted.values(b"X-Forwarded-Host")) == ([b"https"], [b"shop.test"])
    if newer:
        theirs = {b"for": b"[2001:db8::1]", b"proto": b"https", b"host": b"shop.test"}
        assert elements(trusted) == [theirs, mine | {b"for": b"127.0.0.2"}]


async def test_host_via_and_proxy_status_as_configured(stub: Stub, module_database: str, tmp_path: Path) -> None:
    """RFC 9110 7.2, 7.6.3, RFC 9209 2: a literal Host, our own name in Via and in Proxy-Status, with the registered error."""
    upstream = f'url: "http://127.0.0.1:{stub.port}", host: api.internal'
    async with before(module_database, tmp_path, upstream, "name: edge-1\nproxy_status: true") as process:
        answer = await ask(process.port, request(b"named"))
        assert answer.status == 201
        seen = stub.one(b"named")
        assert (seen.values(b"Host"), seen.values(b"Via")) == ([b"api.internal"], [b"1.1 edge-1"])
        assert seen.values(b"X-Forwarded-Host") == [b"gateway.test"]
        assert (await ask(process.port, request(b"named-2", b"/plain", b"Via: 1.1 idempotency-gateway"))).status == 201
        looped = await ask(process.port, request(b"named-3", b"/plain", b"Via: 1.1 EDGE-1"))
        assert (looped.status, looped.problem) == (502, "proxy-loop")
        assert b"error=proxy_loop_detected" in (looped.field("proxy-status") or b"")
        cases = {
            b"status-reset": (reply(b"", RESET), b"error=connection_terminated"),
            b"status-garbage": (reply(b"garbage\r\n\r\n", FIN), b"error=http_protocol_error"),
            b"status-short": (reply(CREATED[:-3], FIN), b"error=http_response_incomplete"),
        }
        for case, (script, error) in cases.items():
            stub.scripts[case] = script
            for raw in (guarded(case), request(case, method=b"POST", body=b"{}")):
                status = (await ask(process.port, raw)).field("proxy-status") or b""
                assert status.startswith(b"edge-1;")
                assert error in status.replace(b"; ", b";")
        missing = await ask(process.port, request(b"status-key", b"/v1/pay", method=b"POST", body=b"{}"))
        assert (missing.field("proxy-status") or b"").startswith(b"edge-1")
        cdn = CREATED.replace(b"Content-Length", b"Proxy-Status: cdn; received-status=200\r\nContent-Length")
        stub.scripts[b"status-chain"] = reply(cdn)
        members = b", ".join(value for name, value in (await ask(process.port, request(b"status-chain"))).fields if name == b"Proxy-Status")
        assert members.startswith(b"cdn")


async def test_host_of_the_target(stub: Stub, module_database: str, tmp_path: Path) -> None:
    """RFC 9110 7.2: `host: target` writes the target's own authority, also over an absolute-form request."""
    async with before(module_database, tmp_path, f'url: "http://127.0.0.1:{stub.port}", host: target') as process:
        await ask(process.port, request(b"target-host"))
        await ask(process.port, request(b"target-host-2", b"http://other.test/plain"))
    for case in (b"target-host", b"target-host-2"):
        assert stub.one(case).values(b"Host") == [b"127.0.0.1:%d" % stub.port]


# ---- several targets


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def second() -> AsyncIterator[Stub]:
    """Another target of the same API."""
    async with Stub() as stub:
        yield stub
        assert stub.faults == []


async def test_targets_take_turns_and_a_doubt_stays_with_its_target(stub: Stub, second: Stub, module_database: str, tmp_path: Path) -> None:
    """Each gets its share; once something was sent, no other target ever sees the request (RFC 9110 9.2.2)."""
    targets = f'targets: ["http://127.0.0.1:{stub.port}", "http://127.0.0.1:{second.port}"], health: {{failures: 0}}'
    async with before(module_database, tmp_path, targets) as process, Wire(process, stub, module_database) as wire:
        for number in range(20):
            assert (await ask(process.port, guarded(b"turns-%d" % number))).status == 201
        shares = [sum(seen.values(b"X-Case")[0].startswith(b"turns-") for seen in one.seen) for one in (stub, second)]
        assert sum(shares) == 20
        assert min(shares) >= 5
        for how in (RESET, FIN):
            case = b"doubt-" + how.encode()
            for one in (stub, second):
                one.scripts[case] = one.scripts[case + b"-put"] = reply(b"", how)
            answer = await ask(process.port, guarded(case))
            assert (answer.status, answer.problem) == (502, "outcome-unknown")
            for one in (stub, second):
                one.scripts[case] = reply(CREATED)
            again = await ask(process.port, guarded(case))
            assert (again.status, again.problem) == (409, "outcome-unknown")
            assert len(stub.of(case)) + len(second.of(case)) == 1
            record = await wire.record(case)
            assert record is not None
            assert record[0] == "unknown"
            put = await ask(process.port, request(case + b"-put", method=b"PUT", body=b"{}"))
            assert (put.status, put.problem) == (502, "upstream-failed")
            assert len(stub.of(case + b"-put")) + len(second.of(case + b"-put")) == 1


async def test_failover_only_when_nothing_was_sent(stub: Stub, module_database: str, tmp_path: Path) -> None:
    """A target that refuses connections is passed over, for guarded and unguarded requests, and each runs once."""
    targets = f'targets: ["http://127.0.0.1:{free_port()}", "http://127.0.0.1:{stub.port}"], health: {{failures: 0}}'
    async with before(module_database, tmp_path, targets) as process:
        for number in range(6):
            case = b"failover-%d" % number
            assert (await ask(process.port, guarded(case))).status == 201
            assert (await ask(process.port, request(case + b"-plain", method=b"POST", body=b"{}"))).status == 201
            assert (stub.runs[case], stub.runs[case + b"-plain"]) == (1, 1)


async def test_a_breaker_opens_its_refusals_release_the_key_and_it_closes_again(module_database: str, tmp_path: Path) -> None:
    """After `failures` in a row the target is left alone: 503 `circuit_open`, a free key, and a trial after `cooldown`."""
    port = free_port()
    upstream = f'url: "http://127.0.0.1:{port}", health: {{failures: 3, cooldown: 1s, circuit: true}}'
    async with before(module_database, tmp_path, upstream) as process, Wire(process, Stub(), module_database) as wire:
        for _ in range(3):
            answer = await ask(process.port, guarded(b"breaker"))
            assert (answer.status, answer.problem) == (502, "upstream-unreachable")
        for raw in (guarded(b"breaker"), request(b"breaker")):
            answer = await ask(process.port, raw)
            assert (answer.status, answer.problem) == (503, "upstream-unreachable")
            assert b"circuit_open" in answer.body
            assert 1 <= int(answer.field("retry-after") or 0) <= 60
        record = await wire.record(b"breaker")
        assert record is not None
        assert record[0] == "failed_retryable"
        async with Stub(port=port) as late:
            async with asyncio.timeout(10):
                while (answer := await ask(process.port, guarded(b"breaker"))).status != 201:
                    assert answer.problem == "upstream-unreachable"
                    await asyncio.sleep(0.1)
            assert (await ask(process.port, guarded(b"breaker"))).field("idempotent-replayed") == b"true"
            assert late.runs[b"breaker"] == 1


async def test_a_full_upstream_is_nothing_sent(stub: Stub, module_database: str, tmp_path: Path) -> None:
    """RFC 9110 15.6.4: no slot within `slot_wait` is 503 `upstream-unreachable`: the key is free, and runs once there is a slot."""
    release = asyncio.Event()

    async def held(turn: Turn) -> None:
        await turn.body()
        turn.execute()
        await release.wait()
        await turn.say(CREATED)

    stub.scripts[b"slot-1"] = held
    upstream = f'url: "http://127.0.0.1:{stub.port}", max_connections: 1, slot_wait: 100ms, health: {{failures: 0}}'
    async with before(module_database, tmp_path, upstream) as process:
        first = asyncio.get_running_loop().create_task(ask(process.port, guarded(b"slot-1")))
        await stub.until(lambda: stub.runs[b"slot-1"] == 1)
        refused = await ask(process.port, guarded(b"slot-2"))
        assert (refused.status, refused.problem) == (503, "upstream-unreachable")
        release.set()
        assert (await first).status == 201
        assert (await ask(process.port, guarded(b"slot-2"))).status == 201
        assert stub.runs[b"slot-2"] == 1
