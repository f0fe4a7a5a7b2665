"""Listening sockets."""

import contextlib
import socket
import stat
from pathlib import Path

from gateway.config import Listener, TcpListener, UnixListener

BACKLOG = 2048

KEEPALIVE_AFTER = 60
"""Seconds of silence on a client's connection."""

KEEPALIVE_EVERY = 15

VANISHED_AFTER = 120
"""Seconds in which a client confirms nothing."""


class ListenError(Exception):
    """The process cannot listen on an address; the message says which and why."""


def listen(listener: Listener, *, shared: bool = False) -> socket.socket:
    """A listening socket. `shared`: several processes listen on one port (SO_REUSEPORT). Raises `ListenError`."""
    try:
        match listener:
            case TcpListener(host, port):
                return _listen_tcp(host, port, shared=shared)
            case UnixListener(path):
                return _listen_unix(Path(path))
    except OSError as error:
        raise ListenError(f"cannot listen on {listener}: {error.strerror or error}") from error


def _listen_tcp(host: str, port: int, *, shared: bool) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        _notice_the_vanished(sock)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _notice_the_vanished(sock: socket.socket) -> None:
    """Have the kernel give up on peers that vanished, by a power cut or a lost route. Accepted sockets inherit this.

    The kernel asks a silent peer after `KEEPALIVE_AFTER`. It gives up a peer that confirms neither data nor the
    question within `VANISHED_AFTER`. (Linux asks after two hours, and sends again for a quarter of an hour.)
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_AFTER)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, VANISHED_AFTER * 1000)


def _listen_unix(path: Path) -> socket.socket:
    """A socket file without a listener is replaced; a socket that answers belongs to another process."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
            path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
