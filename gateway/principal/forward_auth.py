"""Asks an auth service who the caller is, as nginx's auth_request and Traefik's ForwardAuth do.

The gateway sends the service a GET with the fields that the route names, and the client's request line in
`X-Forwarded-*`. The service says yes by any 2xx and names the caller in one field of its answer. The gateway remembers
a yes for a short time, under a digest of everything that it sent, and never any other answer. Requests that ask the
same question at the same time share the answer.
"""

import asyncio
import hashlib
import os
import re
from collections import OrderedDict

from gateway.core.field_names import FORWARDED, FORWARDED_FAMILIES, FRAMING, HOP_BY_HOP, REPLACED
from gateway.core.headers import wire_name
from gateway.core.model import Headers
from gateway.core.principal_source import ForwardAuthPrincipal
from gateway.core.scope import length_prefixed
from gateway.ports import Clock, DoubtReason, InDoubt, NotSent, Upstream, UpstreamRequest, UpstreamResponse
from gateway.principal.credentials import needs, single
from gateway.principal.facts import Facts, Found, PrincipalError, Unidentified
from gateway.principal.parts import forward_auth_part

PATIENCE = 5.0
"""Seconds that one question may take, whatever the upstream's own limits are."""
MAX_REMEMBERED = 4096
MAX_ASKING = 256
"""Questions under way at a time, at most; further callers are not identified."""
MAX_VALUE = 4096
"""Bytes of the field that names the caller. A longer one is none."""
MAX_CHALLENGES = 4

_MAX_BODY = 64 * 1024  # is read, so that the connection can be used again, and thrown away
_UNWRITABLE = HOP_BY_HOP | FRAMING | REPLACED | {b"x-forwarded-method", b"x-forwarded-uri", b"x-forwarded-host", b"x-forwarded-proto"}
_PATH = re.compile(rb"/[!-~]*")
_UNAVAILABLE = Unidentified("The service that identifies callers cannot be asked now.", unavailable=True)
_REFUSED = "The credentials do not identify a caller."

Verdict = bytes | Unidentified


