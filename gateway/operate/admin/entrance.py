"""Whom the admin listener knows: users by their tokens, and browsers by their sessions. Where it knows nobody, it is open to whoever is
on this machine.

It goes by the configuration in force: a user who is no longer in it is locked out with the reload, sessions and all.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.config import Admin, Config
from gateway.core.roles import Role
from gateway.core.sessions import ID_SIZE, Session, alive, csrf_token, is_csrf_token, read_session, write_session
from gateway.core.user_token import digest_of, is_token
from gateway.operate.admin.throttle import LoginThrottle
from gateway.operate.operations import Caller

SHARED = "admin"
"""The user whose token is `admin.token`."""

_SESSION_KEY = b"idempotency-gateway/session key/1"
_NEW_SEEN = 60.0
"""Seconds after which a cookie is written anew, so that it tells when its session was seen; a tenth of `idle`, if that is less."""


@dataclass(frozen=True, slots=True)
class Known:
    """A user by the digest of its token. `chosen`: somebody chose the token (`admin.token`), so that it may have any form."""

    name: str
    role: Role
    digest: bytes = field(repr=False)
    chosen: bool = False

    @property
    def stamp(self) -> str:
        """Names the token in sessions that it began."""
        return hashlib.sha256(b"stamp\0" + self.digest).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Settings:
    """What of a configuration the entrance goes by. `secret` None: the key of sessions is made of chance."""

    users: tuple[Known, ...] = ()
    idle: float = 900.0
    absolute: float = 43200.0
    secret: bytes | None = field(default=None, repr=False)
    url: str | None = None

    @classmethod
    def of(cls, admin: Admin, secret: bytes | None = None) -> "Settings":
        """`secret` stands in for that of the sessions where they have none."""
        users = [Known(user.name, user.role, user.token_digest) for user in admin.users]
        if admin.token is not None:
            users.append(Known(SHARED, Role.ADMIN, digest_of(admin.token), chosen=True))
        return cls(tuple(users), admin.sessions.idle, admin.sessions.absolute, admin.sessions.secret or secret, admin.url)

    @classmethod
    def of_config(cls, config: Config) -> "Settings":
        return cls.of(config.admin, config.encryption_keys[0] if config.encryption_keys else None)


class Entrance:
    """See the module. `settings` is asked at each request. `now` is the wall clock, in seconds since the epoch: cookies tell instants, and
    several gateways read them.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        *,
        now: Callable[[], float] = time.time,  # noqa: TID251 - cookies tell instants, and other gateways read them
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._now = now
        self._chance = secrets.token_bytes(32)
        self._ended: dict[bytes, float] = {}
        self.throttle = LoginThrottle(clock)

    @classmethod
    def fixed(cls, token: str | None) -> "Entrance":
        """That of a listener with this `admin.token`, or with nothing."""
        settings = Settings.of(Admin(token=token))
        return cls(lambda: settings)

    @property
    def guarded(self) -> bool:
        """Whether it knows anybody. If not, whoever is on this machine is `ANYBODY`."""
        return bool(self._settings().users)

    @property
    def url(self) -> str | None:
        """Where browsers reach the listener, if the configuration says so."""
        return self._settings().url

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
        if session is None or not alive(session, now, idle=settings.idle, absolute=settings.absolute) or session.id in self._ended:
            return None
        return session

    def of_session(self, session: Session) -> Caller | None:
        """The caller of a session that lives; None if the user is gone, or has another token by now."""
        for user in self._settings().users:
            if user.name == session.name and hmac.compare_digest(user.stamp, session.stamp):
                return Caller(user.name, user.role, identity=f"user:{user.name}", session=session.id)
        return None

    def renewed(self, session: Session) -> Session | None:
        """The session as seen now; None if its cookie says so well enough."""
        now = self._now()
        if now - session.seen < min(_NEW_SEEN, self._settings().idle / 10):
            return None
        return Session(
            session.id, session.name, session.stamp, session.began, int(now), session.role, session.subject, session.provider_session
        )

    async def end(self, session: Session) -> None:
        """Log out: whoever has the cookie has nothing any more."""
        now, settings = self._now(), self._settings()
        self._ended = {name: until for name, until in self._ended.items() if until > now}
        self._ended[session.id] = session.began + settings.absolute

    # ---- forms

    def csrf_token(self, session_id: bytes) -> str:
        """What a form carries."""
        return csrf_token(session_id, self._key())

    def is_csrf_token(self, given: str, session_id: bytes) -> bool:
        return is_csrf_token(given, session_id, self._key())

    def _key(self) -> bytes:
        secret = self._settings().secret or self._chance
        return hmac.digest(secret, _SESSION_KEY, hashlib.sha256)
