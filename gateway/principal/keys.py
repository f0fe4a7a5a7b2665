"""Keys that verify tokens: JSON Web Keys (RFC 7517) and shared secrets. Signatures are PyJWT's and cryptography's business.

What a key may be used for is decided by the key alone, never by a token: an RSA key verifies RSA signatures, and no public key is
ever taken for a shared secret (RFC 8725 section 3.1).
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import get_default_algorithms
from jwt.exceptions import PyJWTError

from gateway.core.strict_json import AS_PYTHON, read
from gateway.principal.facts import PrincipalError
from gateway.principal.token import Token

MAX_KEYS = 64
"""Keys of one set that are looked at."""

_MAX_TRIES = 8
_MAX_MEMBER = 2048  # characters of one member of a key, which is 12288 bits
_RSA_BITS = range(2048, 8192 + 1)  # RFC 7518 section 3.3 asks for the lower end; verification time grows with the square
_SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}  # RFC 7518 section 3.2: no shorter than the hash
_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_FAMILIES = {
    ("RSA", None): (_RSA, ("n", "e")),
    ("EC", "P-256"): (frozenset({"ES256"}), ("x", "y")),
    ("EC", "P-384"): (frozenset({"ES384"}), ("x", "y")),
    ("EC", "P-521"): (frozenset({"ES512"}), ("x", "y")),
    ("OKP", "Ed25519"): (frozenset({"EdDSA"}), ("x",)),
    ("OKP", "Ed448"): (frozenset({"EdDSA"}), ("x",)),
}
_ALGORITHMS = get_default_algorithms()

PUBLIC_ALGORITHMS = frozenset().union(*(algorithms for algorithms, _ in _FAMILIES.values()))
SECRET_ALGORITHMS = frozenset(_SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key and the algorithms it may be used with. `material` is what the library wants."""

    key_id: str | None
    algorithms: frozenset[str]
    material: object = field(repr=False)


class Verdict(enum.Enum):
    """What keys say of a token. `UNKNOWN`: none of them is the one that signed it, but another might be."""

    VERIFIED = "verified"
    REFUSED = "refused"
    UNKNOWN = "unknown"


def verify(token: Token, keys: Sequence[VerificationKey]) -> Verdict:
    """Try the token's signature with the keys that fit its algorithm and key id; a token or key without an id fits all."""
    fitting = [key for key in keys if token.algorithm in key.algorithms and _same_id(key.key_id, token.key_id)]
    named = [key for key in fitting if key.key_id is not None and key.key_id == token.key_id]
    for key in (named or fitting)[:_MAX_TRIES]:
        if _ALGORITHMS[token.algorithm].verify(token.signed, key.material, token.signature):
            return Verdict.VERIFIED
    return Verdict.REFUSED if named else Verdict.UNKNOWN


def read_key_set(text: bytes) -> tuple[VerificationKey, ...]:
    """The usable keys of a JWK Set. Other kinds and uses, broken and weak ones are left out (RFC 7517 section 5), and so is all private.

    Raises ValueError if the text is no JWK Set.
    """
    document = read(text, AS_PYTHON)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise ValueError("this is no JWK Set")
    return tuple(_read_keys(keys[:MAX_KEYS]))


def secret_key(secret: bytes, algorithms: Sequence[str]) -> VerificationKey:
    """A shared secret. Raises PrincipalError if it is too short for one of the algorithms, or is really a public key."""
    short = [name for name in algorithms if len(secret) < _SECRET_BYTES[name]]
    if short:
        raise PrincipalError(
            f"the secret of a jwt principal is too short for {short[0]}: it must have {_SECRET_BYTES[short[0]]} bytes or more"
        )
    try:
        material = _ALGORITHMS["HS256"].prepare_key(secret)
    except PyJWTError:
        raise PrincipalError("the secret of a jwt principal is a public key, which everybody knows: give it as jwks_file") from None
    return VerificationKey(None, frozenset(algorithms), material)


def _same_id(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def _read_keys(keys: list[dict[str, object]]) -> Iterator[VerificationKey]:
    for key in keys:
        usable = _read_key(key)
        if usable is not None:
            yield usable


def _read_key(key: dict[str, object]) -> VerificationKey | None:
    kind, curve, key_id = key.get("kty"), key.get("crv"), key.get("kid")
    if not isinstance(kind, str) or not isinstance(curve, str | None) or not isinstance(key_id, str | None) or not _may_verify(key):
        return None
    algorithms, names = _FAMILIES.get((kind, curve), (frozenset[str](), ()))
    if "alg" in key:
        algorithms = frozenset(name for name in algorithms if name == key["alg"])
    members = {name: text for name in names if isinstance(text := key.get(name), str) and len(text) <= _MAX_MEMBER}
    if not algorithms or len(members) < len(names):
        return None
    public = {"kty": kind, **({} if curve is None else {"crv": curve}), **members}
    try:
        material = _ALGORITHMS[min(algorithms)].from_jwk(public)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError):
        return None
    if isinstance(material, RSAPublicKey) and material.key_size not in _RSA_BITS:
        return None
    return VerificationKey(key_id, algorithms, material)


def _may_verify(key: dict[str, object]) -> bool:
    """RFC 7517 sections 4.2 and 4.3."""
    operations = key.get("key_ops")
    return key.get("use", "sig") == "sig" and (operations is None or (isinstance(operations, list) and "verify" in operations))
