"""Who asks: the principal, and the scope in which its keys live.

A scope id is `<scope name>:none`, or `<scope name>:<kinds>.<digest>`. Scope names hold no colon, kinds are fixed words joined by `+`,
digests have a fixed length over length-prefixed parts: so two different (scope, principal) pairs never share an id, and an operator can
still read which scope a record is in.
"""

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gateway.core.headers import Fields, wire_name

NO_PRINCIPAL = "none"
KINDS = (b"header", b"basic", b"certificate", b"jwt", b"forward_auth")
"""The kinds of sources, as the names of parts begin and as scope ids show them."""

Parts: TypeAlias = Sequence[tuple[bytes, bytes]]
"""What the sources of a principal gave, in the policy's order: (`<kind>:<name>`, value). `gateway.principal.parts` makes them."""

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


def scope_of(scope: str, parts: Parts, secret: bytes) -> Scope:
    """The scope of the caller whom `parts` describe; without parts (`none`) one scope for all callers.

    Names and values enter only as a digest under `secret` (keyed BLAKE2b), so that a leaked table gives neither credentials nor users
    away. Raises ValueError for a part whose name begins with none of `KINDS`.
    """
    if not parts:
        return Scope(f"{scope}:{NO_PRINCIPAL}")
    kinds = list(dict.fromkeys([name.partition(b":")[0] for name, _ in parts]))
    if not all(kind in KINDS for kind in kinds):
        raise ValueError("a part of an unknown kind")
    if kinds == [b"header"]:
        return _header_scope(scope, [text for name, value in parts for text in (name[len(b"header:") :], value)], secret)
    flat = [text for part in parts for text in part]
    return Scope(f"{scope}:{b'+'.join(kinds).decode()}.{_digest(flat, secret, b'principal/sources/1')}")


def find_scope(fields: Fields, scope: str, principal: tuple[str, ...], secret: bytes) -> ScopeFound:
    """Derive the scope from the named headers, each of which must be there once and not be empty: the short way to `scope_of`.

    `principal` empty means `none`. A repeated field is refused: which of two an upstream believes is unknown.
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
    return _header_scope(scope, parts, secret)


def _header_scope(scope: str, flat: list[bytes], secret: bytes) -> Scope:
    """Names and values of fields alone have a digest of their own: there are records under it."""
    return Scope(f"{scope}:header.{_digest(flat, secret, b'principal/header/1')}")


def _digest(flat: list[bytes], secret: bytes, purpose: bytes) -> str:
    digest = hashlib.blake2b(length_prefixed(flat), key=_subkey(secret, purpose), digest_size=32).digest()
    return b2a_base64(digest, newline=False).translate(_URL_SAFE).decode().rstrip("=")


@lru_cache(maxsize=8)
def _subkey(secret: bytes, purpose: bytes) -> bytes:
    """A key for one purpose alone, so that digests of different kinds never meet. BLAKE2 takes at most 64 bytes; a secret may have more."""
    return hmac.digest(secret, b"idempotency-gateway/" + purpose, "sha256")


def secret_check_value(secret: bytes) -> str:
    """A value by which a changed digest secret is noticed, from which it cannot be found."""
    return hmac.digest(secret, b"idempotency-gateway/secret-check/1", "sha256").hex()[:32]


def key_digest(secret: bytes, scope_id: str, key: str) -> str:
    """The key as logs show it: 16 hex digits, keyed, so that a log does not give keys away and the same key is still recognised."""
    digest, text = _logged_scope(secret, scope_id).copy(), key.encode()
    digest.update(b"%d:%b," % (len(text), text))
    return digest.hexdigest()


@lru_cache(maxsize=4096)
def _logged_scope(secret: bytes, scope_id: str) -> hashlib.blake2b:
    """A hash that has taken in the first of two parts, as `length_prefixed` encodes it."""
    return hashlib.blake2b(length_prefixed([scope_id.encode()]), key=_subkey(secret, b"log/1"), digest_size=8)


def derived_key(secret: bytes, scope_id: str, key: str) -> bytes:
    """The key for the next hop under `forward_key: derived`: tenants that chose the same key cannot collide there."""
    message = b"idempotency-gateway/forward/1\0" + length_prefixed([scope_id.encode(), key.encode()])
    return b"idg_" + hmac.new(secret, message, hashlib.sha256).hexdigest()[:48].encode()
