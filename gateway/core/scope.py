"""Who asks: the principal, and the scope in which its keys live.

A scope id is `<scope name>:<kind>[.<digest>]`. Scope names hold no colon, kinds are fixed words, digests have a fixed length over
length-prefixed parts: so two different (scope, principal) pairs never share an id, and an operator can still read which scope a
record is in.
"""

import hashlib
import hmac
from binascii import b2a_base64
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gateway.core.headers import Fields, wire_name

NO_PRINCIPAL = "none"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@dataclass(frozen=True, slots=True)
class Scope:
    """Where this caller's keys live."""

    id: str


@dataclass(frozen=True, slots=True)
class PrincipalMissing:
    """The caller did not show what the route derives its principal from. `header` is the field that is absent or repeated."""

    header: str


ScopeFound: TypeAlias = Scope | PrincipalMissing


def length_prefixed(parts: list[bytes]) -> bytes:
    """An injective encoding of a list of byte strings: no two lists share one."""
    flat: list[int | bytes] = []
    for part in parts:
        flat.append(len(part))
        flat.append(part)
    return b"%d:%b," * len(parts) % tuple(flat)  # formatted once: half the cost of a join of formatted parts


def find_scope(fields: Fields, scope: str, principal: tuple[str, ...], secret: bytes) -> ScopeFound:
    """Derive the scope from the named headers, each of which must be there once and not be empty.

    `principal` empty means `none`: one scope for all callers. Values enter only as a digest under `secret` (keyed BLAKE2b), so
    that a leaked table does not give credentials away. A repeated field is refused: which of two an upstream believes is unknown.
    """
    if not principal:
        return Scope(f"{scope}:{NO_PRINCIPAL}")
    parts: list[bytes] = []
    for name in principal:
        wanted = wire_name(name)
        values = fields.values(wanted)
        value = values[0].strip(b" \t") if len(values) == 1 else b""
        if not value:
            return PrincipalMissing(name)
        parts.append(wanted)
        parts.append(value)
    digest = hashlib.blake2b(length_prefixed(parts), key=_subkey(secret, b"principal/header/1"), digest_size=32).digest()
    return Scope(f"{scope}:header.{b2a_base64(digest, newline=False).translate(_URL_SAFE).decode().rstrip('=')}")


@lru_cache(maxsize=8)
def _subkey(secret: bytes, purpose: bytes) -> bytes:
    """A key for one purpose alone, so that digests of different kinds never meet. BLAKE2 takes at most 64 bytes; a secret may have more."""
    return hmac.digest(secret, b"idempotency-gateway/" + purpose, "sha256")


def secret_check_value(secret: bytes) -> str:
    """A value by which a changed digest secret is noticed, from which it cannot be found."""
    return hmac.digest(secret, b"idempotency-gateway/secret-check/1", "sha256").hex()[:32]


def key_digest(secret: bytes, scope_id: str, key: str) -> str:
    """The key as logs show it: 16 hex digits, keyed, so that a log does not give keys away and the same key is still recognised."""
    message = length_prefixed([scope_id.encode(), key.encode()])
    return hashlib.blake2b(message, key=_subkey(secret, b"log/1"), digest_size=8).hexdigest()


def derived_key(secret: bytes, scope_id: str, key: str) -> bytes:
    """The key for the next hop under `forward_key: derived`: tenants that chose the same key cannot collide there."""
    message = b"idempotency-gateway/forward/1\0" + length_prefixed([scope_id.encode(), key.encode()])
    return b"idg_" + hmac.new(secret, message, hashlib.sha256).hexdigest()[:48].encode()
