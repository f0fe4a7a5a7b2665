"""Reading a JWT (RFC 7519) in the compact form of a JWS (RFC 7515), strictly, and judging its claims. Pure; verifies no
signature.
"""

import base64
import binascii
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from gateway.core.principal_source import JwtPrincipal
from gateway.core.strict_json import AS_PYTHON, read

MAX_TOKEN = 16 * 1024
"""Bytes. What is longer is refused unread."""

_COMPACT = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")


@dataclass(frozen=True, slots=True)
class Token:
    """A well-formed token, of which nothing is proved. `signed` are the bytes that `signature` is about."""

    algorithm: str
    key_id: str | None
    claims: Mapping[str, object]
    signed: bytes
    signature: bytes

    @property
    def issuer(self) -> str | None:
        """The issuer that the token claims; None if it claims none, or not by a text."""
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else None


def read_token(text: bytes) -> Token | None:
    """Take a token apart. None if it is none: too long, encrypted, unsigned, no strict JSON, or with a critical
    extension.

    Keys that a header brings along or points to (`jwk`, `jku`, `x5c`, `x5u`) are never looked at.
    """
    parts = _COMPACT.fullmatch(text) if len(text) <= MAX_TOKEN else None
    if parts is None:
        return None
    try:
        header, claims = read(_decode(parts[1]), AS_PYTHON), read(_decode(parts[2]), AS_PYTHON)
        signature = _decode(parts[3])
    except ValueError:
        return None
    if not isinstance(header, dict) or not isinstance(claims, dict) or "crit" in header or "b64" in header:
        return None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
        return None
    return Token(algorithm, key_id, claims, text[: parts.end(2)], signature)


def find_fault(claims: Mapping[str, object], source: JwtPrincipal, now: float) -> str | None:
    """What speaks against a token whose signature is good, at `now` (seconds since the epoch), as a sentence; None if
    nothing does.

    `exp` must be there: a token that never ends could be replayed for ever. `nbf` counts if it is there, `iat` does
    not. (RFC 7519 section 4.1; instants are compared as they are, so that no number is too large.)
    """
    if source.issuer is not None and claims.get("iss") != source.issuer:
        return "The token is from another issuer."
    if source.audience and not _meant(claims.get("aud"), source.audience):
        return "The token is for another audience."
    expiry, start = claims.get("exp"), claims.get("nbf", 0)
    if not _is_instant(expiry) or not _is_instant(start):
        return "The token does not say until when it holds (exp), or from when (nbf) in another way than by a number."
    if expiry <= now - source.leeway:
        return "The token has expired."
    if start > now + source.leeway:
        return "The token does not hold yet."
    return None


def claim_at(claims: Mapping[str, object], path: tuple[str, ...]) -> bytes | None:
    """The text or whole number at this path of object members, as bytes that tell the two apart. None for anything
    else, and for "".
    """
    value: object = claims
    for segment in path:
        value = value.get(segment) if isinstance(value, dict) else None
    if isinstance(value, str) and value:
        try:
            return b"text:" + value.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return None
    if isinstance(value, int) and not isinstance(value, bool):
        return b"number:%d" % value
    return None


def _decode(segment: bytes) -> bytes:
    """Base64url without padding (RFC 7515 section 2). Raises ValueError."""
    try:
        return base64.b64decode(segment + b"=" * (-len(segment) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _meant(audience: object, wanted: tuple[str, ...]) -> bool:
    """Whether one of the wanted names is in `aud`, which is a text or a list of texts (RFC 7519 section 4.1.3)."""
    names = audience if isinstance(audience, list) else [audience]
    return any(isinstance(name, str) and name in wanted for name in names)


def _is_instant(value: object) -> TypeGuard[int | float]:
    """Whether it is a NumericDate: a number, and a finite one."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and math.isfinite(value))
