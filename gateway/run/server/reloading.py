"""Replaces the configuration in use, between two requests: the process prepares the new one as a whole, then adopts it
or drops it.

A process that runs alone does both at once. A worker prepares when its supervisor says so, and adopts when all its
siblings could prepare, too: so either all workers serve a configuration or none does.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.config import Config, ConfigErrors
from gateway.ports import StoreUnavailable
from gateway.run.server.gateway import Gateway, Prepared
from gateway.tls import TlsError, reload_server_context, server_context

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Contexts:
    """TLS of the two listeners; None where one speaks plain HTTP."""

    proxy: ssl.SSLContext | None
    admin: ssl.SSLContext | None

    @classmethod
    def of(cls, config: Config, *, private_admin: bool) -> "Contexts":
        """A worker's admin listener is its supervisor's own business and has no TLS. Raises `TlsError`."""
        proxy, admin = config.tls, None if private_admin else config.admin.tls
        return cls(None if proxy is None else server_context(proxy), None if admin is None else server_context(admin))

    def renew(self, config: Config) -> None:
        """Use the certificates of now for new connections. Raises `TlsError`."""
        for context, settings in ((self.proxy, config.tls), (self.admin, config.admin.tls)):
            if context is not None and settings is not None:
                reload_server_context(context, settings)


class Reloading:
    """The reloads of one process, one at a time. `adopted` is called with a configuration that has just come into
    force.
    """

    def __init__(self, gateway: Gateway, contexts: Contexts, adopted: Callable[[Config], None]) -> None:
        self._gateway = gateway
        self._contexts = contexts
        self._adopted = adopted
        self._lock = asyncio.Lock()
        self._whole = asyncio.Lock()
        self._prepared: Prepared | None = None

    async def reload(self, read: Callable[[], Config]) -> Sequence[str]:
        """Take over the configuration that `read` gives (or raises `ConfigErrors`). Returns the mistakes that kept the
        old one in use.
        """
        async with self._whole:  # a signal and a command may come together: neither takes what the other has prepared
            mistakes = await self.prepare(read)
            if mistakes:
                await self.abandon()
            else:
                mistakes = await self.adopt()
        for mistake in mistakes:
            _log.error("Reload refused: %s", mistake)
        return mistakes

    async def prepare(self, read: Callable[[], Config]) -> Sequence[str]:
        """Make all ready that another configuration needs. Returns what speaks against it. What was prepared before is
        dropped.
        """
        async with self._lock:
            await self._drop()
            try:
                config = read()
                Contexts.of(config, private_admin=self._contexts.admin is None)
                prepared = await self._gateway.prepare(config)
                if not isinstance(prepared, Prepared):
                    return prepared
                self._prepared = prepared
            except ConfigErrors as errors:
                return str(errors).splitlines()
            except TlsError as error:
                return [str(error)]
            except StoreUnavailable as error:
                return [f"the registry of scopes cannot be asked: {error}"]
            except Exception as error:  # a defect of ours must not leave the metric saying that all is well
                _log.exception("Reload failed")
                return [f"a defect of the gateway: {type(error).__name__}"]
            return []

    async def adopt(self) -> Sequence[str]:
        """Put the prepared configuration into force. Returns why it cannot; then nothing has changed."""
        async with self._lock:
            prepared, self._prepared = self._prepared, None
            if prepared is None:
                return ["nothing was prepared"]
            try:
                self._contexts.renew(prepared.config)
            except TlsError as error:
                await self._gateway.discard(prepared)
                self._gateway.observer.reloaded(successful=False)
                return [str(error)]
            self._gateway.adopt(prepared)
            self._adopted(prepared.config)
            self._gateway.observer.reloaded(successful=True)
            _log.info("Reloaded the configuration")
            return []

    async def abandon(self) -> None:
        """A worker refused the configuration: it is dropped, which the metrics show."""
        async with self._lock:
            await self._drop()
            self._gateway.observer.reloaded(successful=False)

    async def _drop(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            await self._gateway.discard(prepared)
