"""What a service manager hears, over real sockets."""

import asyncio
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runtime.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def heard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A manager's socket, and how the environment names it."""
    name = f"{tmp_path}/notify" if request.param == "path" else f"@gateway-tests-{os.getpid()}-{id(request)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind("\0" + name[1:] if name.startswith("@") else name)
        ears.setblocking(False)
        yield ears, name


def lines(ears: socket.socket) -> list[str]:
    return ears.recv(65536).decode().split("\n")


def silent(ears: socket.socket) -> bool:
    with pytest.raises(BlockingIOError):
        ears.recv(1)
    return True


def test_a_life(heard: tuple[socket.socket, str]) -> None:
    """Ready, a reload, a stop that may take longer than the unit says."""
    ears, name = heard
    manager = ServiceManager({"NOTIFY_SOCKET": name})
    manager.ready("Serving on 0.0.0.0:8080")
    assert lines(ears) == ["READY=1", "STATUS=Serving on 0.0.0.0:8080"]
    manager.reloading()
    begun, when, _ = lines(ears)
    assert begun == "RELOADING=1"
    assert when.startswith("MONOTONIC_USEC=")
    manager.reloaded("Reload refused: gateway.yaml:3:1")
    assert lines(ears) == ["READY=1", "STATUS=Reload refused: gateway.yaml:3:1"]
    manager.stopping(80.5, "Draining")
    assert lines(ears) == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=80500000", "STATUS=Draining"]


def test_a_reload_before_the_start_is_over_makes_nothing_ready(heard: tuple[socket.socket, str]) -> None:
    ears, name = heard
    manager = ServiceManager({"NOTIFY_SOCKET": name})
    manager.reloading()
    manager.reloaded("Serving")
    assert silent(ears)


@pytest.mark.parametrize("env", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/at/all"}, {"NOTIFY_SOCKET": "x" * 300}])
def test_without_a_manager_nothing_happens(env: Mapping[str, str]) -> None:
    """No socket, or one that cannot be used: the gateway goes on."""
    manager = ServiceManager(env)
    manager.ready("Serving")
    manager.stopping(1.0, "Draining")


def test_a_manager_that_does_not_read_holds_nobody(heard: tuple[socket.socket, str]) -> None:
    """A full socket loses what it is told; the caller does not wait."""
    _, name = heard
    manager = ServiceManager({"NOTIFY_SOCKET": name})
    for _ in range(2000):
        manager.ready("x" * 1000)


@given(status=st.text())
def test_a_status_is_one_line(status: str) -> None:
    """Nothing in a status can be taken for another message."""
    told: list[tuple[str, ...]] = []

    class Ears(ServiceManager):
        def _send(self, text: str) -> None:
            told.append(tuple(text.split("\n")))

    Ears({"NOTIFY_SOCKET": "/x"}).ready(status)
    ((ready, line),) = told
    assert ready == "READY=1"
    assert line.startswith("STATUS=")


async def test_the_watchdog_is_told_in_time(heard: tuple[socket.socket, str]) -> None:
    """At once, and again well before its interval is over."""
    ears, name = heard
    task = asyncio.ensure_future(ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "300000"}).keep_alive())
    await asyncio.sleep(0.35)
    task.cancel()
    count = 0
    while True:
        try:
            assert lines(ears) == ["WATCHDOG=1"]
        except BlockingIOError:
            break
        count += 1
    assert count >= 2


@pytest.mark.parametrize("env", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}])
async def test_no_watchdog_is_told_nothing(env: Mapping[str, str], heard: tuple[socket.socket, str]) -> None:
    """None, none that can be read, or one for another process."""
    ears, name = heard
    task = asyncio.ensure_future(ServiceManager({"NOTIFY_SOCKET": name, **env}).keep_alive())
    await asyncio.sleep(0.05)
    assert not task.done()
    assert silent(ears)
    task.cancel()