class ForwardAuth:
    """One auth service on behalf of one source. Raises PrincipalError for fields that cannot be sent on."""

    def __init__(self, source: ForwardAuthPrincipal, upstream: Upstream, clock: Clock) -> None:
        unwritable = [name for name in source.forward if wire_name(name) in _UNWRITABLE]
        if unwritable or not source.forward:
            name = f"`{unwritable[0]}` cannot be sent on" if unwritable else "no field is sent on"
            raise PrincipalError(f"forward_auth: {name}: name the fields that hold credentials")
        if not _PATH.fullmatch(source.path.encode()):
            raise PrincipalError(f"forward_auth: `{source.path}` is no path and query as they go on the wire")
        self._source = source
        self._upstream = upstream
        self._clock = clock
        self._seed = os.urandom(32)
        self._remembered: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()  # about in the order in which they end
        self._asking: dict[bytes, asyncio.Task[Verdict]] = {}
        self._closed = False

    async def identify(self, facts: Facts) -> Found:
        """The caller that the service names. A request without any of the fields needs no question."""
        question = self._question(facts)
        if isinstance(question, Unidentified):
            return question
        digest = self._digest(question)
        ends, value = self._remembered.get(digest, (0.0, b""))
        if self._clock.boottime() < ends:
            return forward_auth_part(self._source, value)
        task = self._asking.get(digest) or self._ask(question, digest)
        if task is None:
            return _UNAVAILABLE
        await asyncio.wait({task})
        verdict = _UNAVAILABLE if task.cancelled() else task.result()
        return verdict if isinstance(verdict, Unidentified) else forward_auth_part(self._source, verdict)

    async def close(self) -> None:
        """Ask no more. Requests that wait for an answer get none."""
        self._closed = True
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _question(self, facts: Facts) -> UpstreamRequest | Unidentified:
        credentials: list[tuple[bytes, bytes]] = []
        for name in self._source.forward:
            value = single(facts.fields, name) if facts.trusted or not _of_the_client(wire_name(name)) else b""
            if value is None:
                return needs(name, absent=False)
            credentials += [(name.encode(), value)] if value else []
        if not credentials:
            wanted = self._source.forward
            return Unidentified(f"This operation needs credentials in {' or '.join(wanted)}.", wanted[0], absent=True)
        asked = (
            (b"X-Forwarded-Method", facts.method.encode()),
            (b"X-Forwarded-Proto", facts.scheme),
            (b"X-Forwarded-Host", facts.host),
            (b"X-Forwarded-Uri", facts.target),
        )
        return UpstreamRequest(b"GET", self._source.path.encode(), ((b"Host", facts.host), *credentials, *asked), b"")

    def _digest(self, question: UpstreamRequest) -> bytes:
        """All that the answer can depend on. The seed is of this process, so that the digest is worth nothing anywhere
        else.
        """
        flat = [text for field in question.headers for text in field]
        return hashlib.blake2b(length_prefixed(flat), key=self._seed, digest_size=32).digest()

    def _ask(self, question: UpstreamRequest, digest: bytes) -> asyncio.Task[Verdict] | None:
        if self._closed or len(self._asking) >= MAX_ASKING:
            return None
        task = asyncio.get_running_loop().create_task(self._judge(question, digest), name="forward-auth")
        self._asking[digest] = task
        task.add_done_callback(lambda _: self._asking.pop(digest))
        return task

    async def _judge(self, question: UpstreamRequest, digest: bytes) -> Verdict:
        """Ask, and remember a yes, from the instant before the question."""
        started = self._clock.boottime()
        try:
            async with asyncio.timeout(PATIENCE):
                status, headers = await self._exchange(question)
        except (NotSent, InDoubt, TimeoutError):
            return _UNAVAILABLE
        except ValueError:  # a value that would break the request's framing
            return Unidentified(_REFUSED)
        if status in {401, 403}:
            return Unidentified(_REFUSED, self._source.forward[0], _values(headers, b"www-authenticate")[:MAX_CHALLENGES])
        named = _values(headers, wire_name(self._source.answer_header))
        if not 200 <= status <= 299 or len(named) != 1 or not 0 < len(named[0]) <= MAX_VALUE:
            return _UNAVAILABLE
        self._remember(digest, started + self._source.cache, named[0])
        return named[0]

    async def _exchange(self, question: UpstreamRequest) -> tuple[int, Headers]:
        """Status and fields of a whole answer. A kept connection that the service has just closed is no answer: asked
        once more.
        """
        for again in (False, True):
            try:
                response = await self._upstream.send(question, lambda: True)
                return await _finish(response)
            except InDoubt as doubt:
                if again or doubt.reason is not DoubtReason.DISCONNECTED:
                    raise
        raise AssertionError("unreachable")

    def _remember(self, digest: bytes, ends: float, value: bytes) -> None:
        now, remembered = self._clock.boottime(), self._remembered
        if ends <= now:
            return
        remembered.pop(digest, None)
        while remembered and (len(remembered) >= MAX_REMEMBERED or remembered[next(iter(remembered))][0] <= now):
            remembered.popitem(last=False)
        remembered[digest] = (ends, value)


async def _finish(response: UpstreamResponse) -> tuple[int, Headers]:
    try:
        await response.read(_MAX_BODY)
    finally:
        response.close()
    return response.status, response.headers


def _of_the_client(name: bytes) -> bool:
    """Whether the field says who the client is, which only trusted proxies may."""
    return name in FORWARDED or name.startswith(FORWARDED_FAMILIES)


def _values(headers: Headers, name: bytes) -> tuple[bytes, ...]:
    return tuple([value.strip(b" \t") for field, value in headers if field.lower() == name])
