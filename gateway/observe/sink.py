"""Writing to a standard stream without ever waiting for its reader.

A stream that we were given may be shared with a shell or with other workers, so its O_NONBLOCK flag is not ours to set. Pipes,
terminals and other devices are therefore opened anew, with a flag of our own; sockets take one per call; files never make one wait.
"""

import os
import select
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

CHUNK = select.PIPE_BUF
"""The most bytes that a pipe takes whole or not at all: larger writes of several workers into one pipe would interleave."""


@dataclass(frozen=True, slots=True)
class Sink:
    """`write` takes at most CHUNK bytes and returns how many were taken, 0 if it would have to wait. Raises OSError.

    `close` leaves the stream itself open; it may be called once.
    """

    write: Callable[[bytes], int]
    close: Callable[[], None]


def open_sink(fd: int) -> Sink:
    """A way to write to `fd`, which stays open and keeps its flags."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return Sink(partial(os.write, fd), lambda: None)
    if stat.S_ISSOCK(mode):
        connected = socket.socket(fileno=os.dup(fd))
        return Sink(lambda data: _sent(connected, data), connected.close)
    try:
        own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        # The stream belongs to another user, or its reader is gone, or there is no /proc.
        return polled_sink(fd)
    return Sink(partial(_written, own), partial(os.close, own))


def _written(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0


def _sent(connected: socket.socket, data: bytes) -> int:
    try:
        return connected.send(data, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0


def polled_sink(fd: int) -> Sink:
    """For a stream that cannot be opened anew.

    A pipe that polls as writable takes a chunk without waiting, unless another worker fills it in between.
    """
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return Sink(lambda data: os.write(fd, data) if poll.poll(0) else 0, lambda: None)
