"""aiohttp's server with our own words: problems for malformed requests, no decompression, header limits above the common ones."""

import asyncio
import logging
import os
from collections.abc import Callable
from email.utils import formatdate

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest

from gateway.core.problems import Problem
from gateway.problem import ProblemWriter
from gateway.proxy.handler import Proxy
from gateway.wire import WireResponse, reason_of

_log = logging.getLogger(__name__)

MAX_LINE = 64 * 1024
MAX_FIELD = 64 * 1024
_NO_LOG = logging.getLogger("gateway.proxy.unused")
_NO_LOG.disabled = True
KEEPALIVE = 75.0
"""How long an idle client connection is kept: longer than common load balancers' 60 s, so that they close first."""


class _Connection(RequestHandler):
    """A client's connection. What aiohttp's parser refuses, and what fails in ourselves, is answered in our own format."""

    __slots__ = ("_malformed", "_problems")

    def __init__(self, manager: web.Server, problems: ProblemWriter, malformed: Callable[[], None]) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEPALIVE,
            access_log=_NO_LOG,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=256,
            auto_decompress=False,
        )
        self._problems = problems
        self._malformed = malformed

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001 (as aiohttp declares it)
        """Unless something was paused, parser and transport need no waking. Called by aiohttp for every piece of a body that is read."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """A parser's refusal (4xx) or a failure of our own (500). The connection is closed either way (RFC 9112 section 9.6)."""
        if status >= 500:
            self.log_exception("Error handling request", exc_info=exc)
            problem = Problem.INTERNAL_ERROR
        else:
            self._malformed()
            problem = Problem.HEADER_TOO_LARGE if _too_large(exc, message) else Problem.BAD_REQUEST
        request_id = os.urandom(16).hex()
        final, headers, body = self._problems.render(problem, request_id=request_id)
        headers += ((b"X-Request-Id", request_id.encode()), (b"Date", formatdate(usegmt=True).encode()))
        _log.info("Refused a malformed request: %s, request id %s", problem.value.slug, request_id)
        response = WireResponse(final, reason_of(final), headers, body, close=True)
        response.force_close()
        return response


def _too_large(error: BaseException | None, message: str | None) -> bool:
    """Whether aiohttp's parser gave up on the size of a line or on the number of fields (RFC 6585 section 5)."""
    return isinstance(error, LineTooLong) or "too many" in (message or str(error or "")).lower()


class ProxyServer(web.Server):
    """The factory of client connections."""

    def __init__(self, proxy: Proxy, problems: ProblemWriter, malformed: Callable[[], None]) -> None:
        super().__init__(proxy.handle)
        self._problems = problems
        self._malformed = malformed

    def __call__(self) -> RequestHandler:
        return _Connection(self, self._problems, self._malformed)
