"""Files of keys as an issuer publishes them, and as nobody should."""

import json
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, rsa


def write_keys(path: Path, *keys: dict[str, str]) -> Path:
    path.write_text(json.dumps({"keys": keys}))
    return path


@cache
def rsa_key(bits: int = 2048) -> dict[str, str]:
    """A public key that nobody has the private half of."""
    numbers = rsa.generate_private_key(public_exponent=65537, key_size=bits).public_key().public_numbers()
    return {"kty": "RSA", "kid": "rsa", "use": "sig", "n": _number(numbers.n), "e": _number(numbers.e)}


@cache
def ec_key() -> dict[str, str]:
    numbers = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    return {"kty": "EC", "crv": "P-256", "kid": "ec", "x": _number(numbers.x, 32), "y": _number(numbers.y, 32)}


def _number(value: int, length: int | None = None) -> str:
    raw = value.to_bytes(length or (value.bit_length() + 7) // 8, "big")
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
