"""Identifies the caller by the sources that a route names: all of them, or the first that is there."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from gateway.core.policy import Policy
from gateway.core.principal_source import (
    BasicPrincipal,
    CertificatePrincipal,
    Combine,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwtPrincipal,
    PrincipalSource,
)
from gateway.ports import Clock, Upstream
from gateway.principal.credentials import find_basic, find_certificate, find_header
from gateway.principal.facts import Facts, Found, Part, PrincipalError, Unidentified
from gateway.principal.forward_auth import ForwardAuth

if TYPE_CHECKING:
    from gateway.principal.bearer import TokenSources


class Identifier:
    """Identifies the callers of one route map, and keeps what it learned. Raises PrincipalError if a source cannot
    work.

    `upstreams` must have the auth services of all policies; the caller closes it. `now` is the wall clock, in seconds
    since the epoch; `tls` says how to reach addresses of keys, by default as the system trusts. `before` is the
    identifier of the last route map, whose keys stay in use for the same addresses. Close `before` once it holds no
    request.
    """

    def __init__(
        self,
        policies: Iterable[Policy],
        upstreams: Mapping[str, Upstream],
        clock: Clock,
        *,
        now: Callable[[], float] = time.time,  # noqa: TID251 - `exp` and `nbf` are instants of the wall clock (RFC 7519 section 2)
        tls: ssl.SSLContext | None = None,
        before: "Identifier | None" = None,
    ) -> None:
        sources: list[PrincipalSource] = []
        for policy in policies:
            _refuse_mixed_issuers(policy)
            sources += policy.principal
        tokens = [source for source in sources if isinstance(source, JwtPrincipal)]
        asking = [source for source in dict.fromkeys(sources) if isinstance(source, ForwardAuthPrincipal)]
        self._services = {source: ForwardAuth(source, _service(source, upstreams), clock) for source in asking}
        self._tokens: TokenSources | None = (
            _token_sources(tokens, clock, now, tls, before._tokens if before is not None else None) if tokens else None
        )

    def identify_now(self, facts: Facts, policy: Policy) -> Sequence[Part] | Unidentified:
        """The caller's parts in the policy's order, for `gateway.core.scope.scope_of`. Only for a policy without
        `gateway.core.principal_source.needs_waiting`.
        """
        found: list[Found] = []
        for source in policy.principal:
            known = self._find(source, facts)
            assert known is not None, "the policy needs waiting"
            found.append(known)
            if _decides(known, policy.combine):
                break
        return _combine(found, policy.combine)

    async def identify(self, facts: Facts, policy: Policy) -> Sequence[Part] | Unidentified:
        """The same for any policy. Waits for other servers within fixed bounds; a cancelled call does not disturb
        others that wait for the same answer.
        """
        found: list[Found] = []
        for source in policy.principal:
            known = self._find(source, facts)
            found.append(await self._ask(source, facts) if known is None else known)
            if _decides(found[-1], policy.combine):
                break
        return _combine(found, policy.combine)

    async def close(self) -> None:
        """Ask no server any more; callers that wait get `Unidentified`, unavailable. Idempotent."""
        await asyncio.gather(*(service.close() for service in self._services.values()))
        if self._tokens is not None:
            await self._tokens.close()

    def _find(self, source: PrincipalSource, facts: Facts) -> Found | None:
        """What a source says at once; None if it must be asked."""
        match source:
            case HeaderPrincipal():
                return find_header(source, facts)
            case BasicPrincipal():
                return find_basic(source, facts)
            case CertificatePrincipal():
                return find_certificate(source, facts)
            case JwtPrincipal():
                assert self._tokens is not None
                return self._tokens.find(source, facts)
            case ForwardAuthPrincipal():
                return None
            case _:
                assert_never(source)

    async def _ask(self, source: PrincipalSource, facts: Facts) -> Found:
        if isinstance(source, ForwardAuthPrincipal):
            return await self._services[source].identify(facts)
        assert isinstance(source, JwtPrincipal)
        assert self._tokens is not None
        return await self._tokens.ask(source, facts)


def _decides(found: Found, combine: Combine) -> bool:
    """Whether no further source can change the outcome. Under FIRST a source that is there counts, also when it fails:
    else a caller whose token has just expired would be another caller, and its retry would run again.
    """
    match combine:
        case Combine.ALL:
            return isinstance(found, Unidentified)
        case Combine.FIRST:
            return not (isinstance(found, Unidentified) and found.absent)
        case _:
            assert_never(combine)


def _combine(found: Sequence[Found], combine: Combine) -> Sequence[Part] | Unidentified:
    """The outcome of sources that were tried in order, up to the one that decided."""
    parts = [one for one in found if not isinstance(one, Unidentified)]
    failures = [one for one in found if isinstance(one, Unidentified)]
    if not failures or (parts and combine is Combine.FIRST):
        return parts
    last = failures[-1]
    if len(failures) == 1 or not last.absent:
        return last
    details = list(dict.fromkeys(failure.detail for failure in failures))
    challenges = tuple(dict.fromkeys(challenge for failure in failures for challenge in failure.challenges))
    return Unidentified(" Or: ".join(details), failures[0].header, challenges, absent=True)


def _refuse_mixed_issuers(policy: Policy) -> None:
    """Tokens of two sources may meet in one scope only if they name one issuer, so none may be able to name the
    other's.
    """
    tokens = [source for source in policy.principal if isinstance(source, JwtPrincipal)]
    if policy.combine is Combine.FIRST and len(tokens) > 1 and any(source.issuer is None for source in tokens):
        raise PrincipalError(f"scope `{policy.scope}`: of several jwt principals of which the first counts, each must name its issuer")


def _service(source: ForwardAuthPrincipal, upstreams: Mapping[str, Upstream]) -> Upstream:
    upstream = upstreams.get(source.upstream)
    if upstream is None:
        raise PrincipalError(f"forward_auth: there is no upstream `{source.upstream}`")
    return upstream


def _token_sources(
    sources: Sequence[JwtPrincipal],
    clock: Clock,
    now: Callable[[], float],
    tls: ssl.SSLContext | None,
    before: "TokenSources | None",
) -> "TokenSources":
    try:
        from gateway.principal.bearer import TokenSources  # noqa: PLC0415 - its libraries are an extra
    except ModuleNotFoundError as error:
        raise PrincipalError(f"a jwt principal needs {error.name}: pip install 'idempotency-gateway[jwt]'") from None
    return TokenSources(sources, clock, now, tls=tls, before=before)
