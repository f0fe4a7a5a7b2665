"""Issuers of tokens for the tests: real keys, real signatures, and tokens that no library would make."""

import base64
import functools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import Algorithm, get_default_algorithms

from gateway.core.headers import Fields
from gateway.principal import Facts

ALGORITHMS: dict[str, Algorithm] = get_default_algorithms()
ISSUER = "https://issuer.test"
SECRET = b"a secret that is shared by two, and long enough for all of the three hashes"


@functools.cache
def private_key(algorithm: str, number: int) -> Any:
    """The private key with this number. Keys are made once for all tests; making an RSA key takes long."""
    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "ES384":
            return ec.generate_private_key(ec.SECP384R1())
        case "ES512":
            return ec.generate_private_key(ec.SECP521R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(algorithm: str, number: int = 0, **members: object) -> dict[str, object]:
    """The public half as a JWK, with further members."""
    jwk = ALGORITHMS[algorithm].to_jwk(private_key(algorithm, number).public_key(), as_dict=True)
    return {name: value for name, value in jwk.items() if name != "key_ops"} | members


def key_set(*keys: Mapping[str, object]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def segment(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def compact(header: object, payload: object, signature: bytes) -> bytes:
    """A token of any parts whatever. Parts that are bytes are taken as they are."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    return b".".join([segment(part) for part in (*parts, signature)])


def signed(header: object, payload: object, algorithm: str, key: Any) -> bytes:
    """A token of these parts with a good signature."""
    signing = compact(header, payload, b"").rstrip(b".")
    return signing + b"." + segment(ALGORITHMS[algorithm].sign(signing, key))


def claims(subject: object = "tenant-a", **more: object) -> dict[str, object]:
    """Claims that hold for a day: a token made while tests are collected is used by the last of them. One that is None is left out."""
    everything = {"iss": ISSUER, "sub": subject, "exp": int(time.time()) + 86400, **more}  # noqa: TID251 - `exp` is an instant of the wall clock
    return {name: value for name, value in everything.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Signer:
    """One key of an issuer."""

    algorithm: str = "ES256"
    key_id: str | None = "one"
    number: int = 0

    def token(self, subject: object = "tenant-a", **more: object) -> bytes:
        header = {"alg": self.algorithm, "typ": "JWT"} | ({} if self.key_id is None else {"kid": self.key_id})
        key = SECRET if self.algorithm.startswith("HS") else private_key(self.algorithm, self.number)
        return signed(header, claims(subject, **more), self.algorithm, key)

    def jwk(self, **members: object) -> dict[str, object]:
        return public_jwk(self.algorithm, self.number, **({} if self.key_id is None else {"kid": self.key_id}), **members)


def facts(*lines: tuple[bytes, bytes], trusted: bool = False, subject: bytes | None = None) -> Facts:
    """A request with these field lines."""
    return Facts(Fields(lines), "POST", b"/v1/pay?a=b", b"api.test", b"https", trusted, subject)


def bearer(token: bytes) -> Facts:
    return facts((b"Authorization", b"Bearer " + token))
