"""A client's connection without a socket, for what is asked of one request."""

import asyncio
from collections.abc import Callable
from typing import cast

from gateway.ports import Tunnel


class Wire:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False


class Connected:
    """A client's connection that is there."""

    address, secure, half_closed, upgradable, certificate_subject, writing_paused = "192.0.2.1", False, False, False, None, False

    def __init__(self) -> None:
        self.wire = Wire()

    @property
    def transport(self) -> asyncio.Transport:
        return cast("asyncio.Transport", self.wire)

    def write(self, data: bytes) -> None:
        self.wire.write(data)

    def write_whole(self, data: bytes) -> None:
        self.wire.write(data)

    async def drain(self) -> None: ...

    def on_lost(self, callback: Callable[[], object], *, streaming: bool = False) -> Callable[[], None]:
        return lambda: None

    def take_over(self) -> Tunnel:
        raise AssertionError("it asks for no other protocol")
