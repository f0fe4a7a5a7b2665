"""Gateways that are forked, each a process of its own, from one that has imported what `serve` imports: four fifths of a start's CPU.

`gateway.cli.main` runs in them as it does under `python -m gateway`. That whole start is what the tests of workers, of `dev`, of images
and of wheels go through.

The process that forks is a child of the one that asks (`Nursery`), and ends with it. Each gateway's parent is a process that waits for it
alone, and tells first its pid, then how it ended.
"""

import asyncio
import atexit
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import BinaryIO

LARGEST = 1 << 18
"""Bytes of a request: arguments and environment."""


class Forked:
    """As much of `asyncio.subprocess.Process` as tests use."""

    def __init__(self, pid: int, told: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._end(told, writer))

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def _end(self, told: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        try:
            self.returncode = int(await told.readline())
            writer.write_eof()
            await told.read()
        finally:
            writer.close()
        return self.returncode


class Nursery:
    """The process that forks gateways for this one; or what else this module runs when it has imported it, and `serve_forks` returns."""

    def __init__(self, module: str = "tests.support.forking") -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", module, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    async def fork(self, arguments: Sequence[str], output: BinaryIO, environment: Mapping[str, str]) -> Forked:
        """A gateway with these arguments, whose output goes to this file."""
        ours, theirs = socket.socketpair()
        request = json.dumps({"arguments": arguments, "environment": dict(environment), "folder": os.getcwd()}).encode()
        with theirs:
            socket.send_fds(self._control, [request], [output.fileno(), theirs.fileno()])
        told, writer = await asyncio.open_unix_connection(sock=ours)
        return Forked(int(await told.readline()), told, writer)

    def end(self) -> None:
        self._control.close()
        self._process.wait(30)


@functools.cache
def nursery(module: str = "tests.support.forking") -> Nursery:
    """That of this process, which ends with it."""
    made = Nursery(module)
    atexit.register(made.end)
    return made


def serve_forks(control: socket.socket) -> list[str]:
    """Fork what is asked for until nobody asks any more. Returns in a gateway alone, with its arguments."""
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    while control.recv(1, socket.MSG_PEEK):
        request, (output, told), _, _ = socket.recv_fds(control, LARGEST, 2)
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked = json.loads(request)
            if _begin(output, told):
                os.chdir(asked["folder"])
                os.environ.clear()
                os.environ.update(asked["environment"])
                arguments: list[str] = asked["arguments"]
                return arguments
        os.close(output)
        os.close(told)
    sys.exit()


def _reap(*_: object) -> None:
    """Those that waited for a gateway have ended. Not left to the kernel: it would lose count of the CPU of the tests."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _begin(output: int, told: int) -> bool:
    """Fork once more. True in the child, whose output goes to the file; the parent tells of it, and ends with it."""
    pid = os.fork()
    if pid == 0:
        os.close(told)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        return True
    os.close(output)
    os.write(told, f"{pid}\n".encode())
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    os.write(told, f"{ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status}\n".encode())
    os.read(told, 1)  # until this is heard of, the pid is nobody else's
    os.waitpid(pid, 0)
    os._exit(0)


if __name__ == "__main__":
    from gateway.cli import main

    import_module("gateway.run.server")  # as `serve` does when it runs
    arguments = serve_forks(socket.socket(fileno=int(sys.argv[1])))
    main(arguments, prog_name="idempotency-gateway")
