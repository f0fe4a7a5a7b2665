"""Files of this machine that a configuration or a command names: read whole, within a bound, and only if they are files.

A named pipe would hold its reader until another process writes, and a device may never end: both are refused before they are read.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[int, int, int]
"""What of a file changes with its content: its inode, the time of its last change, its size."""

_NO_FILES = {
    stat.S_IFDIR: "Is a directory",
    stat.S_IFIFO: "it is a named pipe; write what it gives into a file first",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}


_recording: ContextVar[dict[str, Stamp | None] | None] = ContextVar("recording", default=None)


class LocalFileError(Exception):
    """The file cannot be had, or is none. `str()` says why, without the file's name."""


class TooLarge(LocalFileError):
    """The file has more bytes than its reader takes."""


def read_local(path: str | Path, limit: int) -> bytes:
    """The bytes of a regular file, at most `limit`. Never waits for another process. Raises `LocalFileError`, `TooLarge` among them."""
    try:
        # O_NONBLOCK: a named pipe is opened at once, and can be refused; it changes nothing for a regular file.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            facts = os.fstat(file.fileno())
            _record(path, _stamp(facts))
            kind = stat.S_IFMT(facts.st_mode)
            if kind in _NO_FILES:
                raise LocalFileError(_NO_FILES[kind])
            content = file.read(limit + 1)
    except OSError as error:
        _record(path, None)
        raise LocalFileError(_reason(path, error)) from None
    except ValueError:  # a NUL character
        raise LocalFileError("no file can have this name") from None
    if len(content) > limit:
        raise TooLarge(f"it is larger than {limit} bytes")
    return content


@contextlib.contextmanager
def recording() -> Iterator[dict[str, Stamp | None]]:
    """The files that `read_local` is asked for within, each as it was when it was first read; None for one that could not be opened."""
    found: dict[str, Stamp | None] = {}
    token = _recording.set(found)
    try:
        yield found
    finally:
        _recording.reset(token)


def stamp_of(path: str) -> Stamp | None:
    """The file as it is now; None if there is none."""
    try:
        return _stamp(os.stat(path))
    except OSError:
        return None


def _record(path: str | Path, stamp: Stamp | None) -> None:
    found = _recording.get()
    if found is not None:
        found.setdefault(os.fspath(path), stamp)


def _stamp(facts: os.stat_result) -> Stamp:
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _reason(path: str | Path, error: OSError) -> str:
    """Opening a folder to be read fails by itself, and so does a socket, with words that say less than `_NO_FILES`."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except OSError:
        kind = 0
    return _NO_FILES.get(kind) or error.strerror or str(error)
