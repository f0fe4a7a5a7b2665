"""The sources that verify a token: where it is, whose keys it is signed with, what it claims."""

import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from gateway.core.principal_source import JwksFile, JwksUrl, JwtPrincipal, JwtSecret
from gateway.ports import Clock
from gateway.principal.credentials import AUTHORIZATION, needs, of_scheme, single
from gateway.principal.facts import Facts, Found, PrincipalError, Unidentified
from gateway.principal.jwks import MAX_SET, RemoteKeys
from gateway.principal.keys import (
    PUBLIC_ALGORITHMS,
    SECRET_ALGORITHMS,
    Verdict,
    VerificationKey,
    read_key_set,
    secret_key,
    verify,
)
from gateway.principal.parts import jwt_part
from gateway.principal.token import Token, claim_at, find_fault, read_token
from gateway.runtime.local_files import LocalFileError, read_local

_MISSING = (b'Bearer realm="api"',)
_INVALID = (b'Bearer realm="api", error="invalid_token"',)  # RFC 6750 section 3.1
_UNAVAILABLE = Unidentified("The keys that verify tokens cannot be had now.", AUTHORIZATION, unavailable=True)

Keys = Sequence[VerificationKey] | RemoteKeys


class TokenSources:
    """All `jwt` sources of a route map, and the keys that they share. Raises PrincipalError if one cannot work.

    `now` is the wall clock, in seconds since the epoch. `tls` is for the addresses of keys. `before` is that of the
    last route map, whose keys stay in use for the same addresses.
    """

    def __init__(
        self,
        sources: Iterable[JwtPrincipal],
        clock: Clock,
        now: Callable[[], float],
        *,
        tls: ssl.SSLContext | None = None,
        before: "TokenSources | None" = None,
    ) -> None:
        self._now = now
        self._remote: dict[JwksUrl, RemoteKeys] = {}
        earlier = {} if before is None else {where.url: keys for where, keys in before._remote.items()}

        def ask(where: JwksUrl) -> RemoteKeys:
            if where not in self._remote:
                self._remote[where] = RemoteKeys(where, clock, tls=tls, before=earlier.get(where.url))
            return self._remote[where]

        self._keys = {source: _keys_of(source, ask) for source in dict.fromkeys(sources)}

    def find(self, source: JwtPrincipal, facts: Facts) -> Found | None:
        """The caller, by keys that are at hand; None if they are behind an address."""
        keys = self._keys[source]
        if isinstance(keys, RemoteKeys):
            return None
        token = _read(source, facts)
        return token if isinstance(token, Unidentified) else self._judge(source, token, verify(token, keys))

    async def ask(self, source: JwtPrincipal, facts: Facts) -> Found:
        """The caller, by keys that may have to be asked for first."""
        remote, token = self._keys[source], _read(source, facts)
        if isinstance(token, Unidentified):
            return token
        assert isinstance(remote, RemoteKeys)
        keys = await remote.keys()
        if keys is None:
            return _UNAVAILABLE
        verdict = verify(token, keys)
        if verdict is Verdict.UNKNOWN:
            newer = await remote.newer(keys)
            if newer is None:
                return _UNAVAILABLE
            verdict = verify(token, newer) if newer is not keys else verdict
        return self._judge(source, token, verdict)

    async def close(self) -> None:
        """Stop asking for keys."""
        for remote in self._remote.values():
            await remote.close()

    def _judge(self, source: JwtPrincipal, token: Token, verdict: Verdict) -> Found:
        """What a token is worth, its signature first: before that, no answer reveals anything about its claims."""
        if verdict is not Verdict.VERIFIED:
            return _invalid(source, "The token is not signed by a key that is known here.")
        fault = find_fault(token.claims, source, self._now())
        if fault is not None:
            return _invalid(source, fault)
        value = claim_at(token.claims, source.claim)
        if value is None:
            return _invalid(source, "The token lacks the claim that identifies the caller.")
        return jwt_part(source.claim, token.issuer, value)


def _keys_of(source: JwtPrincipal, ask: Callable[[JwksUrl], RemoteKeys]) -> Keys:
    where = source.keys
    usable = SECRET_ALGORITHMS if isinstance(where, JwtSecret) else PUBLIC_ALGORITHMS
    wrong = [name for name in source.algorithms if name not in usable]
    if wrong or not source.algorithms:
        found = f"`{wrong[0]}` is none" if wrong else "none is named"
        raise PrincipalError(f"a jwt principal with these keys takes algorithms of {', '.join(sorted(usable))}; {found} of them")
    match where:
        case JwtSecret(secret):
            return [secret_key(secret, source.algorithms)]
        case JwksFile(path):
            return _load(path, source.algorithms)
        case JwksUrl():
            return ask(where)
        case _:
            assert_never(where)


def _load(path: str, algorithms: tuple[str, ...]) -> Sequence[VerificationKey]:
    try:
        keys = read_key_set(read_local(path, MAX_SET))
    except LocalFileError as error:
        raise PrincipalError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise PrincipalError(f"{path}: expected a JWK Set (RFC 7517): {error}") from None
    if not any(key.algorithms.intersection(algorithms) for key in keys):
        raise PrincipalError(f"{path}: holds no key that can verify {' or '.join(algorithms)}")
    return keys


def _read(source: JwtPrincipal, facts: Facts) -> Token | Unidentified:
    """The token in a request, well-formed and in an algorithm that is allowed; or why there is none.

    A token of another issuer than the source's counts as absent, so that the next source may be the one that takes it.
    """
    value = single(facts.fields, source.header)
    if value is None:
        return needs(source.header, absent=False, challenges=_MISSING)
    text = value if b" " not in value else of_scheme(value, b"bearer")
    if not text:
        return Unidentified(f"This operation needs a token in the {source.header} field.", source.header, _MISSING, absent=True)
    token = read_token(text)
    if token is None:
        return _invalid(source, "The token is malformed.")
    if source.issuer is not None and token.issuer not in {None, source.issuer}:
        return Unidentified("The token is from another issuer.", source.header, _INVALID, absent=True)
    if token.algorithm not in source.algorithms:
        return _invalid(source, "The token is signed by an algorithm that is not accepted here.")
    return token


def _invalid(source: JwtPrincipal, detail: str) -> Unidentified:
    return Unidentified(detail, source.header, _INVALID)
