"""Keys decide what they may be used for; no token can talk one into anything else."""

import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from gateway.principal import PrincipalError
from gateway.principal.keys import MAX_KEYS, PUBLIC_ALGORITHMS, Verdict, read_key_set, secret_key, verify
from gateway.principal.token import Token, read_token
from tests.principal.tokens import SECRET, Signer, claims, compact, key_set, private_key, public_jwk, segment, signed

RSA = Signer("RS256")
EC = Signer("ES256")


def read(text: bytes) -> Token:
    token = read_token(text)
    assert token is not None
    return token


@pytest.mark.parametrize("algorithm", sorted(PUBLIC_ALGORITHMS))
def test_every_algorithm_verifies(algorithm: str) -> None:
    """A signature of each algorithm is good under its key, and under no other key or over other bytes."""
    signer = Signer(algorithm)
    keys = read_key_set(key_set(signer.jwk()))
    token = read(signer.token())
    assert verify(token, keys) is Verdict.VERIFIED
    assert verify(read(Signer(algorithm, number=1).token()), keys) is Verdict.REFUSED
    other = read(signer.token("tenant-b"))
    assert verify(Token(token.algorithm, token.key_id, other.claims, other.signed, token.signature), keys) is Verdict.REFUSED
    for signature in (b"", b"\0", token.signature[:-1], token.signature + b"\0", b"\0" * len(token.signature)):
        assert verify(Token(token.algorithm, token.key_id, token.claims, token.signed, signature), keys) is Verdict.REFUSED


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_secrets_verify(algorithm: str) -> None:
    """A shared secret verifies the algorithms it is given for."""
    key = secret_key(SECRET, [algorithm])
    assert verify(read(Signer(algorithm).token()), [key]) is Verdict.VERIFIED
    assert verify(read(Signer(algorithm, key_id=None).token()), [key]) is Verdict.VERIFIED
    other = secret_key(SECRET + b"x", [algorithm])
    assert verify(read(Signer(algorithm).token()), [other]) is not Verdict.VERIFIED


def pem(signer: Signer) -> bytes:
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return bytes(private_key(signer.algorithm, signer.number).public_key().public_bytes(*form))


@pytest.mark.parametrize("signer", [RSA, EC, Signer("EdDSA")])
@pytest.mark.parametrize("shape", ["pem", "jwk", "set", "empty"])
def test_a_public_key_is_no_secret(signer: Signer, shape: str) -> None:
    """A token signed by HMAC with the public key, in any spelling, is not verified by that key."""
    secret = {"pem": pem(signer), "jwk": json.dumps(signer.jwk()).encode(), "set": key_set(signer.jwk()), "empty": b""}[shape]
    import hashlib  # noqa: PLC0415 - an attacker's own tools: the library refuses to do this
    import hmac  # noqa: PLC0415 - as above

    signing = compact({"alg": "HS256", "kid": "one"}, claims(), b"").rstrip(b".")
    forged = signing + b"." + segment(hmac.digest(secret, signing, hashlib.sha256))
    assert verify(read(forged), read_key_set(key_set(signer.jwk()))) is Verdict.UNKNOWN


def test_none_verifies_nothing() -> None:
    """`none`, in any letter case and with any signature, fits no key."""
    keys = [*read_key_set(key_set(RSA.jwk(), {"kty": "oct", "k": "", "kid": "one"})), secret_key(SECRET, ["HS256"])]
    for name in ("none", "None", "NONE", "nOnE", ""):
        assert verify(read(compact({"alg": name, "kid": "one"}, claims(), b"x")), keys) is Verdict.UNKNOWN


def test_a_public_key_given_as_secret_is_refused() -> None:
    """A configuration that takes a public key for a shared secret would let everybody sign."""
    with pytest.raises(PrincipalError, match="public key"):
        secret_key(pem(RSA), ["HS256"])


