"""One worker's place: a process is started in it, watched, and replaced when it ends."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.run.server.handover import memory_file
from gateway.run.server.worker import CONFIG_FD
from gateway.run.supervisor import control

READY_POLL_SECONDS = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses before a worker is started again: doubled from `first` up to `longest`, anew after one that lived `reset_after`. Seconds."""

    first: float = 0.1
    longest: float = 10.0
    reset_after: float = 30.0

    def pause(self, failures: int) -> float:
        """The pause after this many short lives in a row, the present one not counted."""
        return min(self.longest, self.first * 2.0 ** min(failures, 32))


@dataclass(frozen=True, slots=True)
class Launch:
    """How workers are started. `parent_fd` is the pipe whose end tells them that the supervisor is gone, `snapshot` the configuration.

    `ready` is called with the socket and the pid of one that has become ready, `ended` with pid and return code when one has ended, before
    it is started again.
    """

    command: Callable[[], Sequence[str]]
    environment: Mapping[str, str]
    parent_fd: int
    backoff: Backoff
    snapshot: Callable[[], bytes]
    ready: Callable[[Path, int], Awaitable[None]]
    ended: Callable[[int, int], None]


class Slot:
    """Keeps one worker running until `stop`."""

    def __init__(self, index: int, launch: Launch, socket: Path) -> None:
        self.index = index
        self.socket = socket
        self._launch = launch
        self._process: asyncio.subprocess.Process | None = None
        self._started = False
        self._outdated = False
        self._stopping = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether there is a process now."""
        return self._process is not None

    @property
    def started(self) -> bool:
        """Whether the present process has been ready."""
        return self._started

    async def keep(self) -> None:
        """Start workers, one after the other, until `stop`; returns when the last one has ended."""
        failures = 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            outcome = await self._live()
            if self._stopping.is_set():
                return
            lived = time.monotonic() - begun
            if lived >= self._launch.backoff.reset_after:
                failures = 0
            pause = self._launch.backoff.pause(failures)
            failures += 1
            fields = {"worker": self.index, "outcome": outcome, "lived_seconds": round(lived, 3), "restart_in_seconds": pause}
            _log.error("A worker ended; it will be started again", extra=fields)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    def stop(self) -> None:
        """Start nothing more, and have the present worker drain. Further calls do nothing: a second signal would end it at once."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def replace(self) -> None:
        """Have the present worker drain, and start another one with the snapshot of now. So, too, one that is just being started."""
        self._outdated = True
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _live(self) -> str:
        """One process from start to end; returns how it ended, for people."""
        self.socket.unlink(missing_ok=True)
        self._outdated = False
        try:
            process = await self._spawn()
        except OSError as error:
            return f"could not be started: {error.strerror}"
        self._process = process
        if self._stopping.is_set() or self._outdated:
            self._signal(signal.SIGTERM)
        starting = asyncio.get_running_loop().create_task(self._see_started(process.pid), name=f"worker-{self.index}-starting")
        try:
            code = await process.wait()
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            self._process, self._started = None, False
        self._launch.ended(process.pid, code)
        return _describe(code)

    async def _spawn(self) -> asyncio.subprocess.Process:
        """In a session of its own: a Ctrl-C in the terminal is for the supervisor, which passes it on once."""
        snapshot = memory_file(self._launch.snapshot())
        environment = {
            **self._launch.environment,
            "GATEWAY_WORKER": str(self.index),
            "GATEWAY_WORKER_SOCKET": str(self.socket),
            "GATEWAY_WORKER_PARENT_FD": str(self._launch.parent_fd),
            CONFIG_FD: str(snapshot),
        }
        try:
            return await asyncio.create_subprocess_exec(
                *self._launch.command(),
                stdin=asyncio.subprocess.DEVNULL,
                env=environment,
                pass_fds=(self._launch.parent_fd, snapshot),
                start_new_session=True,
            )
        finally:
            os.close(snapshot)

    async def _see_started(self, pid: int) -> None:
        while True:
            with contextlib.suppress(control.Unreachable):
                if not await control.failing_checks(self.socket):
                    break
            await asyncio.sleep(READY_POLL_SECONDS)
        await self._launch.ready(self.socket, pid)
        self._started = True
        _log.info("A worker is ready", extra={"worker": self.index, "pid": pid})


def _describe(code: int) -> str:
    """A return code in words. Negative ones are signals, as in `subprocess`."""
    if code >= 0:
        return f"exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    core = " (killed, perhaps for want of memory)" if -code == signal.SIGKILL else ""
    return f"signal {name}{core}"
