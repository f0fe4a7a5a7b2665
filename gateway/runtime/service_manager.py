"""What systemd is told of a service of `Type=notify`: ready, reloading, stopping, alive. Without systemd nothing is told.

The protocol is sd_notify(3): lines of text in one datagram to the socket that `NOTIFY_SOCKET` names.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping

SOCKET, WATCHDOG = "NOTIFY_SOCKET", "WATCHDOG_USEC"
VARIABLES = frozenset({SOCKET, WATCHDOG, "WATCHDOG_PID"})
"""What speaks to the main process alone: its children do not get it."""


class ServiceManager:
    """The manager that `env` names, or none. Nothing here waits, and nothing raises: a manager that does not listen is not our fault."""

    def __init__(self, env: Mapping[str, str]) -> None:
        address = env.get(SOCKET, "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._ready = False
        self._watchdog = _seconds(env)

    def ready(self, status: str) -> None:
        """The service serves; `status` is for people."""
        self._ready = True
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload begins; `reloaded` ends it."""
        if self._ready:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=Reloading the configuration")

    def reloaded(self, status: str) -> None:
        """The service serves as before, with whichever configuration."""
        if self._ready:
            self._tell("READY=1", f"STATUS={status}")

    def stopping(self, seconds: float, status: str) -> None:
        """The service ends by itself within `seconds`, which the manager waits although its own timeout may be shorter."""
        self._tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}", f"STATUS={status}")

    async def keep_alive(self) -> None:
        """Tell the watchdog, where there is one, that the event loop turns. Runs until it is cancelled."""
        if self._watchdog is None:
            await asyncio.Event().wait()
            return
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / 3)

    def _tell(self, *lines: str) -> None:
        if self._address:
            self._send("\n".join(line.replace("\n", " ") for line in lines))

    def _send(self, text: str) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.setblocking(False)
            channel.sendto(text.encode(errors="replace"), self._address)


def _seconds(env: Mapping[str, str]) -> float | None:
    """The watchdog's interval, if it is for this process."""
    pid, text = env.get("WATCHDOG_PID"), env.get(WATCHDOG, "")
    meant = pid is None or pid == str(os.getpid())
    return int(text) / 1_000_000 if meant and text.isascii() and text.isdigit() and int(text) > 0 else None
