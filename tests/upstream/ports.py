"""Ports on which nothing answers, each in its own way."""

import contextlib
import socket
from collections.abc import Iterator


def free_port() -> int:
    """A port that refuses connections, for now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def silent_port(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port whose backlog is full: the kernel drops further SYNs, so that connecting hangs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket(family))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            filler = sockets.enter_context(socket.socket(family))
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
