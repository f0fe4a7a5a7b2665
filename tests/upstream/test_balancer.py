"""Several targets: who gets a call, when the next one does, and when nobody may."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from gateway.ports import DoubtReason, InDoubt, NotSent, NotSentReason
from gateway.upstream import Balancer, Health, HttpUpstream, UpstreamSettings
from tests.upstream.ports import free_port, silent_port
from tests.upstream.stub import OK, Fence, Peer, Script, Stub, allow, call, raw, request, until, whole

TRUNCATED = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"


class Bench:
    """Stubs as targets, named by their place, and what `on_health` was told."""

    def __init__(self, stubs: list[Stub]) -> None:
        self.stubs = stubs
        self.told: list[tuple[str, bool]] = []
        self.clients: list[HttpUpstream] = []

    def balancer(self, *urls: str, failures: int = 2, cooldown: float = 60.0, circuit: bool = True, **limits: float | None) -> Balancer:
        """Over these addresses, or all stubs."""
        settings = [UpstreamSettings(url, **limits) for url in urls or [stub.url for stub in self.stubs]]  # type: ignore[arg-type]  # keywords
        self.clients = [HttpUpstream(each) for each in settings]
        targets = [(str(place), client, Health(failures, cooldown)) for place, client in enumerate(self.clients)]
        return Balancer(targets, lambda name, healthy: self.told.append((name, healthy)), circuit=circuit)

    def got(self) -> list[int]:
        """How many requests each stub has read."""
        return [len(stub.requests) for stub in self.stubs]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Three of them. At the end no slot may be left in use."""
    async with Stub() as one, Stub() as two, Stub() as three:
        made = Bench([one, two, three])
        yield made
        for client in made.clients:
            await client.close()
            assert client.open == 0


async def fails(balancer: Balancer, fence: Callable[[], bool] = allow) -> NotSent:
    with pytest.raises(NotSent) as caught:
        await balancer.send(request(), fence)
    return caught.value


async def doubts(balancer: Balancer) -> DoubtReason:
    with pytest.raises(InDoubt) as caught:
        await whole(await balancer.send(request(), allow))
    return caught.value.reason


async def open_circuit(balancer: Balancer) -> float:
    """What the refusal says about the time to wait."""
    failure = await fails(balancer)
    assert failure.reason is NotSentReason.CIRCUIT_OPEN
    assert failure.retry_after is not None
    return failure.retry_after


async def away(bench: Bench, port: int) -> Balancer:
    """Over one target, at which nobody has listened so far. Half a second later one call may try it."""
    balancer = bench.balancer(f"http://127.0.0.1:{port}", failures=1, cooldown=0.5, keepalive=0)
    assert (await fails(balancer)).reason is NotSentReason.CONNECT_REFUSED
    return balancer


async def answers_unless(peer: Peer) -> None:
    """Answers, until `seen` is set: then closes, without an answer."""
    while True:
        await peer.request()
        if peer.stub.seen.is_set():
            return
        await peer.answer(OK)


# Turns


async def test_targets_take_turns(bench: Bench) -> None:
    """Each gets as many calls as the others, on connections of its own."""
    balancer = bench.balancer()
    for _ in range(6):
        assert await call(balancer) == (200, b"ok")
    assert bench.got() == [2, 2, 2]
    assert (balancer.open, balancer.idle) == (3, 3)
    await balancer.close()
    assert balancer.open == 0


async def test_calls_at_the_same_time_are_spread_too(bench: Bench) -> None:
    """The turn is taken before anything is waited for."""
    balancer = bench.balancer()
    await asyncio.gather(*(call(balancer) for _ in range(9)))
    assert bench.got() == [3, 3, 3]


async def test_those_that_are_admitted_share_evenly(bench: Bench) -> None:
    """What a target that is left alone would get does not all go to the one behind it."""
    one, _, three = bench.stubs
    balancer = bench.balancer(one.url, f"http://127.0.0.1:{free_port()}", three.url, failures=1)
    for _ in range(9):
        assert await call(balancer) == (200, b"ok")
    assert sorted(bench.got()) == [0, 4, 5]
    assert bench.told == [("1", False)]


