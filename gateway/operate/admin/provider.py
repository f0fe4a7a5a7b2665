"""The OpenID Connect provider that users of the console log in at: discovery, the code's exchange, its keys."""

import asyncio
import hashlib
import hmac
import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import dumps
from urllib.parse import quote_plus

import aiohttp

from gateway.config import OidcSettings
from gateway.core.oidc import (
    Metadata,
    authorization_url,
    ended_at,
    find_fault,
    find_logout_fault,
    logout_url,
    metadata_url,
    name_of,
    named_session,
    named_subject,
    read_metadata,
    role_of,
)
from gateway.core.principal_source import JwksUrl
from gateway.core.roles import Role
from gateway.core.sessions import sign, unsign
from gateway.core.strict_json import AS_PYTHON, read
from gateway.operate.admin.refusals import LoginRefused, ProviderAway
from gateway.ports import Clock
from gateway.principal.jwks import RemoteKeys
from gateway.principal.keys import Verdict, verify
from gateway.principal.token import read_token
from gateway.tls import client_context

TIMEOUT = 10.0
"""Seconds for one question to the provider."""
FRESH = 3600.0
"""Seconds for which its metadata count."""
RETRY = 5.0
"""Seconds after a failure in which they are not asked for again: whoever waited for that question has its answer."""
ANSWER_MAX = 256 * 1024
LOGIN_SECONDS = 600.0
"""How long a login may take."""

_BAD_REQUEST = 400
_PENDING_KEY = b"idempotency-gateway/oidc/1"


@dataclass(frozen=True, slots=True)
class Pending:
    """A login that is under way: what the browser keeps meanwhile, signed."""

    state: str
    nonce: str
    verifier: str
    target: str
    began: int


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """Whom the provider has logged in. `provider_session` is empty where it names none."""

    name: str
    role: Role
    subject: str
    provider_session: str


def stamp_of(settings: OidcSettings) -> str:
    """Names provider, client and groups' roles in sessions: when one of them changes, its users log in anew."""
    text = repr((settings.issuer, settings.client_id, settings.groups_claim, settings.name_claim, sorted(settings.roles)))
    return "oidc:" + hashlib.sha256(text.encode()).hexdigest()[:16]


def new_pending(target: str, now: float) -> Pending:
    return Pending(secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48), target, int(now))


def write_pending(pending: Pending, key: bytes) -> str:
    text = dumps([pending.state, pending.nonce, pending.verifier, pending.target, pending.began])
    return sign(text.encode(), hmac.digest(key, _PENDING_KEY, hashlib.sha256))


def read_pending(cookie: str, key: bytes, now: float) -> Pending | None:
    """None for any other text, and for a login that took too long."""
    payload = unsign(cookie, hmac.digest(key, _PENDING_KEY, hashlib.sha256))
    if payload is None:
        return None
    match read(payload, AS_PYTHON):
        case [str(state), str(nonce), str(verifier), str(target), int(began)] if 0 <= now - began < LOGIN_SECONDS:
            return Pending(state, nonce, verifier, target, began)
        case _:
            return None


