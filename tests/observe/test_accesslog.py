"""The access log: what a line says, and what a stalled reader may not do to the gateway."""

import asyncio
import contextlib
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.scope import Scope
from gateway.observe import MetricsObserver
from gateway.observe.accesslog import GATHERED, AccessLog, access_line, webhook_line
from gateway.observe.sink import CHUNK, polled_sink
from gateway.observe.timestamp import rfc3339
from gateway.ports import WebhookExchange
from tests.observe.support import GUARDED, exchange, parse, value

OpenLog: TypeAlias = Callable[..., AccessLog]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe: reading end, writing end."""
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.fixture
def drops() -> list[int]:
    """How many lines were dropped, each time some were."""
    return []


@pytest.fixture
def open_log(drops: list[int]) -> Iterator[OpenLog]:
    """Makes access logs, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(fd: int, **options: int) -> AccessLog:
            log = AccessLog(fd, drops.append, **options)
            stack.callback(log.close, 0)
            return log

        yield make


async def written(log: AccessLog) -> None:
    """Let what was gathered be written."""
    async with asyncio.timeout(20):
        while log._flush_due is not None:
            await asyncio.sleep(GATHERED)


def test_a_webhook_request_has_a_line_too() -> None:
    """With what became of it, and nothing of the event."""
    line = json.loads(webhook_line(WebhookExchange("pay", "bad_signature", "POST\udce9", 401, 0.0125, 17, "192.0.2.1")))
    del line["ts"]
    assert line == {
        "level": "info",
        "msg": "webhook",
        "route": "pay",
        "result": "bad_signature",
        "method": "POST\udce9",
        "status": 401,
        "duration_ms": 12.5,
        "request_bytes": 17,
        "client_gone": False,
        "client": "192.0.2.1",
        "request_id": None,
    }


def test_all_lines_are_written_alike() -> None:
    """Without spaces, whatever they speak of: people search them for `"msg":"webhook"`."""
    lines = [
        access_line(exchange()),
        access_line(exchange(method="PAY\udce9")),
        webhook_line(WebhookExchange("pay", "applied", "POST", 200, 0.1, 1, None)),
    ]
    assert [line.partition(b'"msg":')[2].partition(b",")[0] for line in lines] == [b'"request"', b'"request"', b'"webhook"']


def test_a_line_has_every_field() -> None:
    """A request's line is one JSON object with its ids, decision, settlement, digest and timings in milliseconds."""
    line = access_line(exchange(decision=Label.EXECUTE_RETRY, attempt=2, client_gone=True))
    assert line.endswith(b"}\n")
    fields = orjson.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("ts"))
    assert fields == {
        "level": "info",
        "msg": "request",
        "request_id": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "route": "create-charge",
        "mode": "enforce",
        "decision": "execute_retry",
        "method": "POST",
        "status": 201,
        "settlement": "complete",
        "reason": "responded",
        "key": "00112233445566aa",
        "attempt": 2,
        "duration_ms": 42.124,
        "store_ms": 3.5,
        "upstream_ms": 30.0,
        "upstream_status": 201,
        "request_bytes": 120,
        "response_bytes": 340,
        "client_gone": True,
        "client": None,
        "path_pattern": None,
        "scope_id": None,
        "trace_id": None,
        "original_request_id": None,
    }