async def test_there_must_be_a_target() -> None:
    """A mistake of the caller."""
    with pytest.raises(ValueError, match="target"):
        Balancer([])


# The next target


async def test_nothing_sent_means_the_next_target(bench: Bench) -> None:
    """Whichever way the connection failed; the fence is asked once, before the first byte."""
    with silent_port() as silent:
        dead = [
            f"http://127.0.0.1:{free_port()}",
            "http://nonexistent.invalid:80",
            f"http://127.0.0.1:{silent}",
            "unix:/nonexistent/x.sock",
        ]
        balancer = bench.balancer(*dead, bench.stubs[0].url, connect=0.3)
        fence = Fence()
        response = await balancer.send(request(), fence)
    assert await whole(response) == b"ok"
    assert (fence.asked, bench.got()) == (1, [1, 0, 0])


async def test_a_failed_handshake_means_the_next_target(bench: Bench) -> None:
    """TLS comes before the request."""
    one, two, _ = bench.stubs
    one.script = raw(b"")
    balancer = bench.balancer(one.url.replace("http:", "https:"), two.url, connect=0.3)
    assert await call(balancer) == (200, b"ok")
    assert bench.got() == [0, 1, 0]


async def test_each_target_is_tried_once(bench: Bench) -> None:
    """Then the last failure is told."""
    balancer = bench.balancer(*(f"http://127.0.0.1:{free_port()}" for _ in range(3)), failures=0)
    fence = Fence()
    assert (await fails(balancer, fence)).reason is NotSentReason.CONNECT_REFUSED
    assert (fence.asked, balancer.open) == (0, 0)


async def test_a_streamed_body_goes_whole_to_the_next_target(bench: Bench) -> None:
    """Nothing of it is taken before there is a connection."""

    async def body() -> AsyncIterator[bytes]:
        yield b"abc"

    balancer = bench.balancer(f"http://127.0.0.1:{free_port()}", bench.stubs[0].url)
    response = await balancer.send(request(body=body()), allow)
    assert await whole(response) == b"ok"
    assert bench.stubs[0].requests[0].endswith(b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")


async def test_total_is_the_calls_own(bench: Bench) -> None:
    """It covers all targets together: when it is used up, no further one is tried."""
    with silent_port() as one, silent_port() as two:
        balancer = bench.balancer(*(f"http://127.0.0.1:{port}" for port in (one, two)), bench.stubs[0].url, connect=60, total=0.3)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await fails(balancer)).reason is NotSentReason.CONNECT_TIMEOUT
        assert loop.time() - began < 5
    assert bench.got() == [0, 0, 0]


async def reset(peer: Peer) -> None:
    await peer.request()
    peer.reset()


async def hang(peer: Peer) -> None:
    await peer.request()
    await peer.closed_by_client()


AFTER_THE_FIRST_BYTE: dict[str, tuple[Script, DoubtReason]] = {
    "closed": (raw(b"", close=True), DoubtReason.DISCONNECTED),
    "reset": (reset, DoubtReason.DISCONNECTED),
    "garbage": (raw(b"garbage\r\n\r\n"), DoubtReason.INVALID_RESPONSE),
    "silence": (hang, DoubtReason.FIRST_BYTE_TIMEOUT),
    "truncated": (raw(TRUNCATED, close=True), DoubtReason.TRUNCATED_RESPONSE),
}


@pytest.mark.parametrize(("script", "reason"), AFTER_THE_FIRST_BYTE.values(), ids=AFTER_THE_FIRST_BYTE)
async def test_after_the_first_byte_there_is_no_second_try(bench: Bench, script: Script, reason: DoubtReason) -> None:
    """Whatever happens then, and however many healthy targets there are."""
    bench.stubs[0].script = script
    balancer = bench.balancer(first_byte=0.2)
    assert await doubts(balancer) is reason
    assert bench.got() == [1, 0, 0]


async def test_a_lapsed_lease_does_not_move_on(bench: Bench) -> None:
    """Another target would be as late."""
    balancer = bench.balancer()
    asked: list[bool] = []

    def fence() -> bool:
        asked.append(False)
        return False

    assert (await fails(balancer, fence)).reason is NotSentReason.LEASE_LAPSED
    assert (len(asked), bench.got(), bench.told) == (1, [0, 0, 0], [])