@pytest.mark.parametrize(("algorithm", "least"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_short_secrets_are_refused(algorithm: str, least: int) -> None:
    """A secret shorter than the hash can be guessed (RFC 7518 section 3.2)."""
    secret_key(b"s" * least, [algorithm])
    with pytest.raises(PrincipalError, match=f"{least} bytes"):
        secret_key(b"s" * (least - 1), [algorithm])


def test_algorithms_of_another_family() -> None:
    """A key is used for its own family, curve and `alg` alone, whatever the token says."""
    token = read(RSA.token())
    assert verify(token, read_key_set(key_set(RSA.jwk(alg="RS256")))) is Verdict.VERIFIED
    assert verify(token, read_key_set(key_set(RSA.jwk(alg="PS256")))) is Verdict.UNKNOWN
    assert verify(token, read_key_set(key_set(public_jwk("ES256", kid="one")))) is Verdict.UNKNOWN
    assert verify(read(EC.token()), read_key_set(key_set(public_jwk("ES384", kid="one")))) is Verdict.UNKNOWN


def test_key_ids() -> None:
    """A token's key id picks the key; a token or a key without one fits all; the wrong id is unknown, not refused."""
    one, two = Signer(key_id="one"), Signer(key_id="two", number=1)
    keys = read_key_set(key_set(one.jwk(), two.jwk()))
    assert verify(read(one.token()), keys) is Verdict.VERIFIED
    assert verify(read(two.token()), keys) is Verdict.VERIFIED
    assert verify(read(Signer(key_id="two", number=0).token()), keys) is Verdict.REFUSED
    assert verify(read(Signer(key_id="three", number=0).token()), keys) is Verdict.UNKNOWN
    assert verify(read(Signer(key_id=None, number=1).token()), keys) is Verdict.VERIFIED
    assert verify(read(Signer(key_id=None, number=2).token()), keys) is Verdict.UNKNOWN
    assert verify(read(one.token()), read_key_set(key_set(public_jwk("ES256")))) is Verdict.VERIFIED


def test_a_flood_of_keys_is_bounded() -> None:
    """Of a set with very many keys only the first ones are looked at, and only a few are tried on a token without a key id."""
    many = read_key_set(key_set(*[public_jwk("ES256", kid=f"{n}") for n in range(3 * MAX_KEYS)]))
    assert len(many) == MAX_KEYS
    last = read_key_set(key_set(*[public_jwk("ES256", 1, kid=f"{n}") for n in range(MAX_KEYS - 1)], Signer(key_id="last").jwk()))
    assert verify(read(Signer(key_id="last").token()), last) is Verdict.VERIFIED
    assert verify(read(Signer(key_id=None).token()), last) is Verdict.UNKNOWN


def weak() -> dict[str, object]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
    return {**RSAAlgorithm.to_jwk(key, as_dict=True), "key_ops": ["verify"]}


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"kty": "RSA"},
        {"kty": 5},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-256", "x": 1, "y": 2},
        {"kty": "EC", "crv": ["P-256"], "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-257", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "!!!!"},
        {"kty": "OKP", "crv": "X25519", "x": "A" * 43},
        {"kty": "RSA", "n": "", "e": ""},
        {"kty": "RSA", "n": "A" * 5000, "e": "AQAB"},
        {"kty": "RSA", "n": "_" * 2000, "e": "AQAB"},
        {"kty": "RSA", "n": "_" * 342, "e": "AA"},
        public_jwk("RS256", use="enc"),
        public_jwk("RS256", key_ops=["encrypt"]),
        public_jwk("RS256", key_ops="verify"),
        public_jwk("RS256", alg="HS256"),
        public_jwk("RS256", alg="none"),
        public_jwk("RS256", alg=None),
        public_jwk("RS256", kid=5),
        weak(),
    ],
)
def test_unusable_keys_are_left_out(key: dict[str, object]) -> None:
    """Broken, weak, secret and foreign keys are skipped, and the good one beside them is used (RFC 7517 section 5)."""
    keys = read_key_set(key_set(key, EC.jwk()))
    assert [one.algorithms for one in keys] == [frozenset({"ES256"})]


def test_only_the_public_half_is_kept() -> None:
    """A set that gives its private key away by mistake is used as if it had not."""
    whole = {**RSAAlgorithm.to_jwk(private_key("RS256", 0), as_dict=True), "kid": "one", "key_ops": ["sign", "verify"]}
    assert verify(read(RSA.token()), read_key_set(key_set(whole))) is Verdict.VERIFIED


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"<html>", b'{"keys":{}}', b'{"keys":[1]}', b'{"keys":[],"keys":[]}', b"\xff", b"[" * 100_000]
)
def test_garbage_is_no_key_set(text: bytes) -> None:
    """An answer that is no JWK Set replaces nothing."""
    with pytest.raises(ValueError, match=r"."):
        read_key_set(text)


members = st.sampled_from(["kty", "crv", "x", "y", "n", "e", "alg", "use", "kid", "key_ops", "d"])
texts = (
    st.sampled_from(["RSA", "EC", "OKP", "oct", "P-256", "Ed25519", "sig", "AQAB", "RS256", "EdDSA", ""])
    | st.text(max_size=8)
    | st.none()
    | st.integers()
)


@given(st.lists(st.dictionaries(members, texts, max_size=8), max_size=3))
def test_no_key_is_an_error(keys: list[dict[str, object]]) -> None:
    """Whatever members a key has, it is used or left out."""
    assert len(read_key_set(key_set(*keys))) <= len(keys)


def test_a_token_brings_no_key() -> None:
    """A key that a token's own header holds or points to is never used."""
    header = {
        "alg": "ES256",
        "kid": "mine",
        "jwk": public_jwk("ES256", 2),
        "jku": "https://evil.test/keys",
        "x5u": "https://evil.test/cert",
    }
    token = read(signed(header, claims(), "ES256", private_key("ES256", 2)))
    assert verify(token, read_key_set(key_set(EC.jwk()))) is Verdict.UNKNOWN
