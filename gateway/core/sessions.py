"""Sessions of browsers, as signed cookies carry them. Pure: whoever calls brings the key, the clock and the randomness.

A cookie is `<payload>.<signature>`: JSON and an HMAC-SHA256 over it, both in base64url without padding. No cookie is believed before its
signature was compared, in constant time.
"""

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from json import dumps

from gateway.core.roles import Role
from gateway.core.strict_json import AS_PYTHON, read

ID_SIZE = 16
"""Random bytes of a session's id."""

MAX_COOKIE = 3500
"""Characters. A browser keeps 4096 bytes with the cookie's name and attributes."""

_COOKIE, _CSRF = b"idempotency-gateway/session/1", b"idempotency-gateway/csrf/1"
_TEXTS = ("name", "stamp", "subject", "provider_session")


@dataclass(frozen=True, slots=True)
class Session:
    """Who a browser is, since when, and when it was seen last (seconds since the epoch).

    `stamp` names the credential: a session ends when the user's token is another one, or the provider is. `role` None: as the
    configuration says at each request; else the role that a provider's groups gave at the login. `subject` and `provider_session` are
    the provider's own names of the user and of its session, empty without a provider.
    """

    id: bytes
    name: str
    stamp: str
    began: int
    seen: int
    role: Role | None = None
    subject: str = ""
    provider_session: str = ""


def write_session(session: Session, key: bytes) -> str:
    """The cookie's value. Raises ValueError if it is too long for one."""
    payload = {
        "id": session.id.hex(),
        **{name: getattr(session, name) for name in _TEXTS},
        "began": session.began,
        "seen": session.seen,
        "role": session.role,
    }
    return sign(dumps(payload, separators=(",", ":")).encode(), key)


def read_session(cookie: str, key: bytes) -> Session | None:
    """The session of a cookie that `write_session` made under this key; None for any other text."""
    document = _document(unsign(cookie, key))
    if document is None:
        return None
    texts = {name: text for name in ("id", *_TEXTS) if isinstance(text := document.get(name), str)}
    began, seen, role = document.get("began"), document.get("seen"), document.get("role")
    if len(texts) <= len(_TEXTS) or not isinstance(began, int) or not isinstance(seen, int) or not isinstance(role, str | None):
        return None
    try:
        return Session(bytes.fromhex(texts.pop("id")), began=began, seen=seen, role=None if role is None else Role(role), **texts)
    except ValueError:
        return None


def alive(session: Session, now: float, *, idle: float, absolute: float) -> bool:
    """Whether it has ended neither by disuse nor by age. One that begins in the future does not live: some clock was wrong."""
    return session.seen - idle <= now < session.seen + idle and session.began - idle <= now < session.began + absolute


def csrf_token(session_id: bytes, key: bytes) -> str:
    """What each form of a session carries: no page of another origin knows it, and it opens nothing by itself."""
    return _base64(hmac.digest(key, _CSRF + session_id, hashlib.sha256))


def is_csrf_token(given: str, session_id: bytes, key: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), csrf_token(session_id, key).encode())


def sign(payload: bytes, key: bytes) -> str:
    """A payload with its signature. Raises ValueError if no cookie holds it."""
    encoded = _base64(payload)
    made = f"{encoded}.{_signature(encoded, key)}"
    if len(made) > MAX_COOKIE:
        raise ValueError("this is too long for a cookie")
    return made


def unsign(text: str, key: bytes) -> bytes | None:
    """The payload of what `sign` made under this key; None for any other text."""
    encoded, _, signature = text.partition(".")
    given = signature.encode("utf-8", "surrogateescape")
    if len(text) > MAX_COOKIE or not hmac.compare_digest(given, _signature(encoded, key).encode()):
        return None
    try:
        return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return None


def local_target(text: str, prefix: str) -> str:
    """Where to go on after a login: `text` if it is a path of this listener below `prefix`, else `prefix`.

    Browsers take two slashes, of either kind, for the start of a host, and drop tabs and line ends before they look.
    """
    visible = all("!" <= character <= "~" for character in text)
    below = text == prefix or text.startswith((f"{prefix}/", f"{prefix}?"))
    return text if visible and below and "\\" not in text and "//" not in text.partition("?")[0] else prefix


def _document(payload: bytes | None) -> "dict[str, object] | None":
    try:
        document = None if payload is None else read(payload, AS_PYTHON)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _signature(encoded: str, key: bytes) -> str:
    return _base64(hmac.digest(hmac.digest(key, _COOKIE, hashlib.sha256), encoded.encode("utf-8", "surrogateescape"), hashlib.sha256))


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
