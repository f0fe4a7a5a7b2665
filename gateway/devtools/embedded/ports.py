"""Free ports of the loopback, of which two processes of ours never choose the same one."""

import fcntl
import functools
import os
import secrets
import socket
import tempfile
from pathlib import Path

LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below the ports that systems hand out to outgoing connections, any of which could take one in the next moment."""

_given: set[int] = set()


def free_port() -> int:
    """A free port of the loopback: another one at each call, and none that another process of ours chose and may yet listen on.

    A program that is not ours may take it before its server does: `launch` tries again.
    """
    if len(_given) > len(PORTS) // 2:
        _given.clear()
    while True:
        port = secrets.choice(PORTS)
        if port not in _given and _claim(port) and _can_bind(port):
            _given.add(port)
            return port


def _claim(port: int) -> bool:
    """Whether the port is this process's choice from now on, until it ends: byte `port` of a file is locked. A child has none of its
    parent's locks, and the file must be opened once: a process loses all of them when it closes any descriptor of it.
    """
    claims = _claims()
    if claims is None:
        return True
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _claims() -> int | None:
    """The file of this user's claims. It has no bytes; a lock needs none. None where it cannot be had: what others chose is not known
    then.
    """
    path = Path(tempfile.gettempdir()) / f"idempotency-gateway-{os.geteuid()}.ports"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