async def test_the_fence_is_asked_after_the_failed_tries(bench: Bench) -> None:
    """A lease that lapses while the first target does not answer sends nothing to the second."""
    with silent_port() as silent:
        balancer = bench.balancer(f"http://127.0.0.1:{silent}", bench.stubs[0].url, connect=0.3)
        loop = asyncio.get_running_loop()
        lapses = loop.time() + 0.2
        assert (await fails(balancer, lambda: loop.time() < lapses)).reason is NotSentReason.LEASE_LAPSED
    assert bench.got() == [0, 0, 0]


async def test_a_stop_does_not_move_on(bench: Bench) -> None:
    """The process is going away: the other targets' clients are closing as well."""
    balancer = bench.balancer()
    await bench.clients[0].close()
    assert (await fails(balancer)).reason is NotSentReason.SHUTTING_DOWN
    assert (bench.got(), bench.told) == ([0, 0, 0], [])


# Slots


async def holds(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.stub.seen.wait()
        await peer.answer(OK)


async def test_a_full_target_is_passed_over_without_waiting(bench: Bench) -> None:
    """As long as another one has a slot."""
    for stub in bench.stubs:
        stub.script = holds
    balancer = bench.balancer(max_connections=1, slot_wait=60)
    calls = []
    for number in range(3):
        calls.append(asyncio.ensure_future(call(balancer)))
        await until(lambda number=number: sum(bench.got()) == number + 1)  # type: ignore[misc]  # mypy knows no defaults in a lambda
    bench.stubs[2].seen.set()
    await until(calls[2].done)
    assert await call(balancer) == (200, b"ok")
    assert bench.got() == [1, 1, 2]
    for stub in bench.stubs:
        stub.seen.set()
    await asyncio.gather(*calls)


async def test_no_slot_anywhere_is_no_slot(bench: Bench) -> None:
    """The call has waited once, not once for each target; nobody's health suffers."""
    for stub in bench.stubs:
        stub.script = holds
    balancer = bench.balancer(max_connections=1, slot_wait=1.5, failures=1)
    calls = [asyncio.ensure_future(call(balancer)) for _ in range(3)]
    await until(lambda: bench.got() == [1, 1, 1])
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await fails(balancer)).reason is NotSentReason.NO_SLOT
    assert 1.4 < loop.time() - began < 4
    assert bench.told == []
    for stub in bench.stubs:
        stub.seen.set()
    await asyncio.gather(*calls)


async def test_a_slot_that_comes_free_serves_the_waiting_call(bench: Bench) -> None:
    """When all are full, the call waits at the one whose turn it is, and then asks the others."""
    for stub in bench.stubs:
        stub.script = holds
    balancer = bench.balancer(max_connections=1, slot_wait=0.3)
    calls = [asyncio.ensure_future(call(balancer)) for _ in range(3)]
    await until(lambda: bench.got() == [1, 1, 1])
    waiting = asyncio.ensure_future(call(balancer))
    await asyncio.sleep(0)
    bench.stubs[1].seen.set()
    assert await waiting == (200, b"ok")
    assert bench.got() == [1, 2, 1]
    for stub in bench.stubs:
        stub.seen.set()
    await asyncio.gather(*calls)


# Health


async def test_failures_in_a_row_leave_a_target_alone(bench: Bench) -> None:
    """In doubt each time, then the others serve; the change is told once."""
    bench.stubs[0].script = raw(b"", close=True)
    balancer = bench.balancer(failures=2)
    outcomes: Counter[str] = Counter()
    for _ in range(12):
        try:
            await call(balancer)
            outcomes["ok"] += 1
        except InDoubt:
            outcomes["doubt"] += 1
    assert outcomes == {"ok": 10, "doubt": 2}
    assert bench.got() == [2, 5, 5]
    assert bench.told == [("0", False)]


