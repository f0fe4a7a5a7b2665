"""Messages: everything that is not an access line, as JSON lines on stderr, through the standard library's logging."""

import logging
import traceback
from types import TracebackType

import orjson

from gateway.observe.sink import CHUNK, open_sink
from gateway.observe.timestamp import rfc3339
from gateway.ports import StoreUnavailable

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SHOWN = (OSError, StoreUnavailable)
"""Errors whose texts name addresses and reasons. Others may quote a request, a row or a statement, so only their types
are shown.
"""


def configure(level: str) -> None:
    """Send every logger's messages of `level` (a name such as `info`) and above to stderr. Replaces what was configured
    before.
    """
    handler = _StderrHandler(2)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    """One JSON object per message: ts, level, logger, msg, whatever `extra` gave, and of an exception its types and its
    frames.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.name == "asyncio":
            # Its further lines are the repr of a task, exception text included.
            message = message.partition("\n")[0]
        fields: dict[str, object] = {
            "ts": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": message,
        }
        fields.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = describe(record.exc_info[1])
            fields["stack"] = _frames(record.exc_info[2])
        return orjson.dumps(fields, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def describe(error: BaseException) -> str:
    """An exception and its causes, without any text that could hold data of a request."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 4:
        name = type(seen).__name__
        parts.append(f"{name}: {seen}" if isinstance(seen, _SHOWN) else name)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return " <- ".join(parts)


def _frames(trace: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)[-12:]]


class _StderrHandler(logging.Handler):
    """Writes at once and never waits: a message that a stalled reader does not take is dropped, and the next one says
    how many were.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._sink = open_sink(fd)
        self._tail = b""
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                record.__dict__["dropped_before"] = self._dropped
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
            if self._write(self._tail):
                self._write(line)
                self._dropped = 0
            else:
                self._dropped += 1
        except Exception:
            # There is no other stream to write to, and a message must never change what the gateway does.
            self._dropped += 1

    def close(self) -> None:
        self._sink.close()
        super().close()

    def _write(self, data: bytes) -> bool:
        """True once all is written; what is left of a line that was begun is kept, so that lines stay whole."""
        while data:
            taken = self._sink.write(data[:CHUNK])
            if taken == 0:
                break
            data = data[taken:]
        self._tail = data
        return not data
