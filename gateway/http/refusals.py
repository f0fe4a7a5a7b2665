"""Answers to clients with whom it never comes to a request: counted, logged, and written as bytes."""

import logging
import os
from collections.abc import Callable
from email.utils import formatdate
from typing import NamedTuple

from gateway.core.model import Headers
from gateway.core.problems import Problem
from gateway.http.problem import ProblemWriter
from gateway.http.response import reason_of

_log = logging.getLogger(__name__)

LOG_INTERVAL = 10.0
"""Seconds between two lines about connections turned away: a flood of them must not become a flood of lines."""


class Refusal(NamedTuple):
    """What is said to the client, and the word under which it is counted: one that `ProxyServer` lists."""

    problem: Problem
    reason: str


class Refusals:
    """Where all connections of a listener get their refusals. `refused(reason)` counts."""

    def __init__(self, problems: ProblemWriter, refused: Callable[[str], None]) -> None:
        self._problems = problems
        self._refused = refused
        self._unlogged = 0
        self._quiet_until = float("-inf")

    def failure(self) -> tuple[int, Headers, bytes]:
        """Status, fields and body of the answer to a request on which we failed."""
        _, status, headers, body = self._render(Problem.INTERNAL_ERROR, None)
        return status, headers, body

    def refusal(self, refusal: Refusal) -> bytes:
        """The whole answer to what is no request; the connection has to be closed after it (RFC 9112 section 9.6)."""
        self._refused(refusal.reason)
        request_id, status, headers, body = self._render(refusal.problem, 1 if refusal.problem is Problem.OVERLOADED else None)
        _log.info("Refused a malformed request: %s, request id %s", refusal.problem.value.slug, request_id)
        return _closing(status, headers, body)

    def cut(self) -> None:
        """One connection too many is not even told so."""
        self._refused("too_many_connections")
        self._unlogged += 1

    def turned_away(self, now: float) -> bytes:
        """The whole answer to one connection too many. `now` is the loop's time, in seconds."""
        self.cut()
        if now >= self._quiet_until:
            _log.warning("Turned away %d connections: there are too many", self._unlogged)
            self._unlogged, self._quiet_until = 0, now + LOG_INTERVAL
        _, status, headers, body = self._render(Problem.TOO_MANY_CONNECTIONS, 1)
        return _closing(status, headers, body)

    def _render(self, problem: Problem, retry_after: int | None) -> tuple[str, int, Headers, bytes]:
        request_id = os.urandom(16).hex()
        status, headers, body = self._problems.render(problem, request_id=request_id, retry_after=retry_after)
        return request_id, status, (*headers, (b"X-Request-Id", request_id.encode()), (b"Date", formatdate(usegmt=True).encode())), body


def _closing(status: int, headers: Headers, body: bytes) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % field for field in headers])
    return b"HTTP/1.1 %d %b\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, reason_of(status), lines, len(body), body)
