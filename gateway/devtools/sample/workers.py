"""A listening socket whose worker process may be killed: connections wait in it until the next one takes over."""

import os
import signal
import socket
import traceback
from collections.abc import Callable


def supervise(port: int, work: Callable[[socket.socket], None]) -> int:
    """Run `work` in a child process, again whenever it was killed, until SIGINT or SIGTERM. Returns the exit code. Raises OSError if the
    port cannot be listened on.
    """
    with socket.create_server(("127.0.0.1", port), backlog=128) as listening:
        stopping = False
        child = 0

        def stop(*_: object) -> None:
            nonlocal stopping
            stopping = True
            if child:
                os.kill(child, signal.SIGTERM)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        while not stopping:
            child = os.fork()
            if child == 0:
                _run(listening, work)
            if stopping:  # told so before there was a child to tell
                os.kill(child, signal.SIGTERM)
            _, status = os.waitpid(child, 0)
            child = 0
            if os.waitstatus_to_exitcode(status) > 0:
                return 1
    return 0


def _run(listening: socket.socket, work: Callable[[socket.socket], None]) -> None:
    """The worker. It never returns into its parent's code."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = 1
    try:
        work(listening)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)
