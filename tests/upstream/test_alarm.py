import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from gateway.runtime.alarm import Alarm


class Bell:
    """An alarm, and the instants at which it rang."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rang: list[float] = []
        self.alarm = Alarm(self.loop, lambda: self.rang.append(self.loop.time()))
        self.start = self.loop.time()

    def set(self, seconds: float) -> float:
        due = self.loop.time() + seconds
        self.alarm.set(due)
        return due


async def test_it_rings_once_at_its_time() -> None:
    """Not before, and not again."""
    bell = Bell()
    due = bell.set(0.02)
    await asyncio.sleep(0.1)
    assert len(bell.rang) == 1
    assert bell.rang[0] >= due - 0.002  # the loops round to milliseconds


async def test_moved_later_it_rings_later() -> None:
    """The loop's timer fires early, and is put to the new instant."""
    bell = Bell()
    bell.set(0.01)
    due = bell.set(0.1)
    await asyncio.sleep(0.2)
    assert len(bell.rang) == 1
    assert bell.rang[0] >= due - 0.002


async def test_moved_sooner_it_rings_sooner() -> None:
    """Well before the first instant, which then is silent."""
    bell = Bell()
    bell.set(60)
    bell.set(0.01)
    await asyncio.sleep(0.1)
    assert len(bell.rang) == 1


async def test_silenced_it_does_not_ring_until_set_again() -> None:
    """Also when the loop's timer was still on its way."""
    bell = Bell()
    bell.set(0.01)
    bell.alarm.set(None)
    await asyncio.sleep(0.05)
    assert bell.rang == []
    bell.set(0.01)
    await asyncio.sleep(0.1)
    assert len(bell.rang) == 1


async def test_stopped_it_never_rings_again() -> None:
    """Setting it has no effect any more."""
    bell = Bell()
    bell.set(0.01)
    bell.alarm.stop()
    bell.set(0.01)
    await asyncio.sleep(0.05)
    assert bell.rang == []


FROZEN = """
import asyncio, socket, sys
import uvloop
from gateway.runtime.alarm import Alarm

async def main(given: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    came = loop.create_future()
    alarm = Alarm(loop, lambda: came.set_result("the bell"))

    def take() -> None:
        alarm.set(None)
        loop.remove_reader(given)
        came.set_result(given.recv(100).decode())

    def tick() -> None:
        loop.call_later(0.1, tick)

    tick()  # a busy process has other timers
    loop.add_reader(given, take)
    alarm.set(loop.time() + float(sys.argv[2]))
    print("armed", flush=True)
    print(await came, flush=True)

runner = asyncio.run if sys.argv[1] == "asyncio" else uvloop.run
runner(main(socket.socket(fileno=int(sys.argv[3]))))
"""
PATIENCE = 3.0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_is_there_when_a_frozen_process_wakes_is_taken_before_the_bell(loop: str) -> None:
    """Its wait for sockets ends with nothing, and its timers are due: an answer in the socket was once thrown away as a timeout."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-c", FROZEN, loop, str(PATIENCE), str(theirs.fileno())]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()])
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"armed\n"
            child.send_signal(signal.SIGSTOP)
            os.waitpid(child.pid, os.WUNTRACED)
            ours.send(b"the answer")
            time.sleep(PATIENCE + 0.5)
            child.send_signal(signal.SIGCONT)
            assert child.stdout.readline() == b"the answer\n"


async def test_set_anew_within_the_last_look_it_rings_at_the_new_time() -> None:
    """Nothing of the look before is left: the new time has one of its own."""
    bell = Bell()
    bell.set(0.01)
    time.sleep(0.02)  # noqa: ASYNC251 - overdue when the loop runs again
    await asyncio.sleep(0.001)
    due = bell.set(0.05)
    await asyncio.sleep(0.15)
    assert len(bell.rang) == 1
    assert bell.rang[0] >= due - 0.002
