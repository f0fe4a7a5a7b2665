"""All workers together: started, watched, stopped, and asked as if they were one."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aiohttp import web

from gateway.admin import AdminPorts
from gateway.observe.metrics import MULTIPROCESS_DIR
from gateway.supervisor import control
from gateway.supervisor.merged import MergedMetrics
from gateway.supervisor.slot import Backoff, Launch, Slot

_HOPELESS = frozenset({69, 78})
"""Exit statuses of a start that would fail again: a service is unavailable, the configuration is bad."""

_log = logging.getLogger(__name__)


class Fleet:
    """`workers` processes of `command`. `directory` is an empty, private folder for their sockets and metrics.

    `first` are arguments that a worker gets only until one has been ready. `grace` is how long, in seconds, draining may take before
    what is left is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        directory: Path,
        *,
        grace: float,
        first: Sequence[str] = (),
        backoff: Backoff | None = None,
        environment: Mapping[str, str] | None = None,
        on_reload: Callable[[], None] = lambda: None,
    ) -> None:
        metrics = directory / "metrics"
        metrics.mkdir()
        self.metrics = MergedMetrics(metrics)
        self._command = tuple(command)
        self._first = tuple(first)
        self._grace = grace
        self._on_reload = on_reload
        # The workers' end stays open here too, for those started later; ours is closed by nobody but the kernel.
        self._pipe = os.pipe()
        environment = {**(os.environ if environment is None else environment), MULTIPROCESS_DIR: str(metrics)}
        launch = Launch(self._next_command, environment, self._pipe[0], backoff or Backoff(), self._worker_ready, self._worker_ended)
        self._slots = [Slot(index, launch, directory / f"worker-{index}.sock") for index in range(workers)]
        self._over = asyncio.Event()
        self._now = asyncio.Event()
        self._ever_ready = False
        self._code = 0

    @property
    def ports(self) -> AdminPorts:
        """The fleet as the admin listener sees it."""
        return AdminPorts(self.readiness, self.exposition, self.config, self.reload)

    # ---- life

    async def run(self) -> int:
        """Run until a signal ends it, or until starting turns out to be of no use; returns the exit status.

        SIGTERM and SIGINT drain: 0. A second one kills the workers: 1, as does draining that outlasts `grace`. SIGHUP is passed on.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._pass_on_reload)
        keepers = [loop.create_task(slot.keep(), name=f"worker-{slot.index}") for slot in self._slots]
        over = loop.create_task(self._over.wait())
        try:
            # A keeper that ends by itself has failed: its error comes out of the drain.
            await asyncio.wait({over, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            return await self._drain(keepers)
        finally:
            over.cancel()
            for slot in self._slots:
                slot.kill()
            await asyncio.gather(*keepers, return_exceptions=True)
            for end in self._pipe:
                os.close(end)

    async def _drain(self, keepers: Sequence["asyncio.Task[None]"]) -> int:
        for slot in self._slots:
            slot.stop()
        drained = asyncio.gather(*keepers)
        drained.add_done_callback(lambda _: self._now.set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._now.wait(), self._grace)
        in_time = drained.done()
        if not in_time:
            _log.warning("Workers are still busy and are killed", extra={"workers": [slot.index for slot in self._slots if slot.running]})
            for slot in self._slots:
                slot.kill()
        await drained
        return self._code if in_time else self._code or 1

    def _stop(self) -> None:
        if self._over.is_set():
            self._now.set()
        self._over.set()

    def _pass_on_reload(self) -> None:
        self._on_reload()
        for slot in self._slots:
            slot.reload()

    def _next_command(self) -> Sequence[str]:
        return self._command if self._ever_ready else (*self._command, *self._first)

    def _worker_ready(self) -> None:
        self._ever_ready = True

    def _worker_ended(self, pid: int, code: int) -> None:
        self.metrics.bury(pid)
        if self._over.is_set():
            return
        if code in _HOPELESS and not self._ever_ready:
            _log.error("No worker can start", extra={"exit_status": code})
            self._code = code
            self._over.set()
            for slot in self._slots:
                slot.stop()
        else:
            self.metrics.restarts += 1

    # ---- as one

    async def readiness(self) -> Mapping[str, str | None]:
        """Ready when a worker is, and none that takes requests is not. One that is starting takes none and does not count."""
        checks: dict[str, str | None] = {"draining": "the gateway is stopping" if self._over.is_set() else None}
        started = [slot for slot in self._slots if slot.started]
        states = await asyncio.gather(*(_state(slot) for slot in started))
        checks["workers"] = None if None in states else "none is ready"
        checks.update((f"worker {slot.index}", state) for slot, state in zip(started, states, strict=True))
        return checks

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All workers' metrics as one. Safe to call from any thread."""
        self.metrics.running = sum(slot.running for slot in self._slots)
        return self.metrics.exposition(accept)

    async def config(self) -> object:
        """The configuration that the first worker to answer uses. Raises aiohttp's 503 when none answers."""
        for slot in self._slots:
            if slot.started:
                with contextlib.suppress(control.Unreachable):
                    return await control.config(slot.socket)
        raise web.HTTPServiceUnavailable

    async def reload(self) -> Sequence[str]:
        """Every worker reads the configuration again. Returns the mistakes: as they are if all workers agree, else each with its worker."""
        started = [slot for slot in self._slots if slot.started]
        if not started:
            return ["no worker is ready; each reads the configuration when it starts"]
        for slot in self._slots:
            if not slot.started:
                slot.reload()
        results = await asyncio.gather(*(_reload(slot) for slot in started))
        if not any(results):
            self._on_reload()
        if len(set(results)) == 1:
            return results[0]
        return [f"worker {slot.index}: {mistake}" for slot, result in zip(started, results, strict=True) for mistake in result]


async def _state(slot: Slot) -> str | None:
    try:
        failing = await control.failing_checks(slot.socket)
    except control.Unreachable as error:
        return f"does not answer: {error}"
    return "; ".join(f"{name}: {text}" for name, text in failing.items()) or None


async def _reload(slot: Slot) -> tuple[str, ...]:
    try:
        return await control.reload(slot.socket)
    except control.Unreachable as error:
        return (f"does not answer: {error}",)