def test_a_line_says_whose_request_it_was_and_of_which_trace() -> None:
    """The caller's scope, as records have it; the trace; the path that the route takes; what the client calls itself where that is on."""
    agent = Fields(((b"user-agent", b"curl/8\xe9 " + b"a" * 300),))
    request = exchange(scope=Scope("charges:header.rn4H"), fields=agent, trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    shown = json.loads(access_line(request, "/v1/charges"))
    assert (shown["path_pattern"], shown["scope_id"]) == ("/v1/charges", "charges:header.rn4H")
    assert shown["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert "user_agent" not in shown
    assert json.loads(access_line(request, user_agent=True))["user_agent"] == "curl/8é " + "a" * 248
    assert json.loads(access_line(exchange(), user_agent=True))["user_agent"] is None


@given(request_id=st.text(st.characters(exclude_categories=[]), max_size=2000), method=st.text(st.characters(exclude_categories=[])))
def test_any_text_makes_one_short_line(request_id: str, method: str) -> None:
    """Control characters, lone surrogates and long texts still make exactly one JSON line that a pipe takes whole."""
    line = access_line(exchange(request_id=request_id, method=method))
    assert line.count(b"\n") == 1
    assert len(line) <= CHUNK
    assert isinstance(json.loads(line), dict)


@given(st.integers(0, 4102444800), st.integers(0, 999))
def test_timestamps_are_rfc3339(second: int, millisecond: int) -> None:
    """Milliseconds are cut, never rounded into the next second."""
    text = rfc3339(second + millisecond / 1000 + 0.0004)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert abs(int(text[20:23]) - millisecond) <= 1


async def test_lines_that_come_together_are_written_together(pipe: tuple[int, int], open_log: OpenLog) -> None:
    """Nothing is written while they are gathered; then they come in order, in one piece."""
    log = open_log(pipe[1])
    os.set_blocking(pipe[0], False)
    log.append(b"1\n")
    log.append(b"2\n")
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 100)
    await written(log)
    assert os.read(pipe[0], 100) == b"1\n2\n"
    assert os.get_blocking(pipe[1]), "the stream that was given keeps its flags"


async def test_a_stalled_reader_costs_the_oldest_lines(pipe: tuple[int, int], open_log: OpenLog, drops: list[int]) -> None:
    """With a full pipe the loop goes on; the buffer keeps the newest whole lines, and counts the others as dropped."""
    log = open_log(pipe[1], buffer_bytes=100_000)
    lines = [b'{"n": %06d, "text": "%s"}\n' % (number, b"x" * 500) for number in range(2000)]
    for line in lines:
        log.append(line)
        await asyncio.sleep(0)
    assert sum(drops) > 1000
    received = b""
    os.set_blocking(pipe[0], False)
    async with asyncio.timeout(20):
        while not received.endswith(lines[-1]):
            try:
                received += os.read(pipe[0], 65536)
            except BlockingIOError:
                await asyncio.sleep(0.005)
    kept = received.splitlines(keepends=True)
    assert set(kept) <= set(lines)
    assert kept == sorted(kept)
    assert len(kept) + sum(drops) == len(lines)


async def test_close_writes_what_is_left(pipe: tuple[int, int], open_log: OpenLog, drops: list[int]) -> None:
    """What was gathered is written before the process ends."""
    log = open_log(pipe[1])
    for number in range(20):
        log.append(b"%d\n" % number)
    log.close()
    assert os.read(pipe[0], 1000).split() == [b"%d" % number for number in range(20)]
    assert drops == []


async def test_close_gives_up_on_a_stalled_reader(pipe: tuple[int, int], open_log: OpenLog, drops: list[int]) -> None:
    """A reader that takes nothing delays the end by no more than its patience; what it missed counts as dropped."""
    log = open_log(pipe[1])
    for _ in range(1000):
        log.append(b"x" * 999 + b"\n")
    log.close(patience=0.05)
    assert 900 < sum(drops) < 1000


async def test_a_reader_that_left_is_no_error(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture, open_log: OpenLog, drops: list[int]
) -> None:
    """After the reader has closed its end, lines are dropped and counted, and the log says so once."""
    log = open_log(pipe[1])
    os.close(pipe[0])
    for _ in range(5):
        log.append(b"x\n")
        await written(log)
    assert sum(drops) == 5
    assert [record.getMessage() for record in caplog.records] == ["The access log cannot be written: Broken pipe"]


async def test_files_and_sockets_take_lines_too(tmp_path: Path, open_log: OpenLog) -> None:
    """A regular file and a stream socket, as a service manager gives them, get the same lines."""
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "log").open("wb") as file:
        for fd in (file.fileno(), ours.fileno()):
            log = open_log(fd)
            log.append(b"line\n")
            await written(log)
        assert (tmp_path / "log").read_bytes() == b"line\n"
        assert theirs.recv(100) == b"line\n"


async def test_a_stalled_socket_does_not_hold_up_the_loop(open_log: OpenLog, drops: list[int]) -> None:
    """A socket whose peer does not read makes lines wait, not the loop."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        log = open_log(ours.fileno(), buffer_bytes=50_000)
        async with asyncio.timeout(20):
            for _ in range(2000):
                log.append(b"x" * 999 + b"\n")
                await asyncio.sleep(0)
        assert sum(drops) > 0
        assert ours.getblocking()


async def test_dropped_lines_show_in_the_metrics(pipe: tuple[int, int]) -> None:
    """The observer counts what its log could not write."""
    observer = MetricsObserver([GUARDED], access_log_fd=pipe[1])
    os.close(pipe[0])
    observer.request_started(GUARDED.id)
    observer.request_ended(exchange())
    observer.close()
    assert value(parse(observer.exposition()[0]), "access_log_dropped_lines_total") == 1


def test_a_stream_that_cannot_be_opened_anew_is_polled(pipe: tuple[int, int]) -> None:
    """Where a pipe belongs to another user, a full one is noticed before a write would wait."""
    sink = polled_sink(pipe[1])
    written = 0
    while taken := sink.write(b"x" * CHUNK):
        written += taken
    assert written >= CHUNK
    assert len(os.read(pipe[0], CHUNK)) == CHUNK
    assert sink.write(b"x" * CHUNK) == CHUNK
    assert sink.write(b"x") == 0