@pytest.mark.parametrize(("script", "reason"), AFTER_THE_FIRST_BYTE.values(), ids=AFTER_THE_FIRST_BYTE)
async def test_each_kind_of_doubt_is_a_failure_and_counts_once(bench: Bench, script: Script, reason: DoubtReason) -> None:
    """Told at the third, not before; but the target was reached each time, and there is no other: it is asked all the same."""
    stub = bench.stubs[0]
    stub.script = script
    balancer = bench.balancer(stub.url, failures=3, first_byte=0.1)
    for _ in range(3):
        assert ("0", False) not in bench.told
        assert await doubts(balancer) is reason
    assert bench.told == [("0", False)]
    assert await doubts(balancer) is reason
    assert (bench.got(), stub.connections, balancer.open) == ([4, 0, 0], 4, 0)


async def test_a_body_that_falls_silent_is_a_failure(bench: Bench) -> None:
    """`read_idle` runs out while somebody waits for the next piece."""
    stub = bench.stubs[0]
    stub.script = raw(TRUNCATED)
    balancer = bench.balancer(stub.url, failures=1, read_idle=0.1)
    assert await doubts(balancer) is DoubtReason.READ_TIMEOUT
    assert bench.told == [("0", False)]


async def test_failed_connections_are_failures(bench: Bench) -> None:
    """The breaker then connects to nothing."""
    balancer = bench.balancer(f"http://127.0.0.1:{free_port()}", failures=2)
    for _ in range(2):
        assert (await fails(balancer)).reason is NotSentReason.CONNECT_REFUSED
    await open_circuit(balancer)
    assert bench.told == [("0", False)]


async def test_the_soonest_target_says_when_to_come_back(bench: Bench) -> None:
    """All are left alone, the first for the shortest time."""
    clients = [HttpUpstream(UpstreamSettings(f"http://127.0.0.1:{free_port()}")) for _ in range(2)]
    balancer = Balancer([("a", clients[0], Health(1, 30.0)), ("b", clients[1], Health(1, 90.0))])
    assert (await fails(balancer)).reason is NotSentReason.CONNECT_REFUSED
    assert 20 < await open_circuit(balancer) <= 30


STATUSES = [100 * kind + rest for kind in (2, 3, 4, 5) for rest in (0, 3, 29)]


