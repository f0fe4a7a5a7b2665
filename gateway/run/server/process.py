"""One process's life: start, serve, reload, drain, stop.

A stop (SIGTERM or SIGINT) drains: not ready at once, so that load balancers turn away, and each answer is the last one
on its connection; serve on for `drain.delay`; stop accepting; let requests finish and settle, at most `drain.timeout`;
exit 0. A second signal ends it now: attempts that were cut become `unknown` when their leases lapse, and never run
again.
"""

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop

from gateway.config import Admin, Config, ConfigErrors, Listener, UnixListener, load, redact
from gateway.console import Console, Meter, mount
from gateway.core.client_address import trusted
from gateway.http.request_cycle import Handler
from gateway.observe import logs
from gateway.observe.tracing import MissingTracing
from gateway.operate.admin import AdminPorts, Entrance, Settings, make_admin, start_admin
from gateway.principal import PrincipalError
from gateway.run.server.assembly import assemble
from gateway.run.server.descriptors import affordable, raise_limit
from gateway.run.server.edge import make_limits
from gateway.run.server.gateway import Gateway
from gateway.run.server.listeners import Listeners, open_listeners
from gateway.run.server.reloading import Contexts, Reloading
from gateway.run.server.sockets import ListenError
from gateway.run.server.startup import StartRefused, Unavailable, unfitness, verify
from gateway.run.server.watching import Watched
from gateway.run.server.worker import Worker, orders
from gateway.runtime import collector
from gateway.runtime.sealing import MissingSealing
from gateway.runtime.service_manager import ServiceManager
from gateway.runtime.system import SystemClock
from gateway.tls import TlsError
from gateway.webhook import WebhookListener

MEMORY_TOLD = 5.0
"""Seconds between two readings of the memory gauge."""

GRACE_SLACK = 5.0
"""Seconds beyond the configured drain for the last writes and for exiting."""

QUIET = 1.0
"""Seconds for which a drain waits for the next request on a connection that was just answered."""

EXIT_OK, EXIT_FAILURE, EXIT_UNAVAILABLE, EXIT_CONFIG = 0, 1, 69, 78

_log = logging.getLogger(__name__)


def serve(config_path: Path, *, accept_scope_change: bool, accept_clock: bool, reload_on_change: bool = False) -> int:
    """Run one process until it is told to stop. Returns its exit code; prints mistakes to stderr, never a traceback for
    them.
    """
    read = Watched(lambda: load(config_path, os.environ))
    try:
        config = read()
    except ConfigErrors as errors:
        print(errors, file=sys.stderr)
        return EXIT_CONFIG
    logs.configure("INFO")
    for warning in config.warnings:
        _log.warning("%s", warning)
    process = Process(config, read=read, watch=read if reload_on_change else None, manager=ServiceManager(os.environ))
    return run(process, accept_scope_change=accept_scope_change, accept_clock=accept_clock)


