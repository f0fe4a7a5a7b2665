"""Reloads when a file has changed that the configuration was read from: the file itself, a secret, a certificate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from gateway.runtime.local_files import Stamp, recording, stamp_of

INTERVAL = 1.0
"""Seconds between two looks at the files."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Watched(Generic[T]):
    """What `read` reads, and which files it took, as they were then. A reading that fails counts, too, with the files of the one before."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._stamps: dict[str, Stamp | None] = {}

    def __call__(self) -> T:
        with recording() as stamps:
            try:
                result = self._read()
            except BaseException:
                self._stamps |= stamps
                raise
        self._stamps = stamps
        return result

    async def run(self, reload: Callable[[], Awaitable[object]], interval: float = INTERVAL) -> None:
        """Call `reload`, which reads again, whenever a file is another than the one that was read. Runs until it is cancelled.

        It waits until two looks agree: who renews a certificate writes its key a moment later.
        """
        before = self._now()
        while True:
            await asyncio.sleep(interval)
            now = self._now()
            if now == before and now != self._stamps:
                await self._reload(reload, now)
            before = self._now()

    async def _reload(self, reload: Callable[[], Awaitable[object]], now: Mapping[str, Stamp | None]) -> None:
        old = dict(self._stamps)
        _log.info("Files of the configuration have changed", extra={"files": [name for name in now if now[name] != old[name]]})
        try:
            await reload()
        except Exception:  # a defect of ours must not end the watch, nor the process with it
            _log.exception("Reload failed")
        # A reading that fails early leaves files unread: they are no reason to try again until another change.
        self._stamps |= {name: stamp for name, stamp in now.items() if name in self._stamps and self._stamps[name] == old[name]}

    def _now(self) -> dict[str, Stamp | None]:
        return {name: stamp_of(name) for name in self._stamps}
