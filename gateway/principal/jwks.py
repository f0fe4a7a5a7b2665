"""The keys behind an address: fetched when needed, kept while the address does not answer, never for longer than the
route says.

    age of the keys     what a request does
    up to `refresh`     uses them
    up to `stale`       uses them, and has them asked for again in the background; waits for the answer only if no caller has asked
                        for long (`refresh` twice over) and the address answered the last time
    beyond              waits for the answer; without one, it identifies no caller

All requests share one question at a time. After a failure the next question waits for `RETRY` seconds. Tokens of
unknown keys, which any client can make up, cause one question in `SEARCH` seconds.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.core.principal_source import JwksUrl
from gateway.ports import Clock, InDoubt, NotSent, UpstreamRequest
from gateway.principal.facts import PrincipalError
from gateway.principal.keys import VerificationKey, read_key_set
from gateway.upstream import HttpUpstream, UpstreamSettings

RETRY = 5.0
SEARCH = 10.0
MAX_SET = 512 * 1024
"""Bytes of an answer that is read."""

_log = logging.getLogger(__name__)
_ACCEPT = (b"Accept", b"application/jwk-set+json, application/json")
_TARGET = re.compile("[!-~]+")
_LONG_AGO = float("-inf")


class RemoteKeys:
    """See the module. `before` is the one for the same address whose keys this one takes over. Raises PrincipalError
    for a bad address.
    """

    def __init__(self, where: JwksUrl, clock: Clock, *, tls: ssl.SSLContext | None = None, before: "RemoteKeys | None" = None) -> None:
        parts = urlsplit(where.url)
        settings = UpstreamSettings(
            f"{parts.scheme}://{parts.netloc}", connect=2.0, first_byte=3.0, read_idle=3.0, total=5.0, keepalive=0.0, max_connections=1
        )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            if not _TARGET.fullmatch(target):
                raise ValueError("its path is not as it goes on the wire")
            self._upstream = HttpUpstream(settings, ssl_context=tls)
            headers = ((b"Host", parts.netloc.encode("ascii")), _ACCEPT)
            self._request = UpstreamRequest(b"GET", target.encode("ascii"), headers, b"")
        except ValueError as error:
            raise PrincipalError(f"the jwks_url of a jwt principal cannot be used: {error}") from None
        self._where = where
        self._name = parts.netloc
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._keys: Sequence[VerificationKey] = () if before is None else before._keys
        self._fetched: float = _LONG_AGO if before is None else before._fetched
        self._tried = self._searched = _LONG_AGO
        self._failed = False

    async def keys(self) -> Sequence[VerificationKey] | None:
        """The keys to go by. None: there are none that are young enough, and the address does not answer."""
        now = self._clock.boottime()
        age = now - self._fetched
        if age <= self._where.refresh and age <= self._where.stale:
            return self._keys
        task = self._ask(now)
        if age <= self._where.stale and (self._failed or age <= 2 * self._where.refresh):
            return self._keys
        if task is not None:
            await asyncio.wait({task})
        return self._keys if self._clock.boottime() - self._fetched <= self._where.stale else None

    async def newer(self, than: Sequence[VerificationKey]) -> Sequence[VerificationKey] | None:
        """What keys there are instead of these, none of which signed a token that is to be judged; `than` itself if
        there are no others.

        None: the address does not answer, so that the gateway cannot tell.
        """
        if self._keys is not than:
            return self._keys
        now = self._clock.boottime()
        task = self._task if self._asking else None
        if task is None:
            if now - self._searched < SEARCH:
                return None if self._failed else self._keys
            task = self._ask(now)
            if task is None:
                return None
            self._searched = now
        await asyncio.wait({task})
        return None if self._failed else self._keys

    async def close(self) -> None:
        """Ask no more. Requests that wait for an answer get none."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._upstream.close()

    @property
    def _asking(self) -> bool:
        return self._task is not None and not self._task.done()

    def _ask(self, now: float) -> asyncio.Task[None] | None:
        """The question that is under way, or a new one; None while none may be asked."""
        if not self._asking:
            if self._closed or (self._failed and now - self._tried < RETRY):
                return None
            self._tried = now
            self._task = asyncio.get_running_loop().create_task(self._fetch(now), name="jwks")
        return self._task

    async def _fetch(self, started: float) -> None:
        """One question. Its answer replaces the keys, and nothing else does. Their age counts from before it
        was asked.
        """
        was_failing, keys = self._failed, None
        try:
            keys = read_key_set(await self._load())
        except (NotSent, InDoubt, ValueError) as error:
            if not was_failing:
                _log.warning("keys of tokens cannot be had from %s: %s", self._name, error)
        finally:
            self._failed = keys is None
        if keys is not None:
            self._keys, self._fetched = keys, started
            if was_failing:
                _log.info("keys of tokens can be had from %s again", self._name)

    async def _load(self) -> bytes:
        """The body of a 200 answer. Raises NotSent, InDoubt or ValueError."""
        response = await self._upstream.send(self._request, lambda: True)
        try:
            if response.status != 200:
                raise ValueError(f"its answer has the status {response.status}")
            body = await response.read(MAX_SET)
        finally:
            response.close()
        if body is None:
            raise ValueError(f"its answer has more than {MAX_SET} bytes")
        return body
