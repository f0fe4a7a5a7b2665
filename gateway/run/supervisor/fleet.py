"""All workers together: started, watched, stopped, and asked as if they were one."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from gateway.operate.admin import AdminPorts
from gateway.run.supervisor import control
from gateway.run.supervisor.merged import MergedMetrics
from gateway.run.supervisor.slot import Backoff, Launch, Slot
from gateway.runtime.service_manager import ServiceManager

_HOPELESS = frozenset({69, 78})
"""Exit statuses of a start that would fail again: a service is unavailable, the configuration is bad."""

_log = logging.getLogger(__name__)


class Candidate(Protocol):
    """A configuration that was read and may come into force."""

    def pack(self) -> bytes:
        """For workers."""
        ...


C = TypeVar("C", bound=Candidate)


class Source(Protocol[C]):
    """Where configurations come from."""

    @property
    def accepted(self) -> C:
        """The one in force."""
        ...

    def read(self) -> C | list[str]:
        """Read another one, or say what is wrong with it."""
        ...

    def accept(self, candidate: C) -> None:
        """It is in force from now on."""
        ...


class Fleet(Generic[C]):
    """`workers` processes of `command`, each with the configuration that `source` has accepted. `directory` is an empty, private folder for
    their sockets.

    `first` are arguments that a worker gets only until one has been ready. `grace` is how long, in seconds, draining may take before
    what is left is killed. `manager` is told that the fleet is ready once all workers are.
    """

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        directory: Path,
        source: Source[C],
        *,
        grace: float,
        first: Sequence[str] = (),
        backoff: Backoff | None = None,
        environment: Mapping[str, str] | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        self.metrics = MergedMetrics()
        self._source = source
        self._command = tuple(command)
        self._first = tuple(first)
        self._grace = grace
        self._manager = manager or ServiceManager({})
        # The workers' end stays open here too, for those started later; only the kernel closes ours.
        self._pipe = os.pipe()
        launch = Launch(
            self._next_command,
            os.environ if environment is None else environment,
            self._pipe[0],
            backoff or Backoff(),
            self._snapshot,
            self._worker_ready,
            self._worker_ended,
        )
        self._slots = [Slot(index, launch, directory / f"worker-{index}.sock") for index in range(workers)]
        self._over = asyncio.Event()
        self._now = asyncio.Event()
        self._ever_ready = False
        self._code = 0
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[Sequence[str]]] = set()
        self._loop = asyncio.get_running_loop()

    def ports(self, config: Callable[[], Awaitable[object]]) -> AdminPorts:
        """The fleet as the admin listener sees it. `config` shows the configuration in force."""
        return AdminPorts(self.readiness, self.exposition, config, self.reload)

    # ---- life

    async def run(self) -> int:
        """Run until a signal ends it, or until starting turns out to be of no use; returns the exit status.

        SIGTERM and SIGINT drain: 0. A second one kills the workers: 1, as does draining that outlasts `grace`. SIGHUP reloads.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload)
        keepers = [loop.create_task(slot.keep(), name=f"worker-{slot.index}") for slot in self._slots]
        over = loop.create_task(self._over.wait())
        alive = loop.create_task(self._manager.keep_alive())
        try:
            # A keeper that ends by itself has failed: its error comes out of the drain.
            await asyncio.wait({over, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            return await self._drain(keepers)
        finally:
            over.cancel()
            alive.cancel()
            for slot in self._slots:
                slot.kill()
            await asyncio.gather(*keepers, return_exceptions=True)
            for end in self._pipe:
                os.close(end)

    async def _drain(self, keepers: Sequence["asyncio.Task[None]"]) -> int:
        self._manager.stopping(self._grace, "Draining")
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

    def _told_to_reload(self) -> None:
        task = self._loop.create_task(self.reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def _snapshot(self) -> bytes:
        return self._source.accepted.pack()

    def _next_command(self) -> Sequence[str]:
        return self._command if self._ever_ready else (*self._command, *self._first)

    async def _worker_ready(self, socket: Path, pid: int) -> None:
        self._ever_ready = True
        self.metrics.welcome(pid)
        await self._hear(socket)
        if all(slot.started or slot.socket == socket for slot in self._slots):
            self._manager.ready(self._serving())

    def _serving(self) -> str:
        return f"{len(self._slots)} workers serve"

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
        """Ready when all workers are: with one that keeps ending, or does not start, others should be asked."""
        checks: dict[str, str | None] = {"draining": "the gateway is stopping" if self._over.is_set() else None}
        started = [slot for slot in self._slots if slot.started]
        states = await asyncio.gather(*(_state(slot) for slot in started))
        serving = states.count(None)
        checks["workers"] = None if serving == len(self._slots) else f"{serving} of {len(self._slots)} serve"
        checks.update((f"worker {slot.index}", state) for slot, state in zip(started, states, strict=True))
        return checks

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All workers' metrics as one, in the format that `accept` asks for. For any thread but the loop's, which asks the workers."""
        asyncio.run_coroutine_threadsafe(self._hear_all(), self._loop).result()
        self.metrics.running = sum(slot.running for slot in self._slots)
        return self.metrics.exposition(accept)

    async def _hear_all(self) -> None:
        await asyncio.gather(*(self._hear(slot.socket) for slot in self._slots if slot.started))

    async def _hear(self, socket: Path) -> None:
        """Take in what a worker counts. Of one that does not answer, what it told before stands."""
        with contextlib.suppress(control.Unreachable):
            self.metrics.told(await control.metrics(socket))

    async def reload(self) -> Sequence[str]:
        """Read the configuration again. Every worker adopts it, or none does and the mistakes are returned: as they are if all workers
        agree, else each with its worker.
        """
        self._manager.reloading()
        mistakes = await self._reload()
        self._manager.reloaded(f"Reload refused: {mistakes[0]}" if mistakes else self._serving())
        return mistakes

    async def _reload(self) -> Sequence[str]:
        async with self._reloading:
            candidate = self._source.read()
            started = [slot for slot in self._slots if slot.started]
            mistakes = (
                candidate if isinstance(candidate, list) else await _of_all(started, partial(control.prepare, packed=candidate.pack()))
            )
            if isinstance(candidate, list) or mistakes:
                await _of_all(started, _abandon)
                for mistake in mistakes:
                    _log.error("Reload refused: %s", mistake)
                return mistakes
            self._source.accept(candidate)
            # From here on a worker that starts gets the new one. A worker that began before, or does not adopt it, is replaced.
            for slot in self._slots:
                if slot not in started or await _adopt(slot):
                    slot.replace()
            _log.info("Reloaded the configuration")
            return []


Order: TypeAlias = Callable[[Path], Awaitable[tuple[str, ...]]]


async def _of_all(slots: Sequence[Slot], order: Order) -> list[str]:
    """What workers say to an order, joined."""

    async def one(slot: Slot) -> tuple[str, ...]:
        try:
            return await order(slot.socket)
        except control.Unreachable as error:
            return (f"does not answer: {error}",)

    results = await asyncio.gather(*(one(slot) for slot in slots))
    if len(set(results)) == 1:
        return list(results[0])
    return [f"worker {slot.index}: {mistake}" for slot, result in zip(slots, results, strict=True) for mistake in result]


async def _abandon(socket: Path) -> tuple[str, ...]:
    await control.abandon(socket)
    return ()


async def _adopt(slot: Slot) -> list[str]:
    """Have a worker adopt what it prepared. Returns, and logs, what went wrong."""
    mistakes = await _of_all([slot], control.adopt)
    for mistake in mistakes:
        _log.error("A worker could not adopt the configuration, and is replaced: %s", mistake, extra={"worker": slot.index})
    return mistakes


async def _state(slot: Slot) -> str | None:
    try:
        failing = await control.failing_checks(slot.socket)
    except control.Unreachable as error:
        return f"does not answer: {error}"
    return "; ".join(f"{name}: {text}" for name, text in failing.items()) or None
