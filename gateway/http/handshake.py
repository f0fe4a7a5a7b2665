"""Clients' connections under TLS, counted from their accept on: who keeps silent in a handshake takes a place like any other."""

import asyncio
import logging
import socket
import ssl
from typing import Protocol

from gateway.http.connection import ClientConnection
from gateway.http.limits import peer_address

AT_ONCE = 64
"""As many connections are accepted before the loop gets to do something else."""

OUT_OF_SOCKETS = 1.0
"""Seconds for which nothing is accepted after the system could not give a socket."""

_log = logging.getLogger(__name__)


class Admission(Protocol):
    """Who counts connections, and makes something of them."""

    def arrive(self, address: str | None) -> bool | None:
        """Count one more. False: it is one too many, and is to be told so. None: it is to be cut, and is not counted."""
        ...

    def depart(self, address: str | None, *, entered: bool) -> None:
        """One that `arrive` counted is gone, and never was a connection."""
        ...

    def connection(self, *, entered: bool) -> ClientConnection:
        """What a connection becomes that `arrive` counted."""
        ...


class SecureServer:
    """Accepts at a listening socket, and has each connection secured within `timeout` seconds of its accept.

    (The loop's own server tells of a connection when its handshake is over, and never of one whose handshake fails.) Closed by `close`;
    handshakes that are under way go on until `abort`.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, admission: Admission, timeout: float) -> None:
        self._sock = sock
        self._context = context
        self._admission = admission
        self._timeout = timeout
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return (self._sock,)

    def start(self) -> None:
        """Begin to accept."""
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._accept)

    @property
    def arriving(self) -> int:
        """How many handshakes are under way."""
        return len(self._handshakes)

    def close(self) -> None:
        """Accept what has come, and no more: what waits in a socket that is closed would be reset."""
        if self._pause is not None:
            self._pause.cancel()
        if self._sock.fileno() >= 0:
            while self._accept():
                pass
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def abort(self) -> None:
        """Cut the handshakes that are under way."""
        for handshake in self._handshakes:
            handshake.cancel()

    def _accept(self) -> bool:
        """Whether there may be more."""
        for _ in range(AT_ONCE):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return False
            except OSError as error:
                _log.error("Cannot accept connections: %s", error.strerror)
                self._loop.remove_reader(self._sock.fileno())
                self._pause = self._loop.call_later(OUT_OF_SOCKETS, self.start)
                return False
            sock.setblocking(False)
            self._accepted(sock, peer_address(peer))
        return True

    def _accepted(self, sock: socket.socket, address: str | None) -> None:
        entered = self._admission.arrive(address)
        if entered is None:
            sock.close()
            return
        handshake = self._loop.create_task(self._secure(sock, address, entered=entered))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _secure(self, sock: socket.socket, address: str | None, *, entered: bool) -> None:
        connection = self._admission.connection(entered=entered)
        try:
            await self._loop.connect_accepted_socket(lambda: connection, sock, ssl=self._context, ssl_handshake_timeout=self._timeout)
        except OSError as error:
            _log.debug("A TLS handshake failed: %s", error)
        finally:
            if not connection.made:  # else it counts itself out
                self._admission.depart(address, entered=entered)
