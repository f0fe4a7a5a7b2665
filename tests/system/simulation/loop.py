"""An event loop without a world: time is virtual, and what is ready runs in an order drawn from a seed.

No sockets, no threads, no clock of the machine. Callbacks belong to *processes*: one can be frozen (its callbacks wait, while time goes
on for everybody else) or crash (none of its callbacks ever runs again, whatever `finally` they were in).
"""

import asyncio
import contextvars
import enum
import heapq
import itertools
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OUTSIDE = contextvars.Context()
"""Where callbacks run that belong to no process: stores, the upstream, clients, time itself."""


class Life(enum.Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    CRASHED = "crashed"


class Process:
    """A set of tasks that live, stand still and die together. `on_step` is called before each of its steps."""

    def __init__(self, loop: "SimulatedLoop", name: str, on_step: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.life = Life.RUNNING
        self._loop = loop
        self._on_step = on_step
        self._parked: list[asyncio.Handle] = []

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `work` as a task of this process."""
        context = Context()
        context.run(_PROCESS.set, self)
        return self._loop.create_task(work, context=context)

    def freeze(self) -> None:
        if self.life is Life.RUNNING:
            self.life = Life.FROZEN

    def thaw(self) -> None:
        if self.life is Life.FROZEN:
            self.life = Life.RUNNING
            for handle in self._parked:
                self._loop.put_back(self, handle)
            self._parked.clear()

    def crash(self) -> None:
        self.life = Life.CRASHED
        self._parked.clear()

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether `handle` may run now. Keeps it for later in a frozen process, drops it in a crashed one."""
        if self.life is Life.RUNNING:
            self._on_step()
        match self.life:
            case Life.RUNNING:
                return True
            case Life.FROZEN:
                self._parked.append(handle)
                return False
            case Life.CRASHED:
                return False


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Deterministic for a given `random`: one thread, no I/O, no dependence on the addresses of objects."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now = 0.0
        self._pool: list[tuple[Process | None, asyncio.Handle]] = []
        self._timers: list[tuple[float, int, Process | None, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._made: list[tuple[Process | None, asyncio.Task[Any]]] = []
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._pool.append((_PROCESS.get() if context is None else context.get(_PROCESS), handle))
        return handle

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        heapq.heappush(self._timers, (when, next(self._numbers), process, handle))
        return handle

    def outside(self, delay: float, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call `callback` after `delay` virtual seconds, whatever becomes of the process that asks for it."""
        self.call_at(self._now + delay, callback, *args, context=OUTSIDE)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        task = super().create_task(coro, **options)
        context: Context | None = options.get("context")
        self._made.append((_PROCESS.get() if context is None else context.get(_PROCESS), task))
        return task

    def tasks_of(self, process: Process) -> "list[asyncio.Task[Any]]":
        """The tasks of a process that have not ended."""
        return [task for owner, task in self._made if owner is process and not task.done()]

    def put_back(self, process: Process, handle: asyncio.Handle) -> None:
        self._pool.append((process, handle))

    def _asyncgen_finalizer_hook(self, _: object) -> None:
        """Collected generators are let go. To close them, as asyncio does, would make a schedule depend on when memory is collected."""

    def _run_once(self) -> None:
        """One callback: any of those that are ready, else time passes to the next timer."""
        pool = self._pool
        if not pool:
            self._pass_time()
            return
        chosen = int(self._random.random() * len(pool))
        process, handle = pool[chosen]
        pool[chosen] = pool[-1]
        pool.pop()
        if not handle.cancelled() and (process is None or process.admits(handle)):
            handle._run()

    def _pass_time(self) -> None:
        timers = self._timers
        if not timers:
            raise RuntimeError("nothing will ever happen again")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            _, _, process, handle = heapq.heappop(timers)
            if not handle.cancelled():
                self._pool.append((process, handle))

    def dispose(self) -> None:
        """End everything that is left, in silence: tasks of crashed processes would say so much when they are collected."""
        self.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _, task in self._made:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined] # an asyncio.Task of both makes has it; typeshed does not say
                    with suppress(BaseException):
                        task.get_coro().close()
            self._made.clear()
            self._pool.clear()
            self._timers.clear()
