"""Tokens of named users: random, of one form, so that nobody chooses a weak one, and known to the configuration by their digest alone.

    igw_<43 characters of base64url: 32 random bytes><6 characters: a checksum>

The checksum tells a slip of the pen, and lets scanners for leaked secrets know one for certain. It guards nothing. A plain SHA-256 is
enough for a digest: there are 2^256 tokens, so that nobody finds one by trying.
"""

import hashlib
import re
from base64 import urlsafe_b64encode

PREFIX = "igw_"
ENTROPY = 32
"""Random bytes of a token."""
DIGEST_PREFIX = "sha256:"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

_TOKEN = re.compile(PREFIX + r"([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})", re.ASCII)
_DIGEST = re.compile(DIGEST_PATTERN[1:-1], re.ASCII)


def make_token(random: bytes) -> str:
    """The token of `ENTROPY` random bytes."""
    if len(random) != ENTROPY:
        raise ValueError(f"a token has {ENTROPY} random bytes")
    body = urlsafe_b64encode(random).decode().rstrip("=")
    return PREFIX + body + _checksum(body)


def is_token(text: str) -> bool:
    """Whether `make_token` could have made it. Nothing else ever opens a named user's account, whatever its digest is."""
    found = _TOKEN.fullmatch(text)
    return found is not None and _checksum(found[1]) == found[2]


def digest_of(token: str) -> bytes:
    """What the configuration knows a token by."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def write_digest(digest: bytes) -> str:
    """A digest as the configuration has it."""
    return DIGEST_PREFIX + digest.hex()


def read_digest(text: str) -> bytes:
    """The inverse of `write_digest`. Raises ValueError with the remedy, and without the text, which may be a token by mistake."""
    if _DIGEST.fullmatch(text) is None:
        raise ValueError("is no digest; `idempotency-gateway users token` makes a token and prints the line, token_digest: sha256:…")
    return bytes.fromhex(text.removeprefix(DIGEST_PREFIX))


def _checksum(body: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(f"idempotency-gateway/token/1\0{body}".encode()).digest())[:6].decode()
