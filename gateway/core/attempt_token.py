"""`Idempotency-Token`: what an upstream that takes part shows to speak for exactly one attempt. Pure.

The token names the record and the owner of the attempt: base64url, without padding, of a version byte, the 16 bytes of the owner, the
length of the scope id (two bytes, big-endian), the scope id and the key, both in UTF-8. `gateway/store/co_commit.sql` reads it, too.

Nobody can forge one: the owner is random, fresh for each attempt, and is told to the upstream alone. Nothing is told by a token that its
holder does not know already, but for the digest of the principal in the scope id.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import dataclass

from gateway.core.model import RecordKey

VERSION = 1

_OWNER = 16
_HEAD = 1 + _OWNER + 2
_TEXT = re.compile(r"[A-Za-z0-9_-]{1,8192}")


@dataclass(frozen=True, slots=True)
class AttemptToken:
    """One attempt: where its record is, and the owner token that fences its writes."""

    key: RecordKey
    owner: bytes


def write_token(token: AttemptToken) -> str:
    """The text of a token. Its owner has 16 bytes."""
    scope, key = token.key.scope_id.encode(), token.key.key.encode()
    raw = bytes([VERSION]) + token.owner + len(scope).to_bytes(2, "big") + scope + key
    return urlsafe_b64encode(raw).decode().rstrip("=")


def read_token(text: str) -> AttemptToken | None:
    """The inverse of `write_token`; None for any text that it did not make, and for names that no record has."""
    if _TEXT.fullmatch(text) is None:
        return None
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        middle = _HEAD + int.from_bytes(raw[_HEAD - 2 : _HEAD], "big")
        scope, key = raw[_HEAD:middle].decode(), raw[middle:].decode("ascii")
        token = AttemptToken(RecordKey(scope, key), raw[1 : 1 + _OWNER])
    except (Error, ValueError):
        return None
    sound = raw[0] == VERSION and scope.isprintable() and key.isprintable()
    return token if sound and write_token(token) == text else None
