"""What both servers share: the data folder and its locks and secrets, ending our child, ending a leftover of a killed run."""

import fcntl
import importlib.util
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

POLL = 0.02

Steps = Sequence[tuple[signal.Signals, float]]
"""How to end a process: signals in order, each with the seconds it is given before the next."""

KILL = (signal.SIGKILL, 10.0)


class EmbeddedError(Exception):
    """A server could not be started. The message is meant for the user and names the remedy where there is one."""


class NotInstalled(EmbeddedError):
    """There is no such server on this machine."""

    def __init__(self) -> None:
        super().__init__("the embedded servers are not installed: pip install 'idempotency-gateway[embedded]'")


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged user that a server runs as when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Child:
    """A server process that we started. It runs in a session of its own, so that a terminal's Ctrl-C reaches us alone."""

    process: subprocess.Popen[bytes]
    lock: IO[bytes]

    def end(self, steps: Steps) -> None:
        """End the process by `steps`, then by SIGKILL, and give the folder back. Does nothing to one that has ended."""
        end(self.process, steps)
        self.lock.close()


def end(process: subprocess.Popen[bytes], steps: Steps) -> None:
    """End a child by `steps`, then by SIGKILL."""
    for number, seconds in (*steps, KILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def note_pid(file: Path, process: subprocess.Popen[bytes], argv: Sequence[str]) -> None:
    """Write down a child so that a later run can find it, should we be killed: its pid, then its command line."""
    file.write_text("\n".join([str(process.pid), *argv]) + "\n", "utf-8")


def end_leftover_of(file: Path, steps: Steps) -> None:
    """End the process that `note_pid` wrote into `file`, if it still runs under that command line, and forget it."""
    try:
        _, *argv = file.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return
    end_leftover(read_pid(file), argv, steps)
    file.unlink(missing_ok=True)


def read_pid(file: Path) -> int | None:
    """The process id in the first line of `file`, None if there is none."""
    try:
        return int(file.read_text("utf-8", "replace").partition("\n")[0])
    except (OSError, ValueError):
        return None


def end_leftover(pid: int | None, words: Sequence[str], steps: Steps) -> None:
    """End a server of a killed run by `steps`, then by SIGKILL. Only while `pid` still carries `words` on its command line."""
    if pid is None:
        return
    for number, seconds in (*steps, KILL):
        if not runs(pid, *words):
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise EmbeddedError(f"process {pid} of another user still works in this data folder: stop it first") from error
        wait_until(lambda: not runs(pid, *words), seconds)
    if runs(pid, *words):
        raise EmbeddedError(f"process {pid}, left over from a killed run, does not end")


def runs(pid: int, *words: str) -> bool:
    """Whether `pid` is a live process with all of `words` on its command line (a zombie has none, a reused pid other ones)."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return arguments != [b""] and all(os.fsencode(word) in arguments for word in words)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether `condition` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


@contextmanager
def taken(data: Path, name: str) -> Iterator[tuple[Path, IO[bytes]]]:
    """The absolute data folder with the lock of the server `name`, which the body keeps unless it raises.

    An OSError of the body, such as a file of another user in the folder, becomes an EmbeddedError.
    """
    data = prepared(data)
    lock = take_folder(data, name)
    try:
        yield data, lock
    except OSError as error:
        lock.close()
        raise EmbeddedError(f"cannot start {name} in {data}: {error}") from error
    except BaseException:
        lock.close()
        raise


def prepared(data: Path) -> Path:
    """The absolute data folder, made if it is missing."""
    try:
        data = data.expanduser().resolve()
        data.mkdir(parents=True, exist_ok=True)
        probe = data / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise EmbeddedError(f"cannot write to the data folder {data}: {error.strerror}") from error
    return data


def take_folder(data: Path, name: str) -> IO[bytes]:
    """The lock of the server `name` in `data`, held until the returned file is closed or this process ends, however it ends."""
    try:
        lock = (data / f"{name}.lock").open("a+b")
    except OSError as error:
        raise EmbeddedError(f"cannot use the data folder {data}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read(32).decode("utf-8", "replace").strip() or "unknown"
        lock.close()
        raise EmbeddedError(f"the data folder {data} is in use by process {holder}: stop it, or name another folder") from None
    lock.truncate(0)
    lock.write(b"%d\n" % os.getpid())
    lock.flush()
    return lock


def package(name: str) -> Path:
    """The folder of an installed wheel of the `embedded` extra. It is looked up, not imported: imports have side effects.

    Raises NotInstalled.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise NotInstalled
    return Path(found.origin).resolve().parent


def secret(file: Path) -> str:
    """The random word kept in `file`, made at the first call. Only our own user may read it."""
    try:
        return file.read_text("utf-8").strip()
    except FileNotFoundError:
        word = secrets.token_hex(16)
        fresh = file.with_name(file.name + ".new")
        write_private(fresh, word + "\n")
        fresh.replace(file)
        return word


def write_private(file: Path, text: str) -> None:
    """Write a file that only our own user may read, from its first byte on."""
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as output:
        output.write(text)
