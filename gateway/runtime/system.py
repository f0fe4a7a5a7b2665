"""The operating system's clock and randomness, as the ports want them."""

import asyncio
import os
import time
from email.utils import formatdate
from functools import partial


class SystemClock:
    """CLOCK_BOOTTIME, the event loop's sleep, and a date that is rendered once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._date = b""

    boottime = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))  # no frame of ours: read a dozen times a request

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def http_date(self) -> bytes:
        second = int(time.time())  # noqa: TID251 - Date is wall-clock time by definition (RFC 9110 section 6.6.1)
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._date


class SystemRandomness:
    """Tokens from the kernel's generator, fetched in blocks; the jitter needs no secrecy and comes from the same bytes."""

    def __init__(self) -> None:
        os.register_at_fork(after_in_child=self._forget)
        self._block = b""
        self._used = 0

    def token(self) -> bytes:
        if self._used >= len(self._block):
            self._block, self._used = os.urandom(4096), 0
        token = self._block[self._used : self._used + 16]
        self._used += 16
        return token

    def _forget(self) -> None:
        """A forked process must never repeat its parent's tokens."""
        self._block = b""

    def jitter(self) -> float:
        return int.from_bytes(self.token()[:7], "big") / (1 << 56)
