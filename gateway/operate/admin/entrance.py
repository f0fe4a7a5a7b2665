"""Whom the admin listener knows: users by their tokens, and browsers by their sessions. Where it knows nobody, it is open to whoever is
on this machine.

It goes by the configuration in force: a user who is no longer in it is locked out with the reload, sessions and all.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.config import Admin, Config, OidcSettings
from gateway.core.client_address import Network, client_address, trusted
from gateway.core.headers import Fields, Forwarding
from gateway.core.roles import Role
from gateway.core.sessions import ID_SIZE, Session, alive, csrf_token, is_csrf_token, read_session, write_session
from gateway.core.user_token import digest_of, is_token
from gateway.operate.admin.ended import Ended
from gateway.operate.admin.throttle import LoginThrottle
from gateway.operate.operations import Caller
from gateway.ports.approvals import EndedSessions
from gateway.runtime.system import SystemClock

if TYPE_CHECKING:
    from gateway.operate.admin.provider import LoggedIn, Pending, Provider

SHARED = "admin"
"""The user whose token is `admin.token`."""

_SESSION_KEY = b"idempotency-gateway/session key/1"
_NEW_SEEN = 60.0
"""Seconds after which a cookie is written anew, so that it tells when its session was seen; a tenth of `idle`, if that is less."""


@dataclass(frozen=True, slots=True)
class Known:
    """A user by the digest of its token. `chosen`: somebody chose the token (`admin.token`), so that it may have any form. `subject`: the
    same person's at the provider.
    """

    name: str
    role: Role
    digest: bytes = field(repr=False)
    chosen: bool = False
    subject: str | None = None

    @property
    def stamp(self) -> str:
        """Names the token in sessions that it began."""
        return hashlib.sha256(b"stamp\0" + self.digest).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Settings:
    """What of a configuration the entrance goes by. `secret` None: the key of sessions is made of chance. `proxies` may speak for their
    clients, in the fields of `forwarding`.
    """

    users: tuple[Known, ...] = ()
    idle: float = 900.0
    absolute: float = 43200.0
    secret: bytes | None = field(default=None, repr=False)
    url: str | None = None
    oidc: OidcSettings | None = None
    proxies: tuple[Network, ...] = ()
    forwarding: Forwarding = Forwarding.X_FORWARDED

    @classmethod
    def of(cls, admin: Admin, secret: bytes | None = None) -> "Settings":
        """`secret` stands in for that of the sessions where they have none."""
        users = [Known(user.name, user.role, user.token_digest, subject=user.subject) for user in admin.users]
        if admin.token is not None:
            users.append(Known(SHARED, Role.ADMIN, digest_of(admin.token), chosen=True))
        return cls(tuple(users), admin.sessions.idle, admin.sessions.absolute, admin.sessions.secret or secret, admin.url, admin.oidc)

    @classmethod
    def of_config(cls, config: Config) -> "Settings":
        made = cls.of(config.admin, config.encryption_keys[0] if config.encryption_keys else None)
        return replace(made, proxies=config.trusted_proxies, forwarding=config.forwarded)


class Entrance:
    """See the module. `throttle` counts failed logins, `codes` those by the provider. `settings` is asked at each request. `now` is the
    wall clock, in seconds since the epoch: cookies tell instants, and several gateways read them.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        *,
        now: Callable[[], float] = time.time,  # noqa: TID251 - cookies tell instants, and other gateways read them
        clock: Callable[[], float] = time.monotonic,
        ended: EndedSessions | None = None,
    ) -> None:
        self._settings = settings
        self._now = now
        self._chance = secrets.token_bytes(32)
        self._ended = Ended(ended, clock)
        self._provider: Provider | None = None
        self.throttle = LoginThrottle(clock)
        self.codes = LoginThrottle(clock, together=False)

    @classmethod
    def fixed(cls, token: str | None) -> "Entrance":
        """That of a listener with this `admin.token`, or with nothing."""
        settings = Settings.of(Admin(token=token))
        return cls(lambda: settings)

    @property
    def guarded(self) -> bool:
        """Whether it knows anybody. If not, whoever is on this machine is `ANYBODY`."""
        settings = self._settings()
        return bool(settings.users) or settings.oidc is not None

    @property
    def url(self) -> str | None:
        """Where browsers reach the listener, if the configuration says so."""
        return self._settings().url

    def address_of(self, request: web.Request) -> str:
        """Whose failures these are: behind proxies that the configuration trusts their client's, else one client would count for all."""
        settings, peer = self._settings(), request.remote or ""
        if not settings.proxies:
            return peer
        return client_address(Fields(request.raw_headers), peer, lambda peer: trusted(peer, settings.proxies), settings.forwarding)

    @property
    def provider(self) -> "Provider | None":
        """That of the configuration in force, made when it is first asked for: it needs the extra `oidc`."""
        settings = self._settings()
        if settings.oidc is None:
            return None
        if self._provider is None or self._provider.settings != settings.oidc:
            from gateway.operate.admin.provider import Provider  # noqa: PLC0415 - of the extra `oidc`, which may not be installed

            self._provider = Provider(settings.oidc, f"{settings.url}/console/oidc/callback", SystemClock(), now=self._now)
        return self._provider

    # ---- tokens

    def of_token(self, token: str) -> Caller | None:
        """The caller with this token. All users' digests are compared, each in constant time."""
        found = self._known(token)
        return None if found is None else Caller(found.name, found.role, identity=f"user:{found.name}")

    def _known(self, token: str) -> Known | None:
        digest, made, found = digest_of(token), is_token(token), None
        for user in self._settings().users:
            if hmac.compare_digest(user.digest, digest) and (made or user.chosen):
                found = user
        return found

    # ---- sessions

    def login(self, token: str) -> Session | None:
        """A new session of the user with this token."""
        found = self._known(token)
        return None if found is None else self._begin(found.name, found.stamp)

    def _begin(self, name: str, stamp: str) -> Session:
        now = int(self._now())
        return Session(secrets.token_bytes(ID_SIZE), name, stamp, now, now)

    def write(self, session: Session) -> str:
        """The cookie of a session."""
        return write_session(session, self._key())

    def read(self, cookie: str) -> Session | None:
        """The session of a cookie, if it lives."""
        settings, now = self._settings(), self._now()
        session = read_session(cookie, self._key())
        if session is None or not alive(session, now, idle=settings.idle, absolute=settings.absolute):
            return None
        return None if self._ended.has_any(_names_of(session), session.began) else session

    def of_session(self, session: Session) -> Caller | None:
        """The caller of a session that lives; None if the user is gone, or has another token by now."""
        for user in self._settings().users:
            if user.name == session.name and hmac.compare_digest(user.stamp, session.stamp):
                return Caller(user.name, user.role, identity=f"user:{user.name}", session=session.id)
        provider = self.provider
        if provider is not None and session.role is not None and hmac.compare_digest(provider.stamp, session.stamp):
            return Caller(session.name, session.role, identity=self._person(session.subject), session=session.id)
        return None

    def _person(self, subject: str) -> str:
        """Who a subject of the provider is to second approvals: a user of the configuration, if one says so."""
        known = next((user.name for user in self._settings().users if user.subject == subject), None)
        return f"oidc:{subject}" if known is None else f"user:{known}"

    def renewed(self, session: Session) -> Session | None:
        """The session as seen now; None if its cookie says so well enough."""
        now = self._now()
        return None if now - session.seen < min(_NEW_SEEN, self._settings().idle / 10) else replace(session, seen=int(now))

    async def end(self, session: Session) -> None:
        """Log out: whoever has the cookie has nothing any more, at once here, and within seconds at all gateways."""
        await self._ended.add(_digest("id", session.id.hex()), int(self._now()), self._settings().absolute)

    async def keep_up(self) -> None:
        """Hear what sessions have ended at other gateways, now and then, and wait for that no longer than a moment."""
        await self._ended.keep_up()

    # ---- the provider

    def new_pending(self, target: str) -> "Pending":
        from gateway.operate.admin.provider import new_pending  # noqa: PLC0415 - as above

        return new_pending(target, self._now())

    def write_pending(self, pending: "Pending") -> str:
        """The cookie of a login that is under way."""
        from gateway.operate.admin.provider import write_pending  # noqa: PLC0415 - as above

        return write_pending(pending, self._key())

    def read_pending(self, cookie: str) -> "Pending | None":
        from gateway.operate.admin.provider import read_pending  # noqa: PLC0415 - as above

        return read_pending(cookie, self._key(), self._now())

    def logged_in(self, provider: "Provider", who: "LoggedIn") -> Session:
        """A new session of the provider's user."""
        begun = self._begin(who.name, provider.stamp)
        return replace(begun, role=who.role, subject=who.subject, provider_session=who.provider_session)

    async def end_of(self, provider: "Provider", subject: str, provider_session: str, at: int) -> None:
        """End all sessions of the provider's session, or, if it names none, of its user, that began at `at` or before."""
        kind, name = ("sid", provider_session) if provider_session else ("sub", subject)
        await self._ended.add(_digest(kind, provider.stamp, name), at, self._settings().absolute)

    # ---- forms

    def csrf_token(self, session_id: bytes) -> str:
        """What a form carries."""
        return csrf_token(session_id, self._key())

    def is_csrf_token(self, given: str, session_id: bytes) -> bool:
        return is_csrf_token(given, session_id, self._key())

    def _key(self) -> bytes:
        secret = self._settings().secret or self._chance
        return hmac.digest(secret, _SESSION_KEY, hashlib.sha256)


def _names_of(session: Session) -> tuple[bytes, ...]:
    """By what it may have been ended."""
    own = _digest("id", session.id.hex())
    return own, _digest("sid", session.stamp, session.provider_session), _digest("sub", session.stamp, session.subject)


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(("idempotency-gateway/ended/1", *parts)).encode("utf-8", "surrogateescape")).digest()