@pytest.mark.parametrize("status", STATUSES)
async def test_no_status_is_a_failure(bench: Bench, status: int) -> None:
    """Whatever an upstream answers, it answers."""
    stub = bench.stubs[0]
    stub.script = raw(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
    balancer = bench.balancer(stub.url, failures=1)
    assert await call(balancer) == (status, b"")
    assert bench.told == []


async def cancelled_in_the_head(balancer: Balancer) -> None:
    calling = asyncio.ensure_future(call(balancer))
    await asyncio.sleep(0.1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def closed_in_the_body(balancer: Balancer) -> None:
    (await balancer.send(request(), allow)).close()


async def a_body_of_another_length(balancer: Balancer) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"abcd"

    with pytest.raises(InDoubt):
        await balancer.send(request(body=body(), length=2), allow)


async def a_body_that_fails(balancer: Balancer) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"abcd"
        raise LookupError

    with pytest.raises(LookupError):
        await balancer.send(request(body=body()), allow)


async def a_body_that_uses_up_the_total(balancer: Balancer) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"abcd"
        await asyncio.Event().wait()

    with pytest.raises(InDoubt) as caught:
        await balancer.send(request(body=body()), allow)
    assert caught.value.reason is DoubtReason.TOTAL_TIMEOUT


async def a_consumer_that_uses_up_the_total(balancer: Balancer) -> None:
    response = await balancer.send(request(), allow)
    await until(lambda: balancer.open == 0)
    with pytest.raises(InDoubt) as caught:
        await whole(response)
    assert caught.value.reason is DoubtReason.TOTAL_TIMEOUT


NOBODYS_FAULT: dict[str, tuple[Script, Callable[[Balancer], Awaitable[None]]]] = {
    "cancelled": (hang, cancelled_in_the_head),
    "closed": (raw(TRUNCATED), closed_in_the_body),
    "length": (hang, a_body_of_another_length),
    "source": (hang, a_body_that_fails),
    "slow source": (hang, a_body_that_uses_up_the_total),
    "slow consumer": (raw(TRUNCATED), a_consumer_that_uses_up_the_total),
}


@pytest.mark.parametrize(("script", "act"), NOBODYS_FAULT.values(), ids=NOBODYS_FAULT)
async def test_what_the_caller_ends_is_no_failure(bench: Bench, script: Script, act: Callable[[Balancer], Awaitable[None]]) -> None:
    """No client can talk a target out of service."""
    stub = bench.stubs[0]
    stub.script = script
    balancer = bench.balancer(stub.url, failures=1, total=0.3)
    await act(balancer)
    assert bench.told == []


async def test_a_silent_event_stream_is_no_failure(bench: Bench) -> None:
    """There may be nothing to tell; the stream ends all the same."""
    stub = bench.stubs[0]
    stub.script = raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
    balancer = bench.balancer(stub.url, failures=1, stream_idle=0.1)
    assert await doubts(balancer) is DoubtReason.READ_TIMEOUT
    assert bench.told == []


async def test_zero_failures_switch_it_off(bench: Bench) -> None:
    """Every call goes to the target, whatever became of the others."""
    stub = bench.stubs[0]
    stub.script = raw(b"", close=True)
    balancer = bench.balancer(stub.url, failures=0)
    for _ in range(5):
        await doubts(balancer)
    assert (len(stub.requests), bench.told) == (5, [])


async def test_a_trial_that_succeeds_brings_the_target_back(bench: Bench) -> None:
    """After the cooldown, and both changes are told."""
    balancer = await away(bench, port := free_port())
    await asyncio.sleep(await open_circuit(balancer) + 0.01)
    async with Stub(port=port):
        assert await call(balancer) == (200, b"ok")
        assert await call(balancer) == (200, b"ok")
    assert bench.told == [("0", False), ("0", True)]


async def test_a_trial_that_fails_does_not(bench: Bench) -> None:
    """Another cooldown begins, and nothing new is told."""
    balancer = await away(bench, free_port())
    await asyncio.sleep(await open_circuit(balancer) + 0.01)
    assert (await fails(balancer)).reason is NotSentReason.CONNECT_REFUSED
    assert await open_circuit(balancer) > 0
    assert bench.told == [("0", False)]


async def test_a_body_that_breaks_off_takes_the_success_of_its_head_back(bench: Bench) -> None:
    """The head had made the target a healthy one, the body makes it a failing one again."""
    stub = bench.stubs[0]
    stub.script = raw(TRUNCATED, close=True)
    balancer = bench.balancer(stub.url, failures=2)
    for _ in range(3):
        assert await doubts(balancer) is DoubtReason.TRUNCATED_RESPONSE
    assert bench.told == [("0", False), ("0", True), ("0", False)]


async def test_one_trial_at_a_time(bench: Bench) -> None:
    """While it has no answer, the others are refused; one that is cancelled makes room for the next."""
    balancer = await away(bench, port := free_port())
    await asyncio.sleep(await open_circuit(balancer) + 0.01)
    async with Stub(holds, port=port) as stub:
        trial = asyncio.ensure_future(call(balancer))
        await until(lambda: len(stub.requests) == 1)
        assert await open_circuit(balancer) == 0
        trial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trial
        second = asyncio.ensure_future(call(balancer))
        await until(lambda: len(stub.requests) == 2)
        stub.seen.set()
        assert await second == (200, b"ok")
    assert bench.told == [("0", False), ("0", True)]


UNDECIDED: dict[str, Callable[[Balancer], Awaitable[object]]] = {
    "lapsed": lambda balancer: fails(balancer, lambda: False),
    "length": a_body_of_another_length,
    "source": a_body_that_fails,
    "cancelled": cancelled_in_the_head,
}


@pytest.mark.parametrize("act", UNDECIDED.values(), ids=UNDECIDED)
async def test_a_trial_that_decides_nothing_makes_room(bench: Bench, act: Callable[[Balancer], Awaitable[object]]) -> None:
    """The next call is the trial."""
    balancer = await away(bench, port := free_port())
    await asyncio.sleep(await open_circuit(balancer) + 0.01)
    async with Stub(hang, port=port) as stub:
        await act(balancer)
        stub.script = answers_unless
        assert await call(balancer) == (200, b"ok")
    assert bench.told == [("0", False), ("0", True)]


async def test_calls_from_before_do_not_decide_a_trial(bench: Bench) -> None:
    """A slow call that ends at last neither counts nor ends the trial that runs meanwhile."""
    one, two, _ = bench.stubs
    one.script = holds
    balancer = bench.balancer(one.url, two.url, failures=1, cooldown=0.01)
    old = asyncio.ensure_future(doubts(balancer))
    await until(lambda: len(one.requests) == 1)
    assert await call(balancer) == (200, b"ok")
    one.script = raw(b"", close=True)
    await doubts(balancer)
    one.script = hang
    await asyncio.sleep(0.02)
    calls = [asyncio.ensure_future(call(balancer)) for _ in range(2)]  # one of them is the trial
    await until(lambda: len(one.requests) == 3)
    old.cancel()
    await asyncio.gather(old, return_exceptions=True)
    for _ in range(3):
        assert await call(balancer) == (200, b"ok")
    assert len(one.requests) == 3
    for each in calls:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


PAGE = b"/page"


async def hangs_up_on_a_page(peer: Peer) -> None:
    """A healthy server with one page that ends the connection instead of answering."""
    while PAGE not in await peer.request():
        await peer.answer(OK)


async def test_a_page_that_hangs_up_refuses_nobody_else(bench: Bench) -> None:
    """Many requests for it between two others, with one target and with several: the others are answered all the same."""
    for stub in bench.stubs:
        stub.script = hangs_up_on_a_page
    for urls in ([bench.stubs[0].url], [stub.url for stub in bench.stubs]):
        balancer = bench.balancer(*urls, failures=10)
        for _ in range(3):
            for _ in range(40):
                with pytest.raises(InDoubt):
                    await balancer.send(replace(request(), target=PAGE), allow)
            for _ in range(4):
                assert await call(balancer) == (200, b"ok")
        await balancer.close()


async def test_a_trial_that_is_such_a_page_opens_the_way(bench: Bench) -> None:
    """A server that came back is not kept out because the first request to it was for a page that hangs up."""
    balancer = await away(bench, port := free_port())
    await asyncio.sleep(await open_circuit(balancer) + 0.01)
    async with Stub(hangs_up_on_a_page, port=port):
        with pytest.raises(InDoubt):
            await balancer.send(replace(request(), target=PAGE), allow)
        assert await call(balancer) == (200, b"ok")


async def test_without_a_circuit_an_absent_target_is_asked_each_time(bench: Bench) -> None:
    """It is told of, and who asks finds out for himself: the moment it is there again, it serves."""
    balancer = bench.balancer(f"http://127.0.0.1:{(port := free_port())}", failures=2, circuit=False)
    for _ in range(4):
        assert (await fails(balancer)).reason is NotSentReason.CONNECT_REFUSED
    async with Stub(port=port):
        assert await call(balancer) == (200, b"ok")
    assert bench.told == [("0", False), ("0", True)]


async def test_many_calls_over_unruly_targets_leave_nothing_behind(bench: Bench) -> None:
    """Each call is sent once or not at all, slots come free, and in the end everybody is served."""
    for stub in bench.stubs[:2]:
        stub.script = answers_unless
    balancer = bench.balancer(failures=3, cooldown=0.05, max_connections=4)
    fences = [Fence() for _ in range(300)]

    async def one(fence: Fence) -> None:
        response = await balancer.send(request(), fence)
        await response.read(10)
        response.close()

    async def flap() -> None:
        for _ in range(10):
            for stub in bench.stubs[:2]:
                stub.seen.set()
            await asyncio.sleep(0.01)
            for stub in bench.stubs[:2]:
                stub.seen.clear()
            await asyncio.sleep(0.01)

    flapping = asyncio.ensure_future(flap())
    for start in range(0, 300, 10):
        results = await asyncio.gather(*map(one, fences[start : start + 10]), return_exceptions=True)
        assert {type(result) for result in results} <= {type(None), InDoubt, NotSent}
        await asyncio.sleep(0.005)
    await flapping
    assert all(fence.asked <= 1 for fence in fences)
    assert sum(bench.got()) <= sum(fence.asked for fence in fences)
    await asyncio.sleep(0.06)
    for _ in range(9):
        assert await call(balancer) == (200, b"ok")
    assert balancer.open == balancer.idle