def run(process: "Process", *, accept_scope_change: bool, accept_clock: bool) -> int:
    """Run a process in an event loop of its own. Returns its exit code."""
    raise_limit(process.config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(process.run(accept_scope_change=accept_scope_change, accept_clock=accept_clock))


def _trusts(config: Config) -> Callable[[str], bool]:
    return lambda peer: trusted(peer, config.trusted_proxies)


async def _tell_memory(gateway: Gateway) -> None:
    while True:
        gateway.observer.memory_held(gateway.memory.held)
        await asyncio.sleep(MEMORY_TOLD)


class Process:
    """One process with this configuration. `read` reads it again at a reload, which `watch` calls for by itself; None
    for a worker, whose supervisor sends it, and tells the service manager.
    """

    def __init__(
        self,
        config: Config,
        *,
        read: Callable[[], Config] | None = None,
        watch: Watched[Config] | None = None,
        worker: Worker | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        self.config = config
        self._read = read
        self._watch = watch
        self._manager = manager or ServiceManager({})
        self._worker = worker
        self._stop = asyncio.Event()
        self._draining = False
        self._reloads: set[asyncio.Task[Sequence[str]]] = set()
        self._contexts = Contexts(None, None)
        self._listeners: Listeners | None = None

    async def run(self, *, accept_scope_change: bool, accept_clock: bool) -> int:
        try:
            gateway = assemble(self.config, accept_clock=accept_clock)
            self._contexts = Contexts.of(self.config, private_admin=self._worker is not None)
        except (TlsError, PrincipalError, MissingSealing, MissingTracing) as error:
            _log.error("%s", error)
            return EXIT_CONFIG
        reloading = Reloading(gateway, self._contexts, self._adopted)
        self._watch_signals(reloading)
        try:
            if gateway.link is not None:
                await gateway.link.start()
            if await self._unless_stopped(verify(gateway, accept_scope_change=accept_scope_change)):
                await self._serve(gateway, reloading)
        except Unavailable as error:
            _log.error("%s", error)
            return EXIT_UNAVAILABLE
        except StartRefused as refused:
            for problem in refused.problems:
                _log.error("%s", problem)
            return EXIT_CONFIG
        except (ListenError, OSError) as error:
            _log.error("%s", error)
            return EXIT_UNAVAILABLE
        finally:
            await gateway.close()
        return EXIT_OK

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do `work`, unless the process is told to stop meanwhile. Whether it was done; raises what it raises."""
        working, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({working, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            return False
        working.result()
        return True

    async def _serve(self, gateway: Gateway, reloading: Reloading) -> None:
        loop = asyncio.get_running_loop()
        config, contexts = self.config, self._contexts
        addresses: list[tuple[Listener, Handler, ssl.SSLContext | None]] = [(config.listen, gateway.proxy, contexts.proxy)]
        if config.webhook_listen is not None:
            addresses.append((config.webhook_listen, WebhookListener(gateway.webhooks), None))
        telling: list[tuple[Listener, Handler, ssl.SSLContext | None]] = []
        if config.progress is not None:
            telling.append((config.progress.listen, gateway.progress, None))
        shared, limits = self._worker is not None, make_limits(config, affordable(config))
        listeners = self._listeners = await open_listeners(
            config, addresses, limits, gateway.observer, _trusts(config), memory=gateway.memory, shared=shared, last=telling
        )
        try:
            ports, entrance = self._ports(gateway, reloading), self._entrance(gateway)
            app = make_admin(ports, entrance=entrance)
            if self._worker is not None:
                app.add_routes(orders(reloading, gateway.observer.snapshot))
            else:
                mount(app, self._console(gateway, ports, entrance))
            admin = await start_admin(self._admin().listen, app, contexts.admin)
        except OSError as error:
            listeners.close()
            listeners.close_last()
            raise ListenError(f"cannot listen on {self._admin().listen} (admin.listen): {error.strerror or error}") from error
        running = [
            loop.create_task(work, name=name)
            for name, work in {
                "keeper": gateway.keeper.run(),
                "sweeper": gateway.background.run_sweeper(),
                "reaper": gateway.background.run_reaper(),
                "counter": gateway.background.run_counter(),
                "reconciler": gateway.reconciler.run(),
                "accepted": gateway.accepted_work().run(),
                "memory": _tell_memory(gateway),
                "scopes": gateway.scopes.run(),
                **({} if gateway.tiered is None else {"deletions": gateway.tiered.keep_up()}),
                "parent": self._watch_parent(),
                "manager": self._manager.keep_alive(),
                **({} if self._watch is None else {"watch": self._watch.run(lambda: self._reload(reloading))}),
            }.items()
        ]
        stop = loop.create_task(self._stop.wait(), name="stop")
        collector.settle()
        _log.info("Serving on %s, admin on %s", self.config.listen, self._admin().listen)
        self._manager.ready(f"Serving on {self.config.listen}")
        try:
            done, _ = await asyncio.wait([stop, *running], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                _log.error("The %s ended: %s", task.get_name(), task.exception())
            await self._drain(gateway, listeners)
        finally:
            for task in [stop, *running]:
                task.cancel()
            await asyncio.gather(stop, *running, return_exceptions=True)
            await admin.cleanup()

    # ---- drain

    async def _drain(self, gateway: Gateway, listeners: Listeners) -> None:
        drain, loop = self.config.drain, asyncio.get_running_loop()
        self._draining = True
        self._manager.stopping(drain.delay + drain.timeout + GRACE_SLACK, "Draining")
        _log.info("Draining: serving on for %g s", drain.delay)
        gateway.proxy.close_connections()  # a client that hears of it turns elsewhere with its next request
        gateway.webhooks.close_connections()
        gateway.progress.close_connections()
        await asyncio.sleep(drain.delay)
        deadline = loop.time() + drain.timeout
        listeners.close()
        looking = loop.create_task(gateway.reconciler.close(drain.timeout), name="looks")
        while listeners.connections and loop.time() < deadline:
            listeners.retire(QUIET)
            await asyncio.sleep(0.02)
        cut = listeners.connections
        clean = await gateway.engine.drain(max(0.0, deadline - loop.time()))
        listeners.close_last()
        await listeners.shutdown(1.0)
        await looking
        if clean and not cut:
            _log.info("Drained: nothing was cut")
        elif clean:
            _log.warning("Drained: %d connections were cut after drain.timeout, and every record is settled", cut)
        else:
            _log.warning("Drained: some records could not be settled in time and will become unknown")

    def _watch_signals(self, reloading: Reloading) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload, reloading)

    def _told_to_stop(self) -> None:
        if self._stop.is_set():
            _log.warning("Told to stop twice: stopping now")
            os._exit(EXIT_FAILURE)
        self._stop.set()

    async def _watch_parent(self) -> None:
        """A worker outlives its supervisor by no more than a drain: the pipe that both hold ends when the supervisor
        does.
        """
        if self._worker is None or self._worker.parent is None:
            await asyncio.Event().wait()
            return
        reader = asyncio.StreamReader()
        pipe = os.fdopen(self._worker.parent, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            with contextlib.suppress(OSError):
                await reader.read()
        finally:
            transport.close()  # and with it the pipe: closed by itself, its number would be given out again under the loop's feet
        self._stop.set()

    # ---- admin and reload

    def _admin(self) -> Admin:
        """A worker's own admin listener is private to its supervisor, which asks for the token itself."""
        return self.config.admin if self._worker is None else Admin(UnixListener(self._worker.socket), None)

    def _entrance(self, gateway: Gateway) -> Entrance:
        return (
            Entrance.fixed(None)
            if self._worker is not None
            else Entrance(lambda: Settings.of_config(gateway.config), ended=gateway.authority.approvals)
        )

    def _console(self, gateway: Gateway, ports: AdminPorts, entrance: Entrance) -> Console:
        meter = Meter(SystemClock().boottime)
        return Console(lambda: gateway.config, entrance, gateway.operator, ports.readiness, ports.metrics, meter)

    def _ports(self, gateway: Gateway, reloading: Reloading) -> AdminPorts:
        async def readiness() -> Mapping[str, str | None]:
            draining = "shutting down" if self._draining else None
            return {"postgres": await unfitness(gateway.authority), "scopes": gateway.scopes.problem(), "draining": draining}

        async def config() -> object:
            return redact(gateway.config)

        async def reload() -> Sequence[str]:
            return await self._reload(reloading)

        return AdminPorts(readiness, gateway.observer.exposition, config, reload, gateway.operator)

    async def _reload(self, reloading: Reloading) -> Sequence[str]:
        if self._read is None:
            return ["a worker takes its configuration from its supervisor"]
        self._manager.reloading()
        mistakes = await reloading.reload(self._read)
        self._manager.reloaded(f"Reload refused: {mistakes[0]}" if mistakes else f"Serving on {self.config.listen}")
        return mistakes

    def _told_to_reload(self, reloading: Reloading) -> None:
        if self._read is None:  # a signal for the supervisor that somebody sent to all
            return
        task = asyncio.get_running_loop().create_task(self._reload(reloading), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def _adopted(self, config: Config) -> None:
        if self._listeners is not None:
            self._listeners.reconfigure(config, make_limits(config, affordable(config)), _trusts(config))
