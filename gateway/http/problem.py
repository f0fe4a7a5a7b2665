"""The only place that makes `application/problem+json` (RFC 9457)."""

from collections.abc import Mapping

import orjson

from gateway.core.model import Headers
from gateway.core.problems import Problem, Retry, retry_of

DEFAULT_BASE = "urn:idempotency-gateway:problem:"


class ProblemWriter:
    """Renders our own answers. `base` is put before each problem's word to make its `type` URI; an http(s) base is also linked to."""

    def __init__(self, base: str = DEFAULT_BASE) -> None:
        self._base = base

    def render(
        self,
        problem: Problem,
        *,
        request_id: str,
        status: int | None = None,
        retry_after: int | None = None,
        detail: str | None = None,
        members: Mapping[str, object] | None = None,
        challenges: tuple[bytes, ...] = (),
        retry: Retry | None = None,
    ) -> tuple[int, Headers, bytes]:
        """Status, header fields and body. `status` in the body always equals the real one (RFC 9457 section 3.1.2). `retry` None: as the
        problem has it after a method that is not safe.
        """
        kind = problem.value
        final = kind.status if status is None else status
        document: dict[str, object] = {
            "type": self._base + kind.slug,
            "title": kind.title,
            "status": final,
            "detail": detail or kind.detail,
            "instance": f"urn:request:{request_id}",
            "retry": retry or retry_of(problem, retry_after=retry_after),
        }
        document.update(members or {})
        headers: Headers = ((b"Content-Type", b"application/problem+json"), (b"Cache-Control", b"no-store"))
        if retry_after is not None:
            headers += ((b"Retry-After", b"%d" % retry_after),)
        if self._base.startswith(("http://", "https://")):
            headers += ((b"Link", f'<{self._base}{kind.slug}>; rel="describedby"'.encode()),)
        if problem is Problem.PRINCIPAL_MISSING:
            headers += tuple([(b"WWW-Authenticate", challenge) for challenge in challenges or (b'Bearer realm="api"',)])
        return final, headers, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