class Provider:
    """One provider. `now` is the wall clock. Its methods raise `ProviderAway`."""

    def __init__(
        self,
        settings: OidcSettings,
        redirect_uri: str,
        clock: Clock,
        *,
        now: Callable[[], float] = time.time,  # noqa: TID251 - `exp` and `iat` are instants of the wall clock
    ) -> None:
        self.settings = settings
        self.stamp = stamp_of(settings)
        self._redirect_uri = redirect_uri
        self._clock = clock
        self._now = now
        self._metadata: tuple[Metadata, float] | None = None
        self._failed: tuple[str, float] | None = None
        self._keys: RemoteKeys | None = None
        self._asking = asyncio.Lock()

    async def login_url(self, pending: Pending) -> str:
        """Where the browser goes."""
        metadata = await self._discovered()
        return authorization_url(
            metadata.authorization_endpoint,
            client_id=self.settings.client_id,
            redirect_uri=self._redirect_uri,
            scopes=self.settings.scopes,
            state=pending.state,
            nonce=pending.nonce,
            verifier=pending.verifier,
        )

    async def logged_in(self, pending: Pending, answer: Mapping[str, str]) -> LoggedIn:
        """Judge what the browser brings back. Raises `LoginRefused`."""
        if not hmac.compare_digest(answer.get("state", "").encode(), pending.state.encode()):
            raise LoginRefused("failed", "the answer is of another login")
        if "code" not in answer:
            raise LoginRefused("failed", f"the provider says {answer.get('error', 'nothing')[:60]!r}")
        metadata = await self._discovered()
        issuer = answer.get("iss")
        if issuer != metadata.issuer and (issuer is not None or metadata.names_itself):
            raise LoginRefused("failed", "the answer is of another provider")
        claims = await self._verified(await self._exchanged(metadata, answer["code"], pending.verifier))
        fault = find_fault(claims, issuer=metadata.issuer, client_id=self.settings.client_id, nonce=pending.nonce, now=self._now())
        if fault is not None:
            raise LoginRefused("failed", fault)
        name, role = name_of(claims, self.settings.name_claim), role_of(claims, self.settings.groups_claim, self.settings.roles)
        if name is None:
            raise LoginRefused("failed", f"the id token has no name in `{self.settings.name_claim}`")
        if role is None:
            raise LoginRefused("no-role", f"{name} is in no group with a role")
        return LoggedIn(name, role, named_subject(claims), named_session(claims))

    async def logged_out(self, logout_token: str) -> tuple[str, str, int]:
        """Subject and session, of which one may be empty, that the provider says have ended, and up to which beginning. Raises
        `LoginRefused`.
        """
        metadata = await self._discovered()
        claims, now = await self._verified(logout_token), self._now()
        fault = find_logout_fault(claims, issuer=metadata.issuer, client_id=self.settings.client_id, now=now)
        if fault is not None:
            raise LoginRefused("failed", fault)
        return named_subject(claims), named_session(claims), ended_at(claims, now)

    async def logout_url(self, back_to: str) -> str | None:
        """Where the browser goes to log out there, too; None if the provider has no such place, or is away."""
        try:
            endpoint = (await self._discovered()).end_session_endpoint
        except ProviderAway:
            return None
        return None if endpoint is None else logout_url(endpoint, client_id=self.settings.client_id, back_to=back_to)

    async def close(self) -> None:
        if self._keys is not None:
            await self._keys.close()

    async def _discovered(self) -> Metadata:
        async with self._asking:
            now = self._clock.boottime()
            if self._metadata is not None and now - self._metadata[1] < FRESH:
                return self._metadata[0]
            if self._failed is not None and now - self._failed[1] < RETRY:
                return self._as_known()
            try:
                metadata = read_metadata(await _ask("GET", metadata_url(self.settings.issuer)), self.settings.issuer)
            except (ProviderAway, ValueError) as error:
                self._failed = (str(error), self._clock.boottime())
                return self._as_known()
            if self._keys is None or self._metadata is None or self._metadata[0].jwks_uri != metadata.jwks_uri:
                before, self._keys = self._keys, RemoteKeys(JwksUrl(metadata.jwks_uri), self._clock, tls=client_context(None))
                if before is not None:
                    await before.close()
            self._metadata = (metadata, now)
            return metadata

    def _as_known(self) -> Metadata:
        """Its metadata from before it failed."""
        if self._metadata is None:
            raise ProviderAway("it was not there" if self._failed is None else self._failed[0])
        return self._metadata[0]

    async def _exchanged(self, metadata: Metadata, code: str, verifier: str) -> str:
        """The id token for a code."""
        settings = self.settings
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect_uri, "code_verifier": verifier}
        basic = None
        if settings.client_secret is not None and metadata.basic:
            # RFC 6749 section 2.3.1 has both in the form's encoding.
            basic = b64encode(f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}".encode()).decode()
        else:
            form["client_id"] = settings.client_id
            if settings.client_secret is not None:
                form["client_secret"] = settings.client_secret
        try:
            document = read(await _ask("POST", metadata.token_endpoint, form, basic), AS_PYTHON)
        except ValueError:
            raise ProviderAway("its token endpoint answers no JSON") from None
        except ProviderAway as away:
            if away.status == _BAD_REQUEST:  # RFC 6749 section 5.2
                raise LoginRefused("failed", "the provider refuses the code, or does not know the client (status 400)") from None
            raise
        token = document.get("id_token") if isinstance(document, dict) else None
        if not isinstance(token, str):
            raise ProviderAway("its token endpoint gives no id token")
        return token

    async def _verified(self, text: str) -> Mapping[str, object]:
        """The claims of a token with a good signature. A key that is not known is asked for, once in a while."""
        token = read_token(text.encode("utf-8", "surrogateescape"))
        if token is None or self._keys is None:
            raise LoginRefused("failed", "this is no signed token")
        keys = await self._keys.keys()
        if keys is None:
            raise ProviderAway("its keys cannot be had")
        verdict = verify(token, keys)
        if verdict is not Verdict.VERIFIED:
            newer = await self._keys.newer(keys)
            verdict = verdict if newer is None else verify(token, newer)
        if verdict is not Verdict.VERIFIED:
            raise LoginRefused("failed", "no key of the provider signed the token")
        return token.claims


async def _ask(method: str, url: str, form: Mapping[str, str] | None = None, basic: str | None = None) -> bytes:
    """The body of a 200 answer. No redirect is followed: the URL is the provider's own word."""
    fields = {"Accept": "application/json", **({} if basic is None else {"Authorization": f"Basic {basic}"})}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT)) as session,
            session.request(method, url, data=form, allow_redirects=False, headers=fields) as response,
        ):
            body = b""
            async for piece in response.content.iter_chunked(64 * 1024):
                body += piece
                if len(body) > ANSWER_MAX:
                    raise ProviderAway(f"an answer of more than {ANSWER_MAX} bytes from {response.url.host}")
            if response.status != 200:
                raise ProviderAway(f"status {response.status} from {response.url.host}", response.status)
            return body
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ProviderAway(f"{type(error).__name__} from {url.partition('?')[0]}") from None
