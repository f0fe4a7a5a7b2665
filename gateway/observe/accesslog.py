"""The access log: one JSON line per finished request, written without ever holding up the event loop."""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping

import orjson

from gateway.core.trace_context import trace_id_of
from gateway.observe.sink import CHUNK, open_sink
from gateway.observe.timestamp import epoch_seconds, instant, rfc3339
from gateway.ports import FinishedAttempt, FinishedRequest, WebhookExchange

BUFFER_BYTES = 4 * 1024 * 1024
GATHERED = 0.002
"""Seconds for which lines are gathered: the answer leaves ahead of the work on its line, and the many that come together cost one write."""

_RETRY_SECONDS = 0.02
_LONGEST_TEXT = 256

_log = logging.getLogger(__name__)


def access_line(request: FinishedRequest, pattern: str | None = None, *, user_agent: bool = False) -> bytes:
    """The log line of one request, newline included. Durations are milliseconds; no key, credential or body is in it.

    `pattern` is the path that its route takes. Of the head the line has the trace, and what the client calls itself (`user_agent`).
    """
    upstream_seconds, scope = request.upstream_seconds, request.scope
    fields = {
        "ts": instant(int(epoch_seconds() * 1000)),
        "level": "info",
        "msg": "request",
        "request_id": request.request_id[:_LONGEST_TEXT],
        "route": request.route,
        "mode": request.mode,
        "decision": request.decision,
        "method": request.method[:_LONGEST_TEXT],
        "status": request.status,
        "settlement": request.settlement,
        "reason": request.reason,
        "key": request.key_digest,
        "attempt": request.attempt,
        "duration_ms": int(request.total_seconds * 1_000_000 + 0.5) / 1000,
        "store_ms": int(request.store_seconds * 1_000_000 + 0.5) / 1000,
        "upstream_ms": None if upstream_seconds is None else int(upstream_seconds * 1_000_000 + 0.5) / 1000,
        "upstream_status": request.upstream_status,
        "request_bytes": request.request_bytes,
        "response_bytes": request.response_bytes,
        "client_gone": request.client_gone,
        "client": request.client_address,
        "path_pattern": pattern,
        "scope_id": None if scope is None else scope.id,
        "trace_id": request.trace_id,
        "original_request_id": request.original,
    }
    if user_agent:
        agent = request.fields.first(b"user-agent")
        fields["user_agent"] = None if agent is None else agent[:_LONGEST_TEXT].decode("latin-1")
    return _line(fields)


def attempt_line(attempt: FinishedAttempt, pattern: str | None = None) -> bytes:
    """The log line of one attempt of accepted work that no request waited for, newline included. As `access_line`."""
    upstream_seconds = attempt.upstream_seconds
    fields = {
        "ts": rfc3339(epoch_seconds()),
        "level": "info",
        "msg": "attempt",
        "request_id": attempt.request_id[:_LONGEST_TEXT],
        "route": attempt.route,
        "decision": attempt.decision,
        "method": attempt.method[:_LONGEST_TEXT],
        "settlement": attempt.settlement,
        "reason": attempt.reason,
        "key": attempt.key_digest,
        "attempt": attempt.attempt,
        "waited_ms": int(attempt.waited * 1_000_000 + 0.5) / 1000,
        "duration_ms": int(attempt.total_seconds * 1_000_000 + 0.5) / 1000,
        "upstream_ms": None if upstream_seconds is None else int(upstream_seconds * 1_000_000 + 0.5) / 1000,
        "upstream_status": attempt.upstream_status,
        "path_pattern": pattern,
        "scope_id": attempt.scope_id,
        "record_id": str(attempt.record_id),
        "trace_id": None if attempt.traceparent is None else trace_id_of(attempt.traceparent),
    }
    return _line(fields)


def webhook_line(event: WebhookExchange) -> bytes:
    """The log line of one request to a webhook's endpoint, newline included; nothing of the event is in it."""
    fields = {
        "ts": rfc3339(epoch_seconds()),
        "level": "info",
        "msg": "webhook",
        "route": event.route,
        "result": event.result,
        "method": event.method[:_LONGEST_TEXT],
        "status": event.status,
        "duration_ms": int(event.total_seconds * 1_000_000 + 0.5) / 1000,
        "request_bytes": event.request_bytes,
        "client_gone": event.sender_gone,
        "client": event.client,
        "request_id": event.request_id,
    }
    return _line(fields)


def _line(fields: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # Text from the wire may hold bytes that are not UTF-8, which only the standard library escapes.
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class AccessLog:
    """Lines on their way to a file descriptor. `append` belongs to an event loop's thread.

    The lines of `GATHERED` seconds go out together, in writes of at most CHUNK bytes that hold whole lines. While the reader stalls they
    are kept, up to `buffer_bytes`; then the oldest are dropped, and `dropped` is told how many.
    """

    def __init__(self, fd: int, dropped: Callable[[int], None], *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._sink = open_sink(fd)
        self._dropped = dropped
        self._limit = buffer_bytes
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._head = b""
        self._flush_due: asyncio.Handle | None = None
        self._broken = False
        self._closed = False

    def append(self, line: bytes) -> None:
        """Take a line. Never waits, never raises. After `close` lines count as dropped."""
        if self._closed:
            self._dropped(1)
            return
        self._lines.append(line)
        self._size += len(line)
        if self._size > self._limit:
            self._drop_oldest()
        if self._flush_due is None:
            self._flush_due = asyncio.get_running_loop().call_later(GATHERED, self._flush)

    def close(self, patience: float = 1.0) -> None:
        """Write what is left, waiting at most `patience` seconds for the reader; what it does not take counts as dropped.

        May be called repeatedly.
        """
        if self._closed:
            return
        self._closed = True
        if self._flush_due is not None:
            self._flush_due.cancel()
            self._flush_due = None
        deadline = time.monotonic() + patience
        while not self._write_all() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._drop_all()
        self._sink.close()

    def _flush(self) -> None:
        self._flush_due = None
        if not self._write_all():
            self._flush_due = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._flush)

    def _write_all(self) -> bool:
        """Write until nothing is left (True) or the reader stalls (False)."""
        try:
            while self._head or self._lines:
                self._head = self._head or self._take()
                taken = self._sink.write(self._head)
                if taken == 0:
                    return False
                self._head = self._head[taken:]
        except OSError as error:
            self._break(error)
        else:
            self._broken = False
        return True

    def _take(self) -> bytes:
        """The next whole lines that fit into one write; a line that is longer by itself goes alone."""
        if len(self._lines) == 1 or self._size <= CHUNK:
            whole = b"".join(self._lines)
            self._lines.clear()
            self._size = 0
            return whole
        lines = [self._lines.popleft()]
        size = len(lines[0])
        while self._lines and size + len(self._lines[0]) <= CHUNK:
            line = self._lines.popleft()
            size += len(line)
            lines.append(line)
        self._size -= size
        return b"".join(lines)

    def _drop_oldest(self) -> None:
        count = 0
        while self._size > self._limit:
            self._size -= len(self._lines.popleft())
            count += 1
        self._dropped(count)

    def _drop_all(self) -> None:
        count = len(self._lines) + self._head.count(b"\n")
        self._lines.clear()
        self._size, self._head = 0, b""
        if count:
            self._dropped(count)

    def _break(self, error: OSError) -> None:
        """The stream is gone, or full: what was to be written is lost, and the next tick tries anew."""
        self._drop_all()
        if not self._broken:
            self._broken = True
            _log.error("The access log cannot be written: %s", error.strerror)
