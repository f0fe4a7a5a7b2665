"""A verified claim is a principal: it outlives its token, and no forgery, however clever, is one."""

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gateway.core.policy import Policy
from gateway.core.principal_source import Combine, HeaderPrincipal, JwksFile, JwksUrl, JwtPrincipal, JwtSecret, needs_waiting
from gateway.core.scope import scope_of
from gateway.principal import Facts, Identifier, PrincipalError, Unidentified
from gateway.runtime.system import SystemClock
from tests.principal.tokens import ISSUER, SECRET, Signer, bearer, claims, compact, facts, key_set, private_key, segment, signed

Write = Callable[..., JwksFile]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of keys."""

    def to_file(*keys: dict[str, object]) -> JwksFile:
        path = tmp_path / "keys.json"
        path.write_bytes(key_set(*keys))
        return JwksFile(str(path), hashlib.sha256(path.read_bytes()).hexdigest())

    return to_file


def scope(source: JwtPrincipal, request: Facts, now: float | None = None) -> str | Unidentified:
    """The scope that one request has under this source alone."""
    policy = Policy("pay", (source,))
    identifier = Identifier([policy], {}, SystemClock()) if now is None else Identifier([policy], {}, SystemClock(), now=lambda: now)
    assert not needs_waiting(policy.principal)
    found = identifier.identify_now(request, policy)
    return found if isinstance(found, Unidentified) else scope_of("pay", found, b"digest secret").id


def refused(found: str | Unidentified, detail: str = "") -> bool:
    """Whether the caller was refused for this reason, and told how to do better."""
    assert isinstance(found, Unidentified)
    assert not found.unavailable
    return detail in found.detail and found.header == "Authorization" and found.challenges[0].startswith(b"Bearer ")


def jwt(keys: JwksFile | JwksUrl | JwtSecret, *algorithms: str, claim: tuple[str, ...] = ("sub",), **more: object) -> JwtPrincipal:
    return JwtPrincipal(claim, keys, algorithms or ("ES256",), **more)  # type: ignore[arg-type]  # tests give what the case needs


def test_a_new_token_keeps_the_scope(write: Write) -> None:
    """Whatever else changes in a token (its id, its times, its key, its algorithm, its place) the same claim of an issuer is one scope."""
    one, two = Signer(key_id="one"), Signer("RS256", key_id="two")
    source = jwt(write(one.jwk(), two.jwk()), "ES256", "RS256")
    scopes = {
        scope(source, bearer(one.token(jti=1))),
        scope(source, bearer(one.token(jti=2, iat=0, nbf=0, role="admin", aud="x"))),
        scope(source, bearer(two.token(exp=9_999_999_999))),
        scope(jwt(JwtSecret(SECRET), "HS256", issuer=ISSUER, header="X-Token"), facts((b"X-Token", Signer("HS256").token()))),
    }
    assert len(scopes) == 1
    assert str(scopes.pop()).startswith("pay:jwt.")


def test_other_callers_have_other_scopes(write: Write) -> None:
    """Another value, type, claim or issuer is another scope, also where several issuers share their keys."""
    one = Signer()
    keys = write(one.jwk())
    found = [
        scope(jwt(keys), bearer(one.token("1"))),
        scope(jwt(keys), bearer(one.token("2"))),
        scope(jwt(keys), bearer(one.token(1))),
        scope(jwt(keys), bearer(one.token("1", iss="https://other.test"))),
        scope(jwt(keys), bearer(one.token("1", iss=None))),
        scope(jwt(keys), bearer(one.token("1", iss=""))),
        scope(jwt(keys), bearer(one.token("1", iss="\ud800"))),
        scope(jwt(keys, claim=("org",)), bearer(one.token("9", org="1"))),
        scope(jwt(keys, claim=("org", "id")), bearer(one.token("9", org={"id": "1"}))),
        scope(jwt(keys, claim=("org.id",)), bearer(one.token("9", **{"org.id": "1"}))),
    ]
    assert all(isinstance(one, str) for one in found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("value", [b"Bearer %b", b"bearer %b", b"BEARER   %b", b"%b", b"\tBearer %b "])
def test_where_the_token_is(write: Write, value: bytes) -> None:
    """As Bearer credentials or bare, in the field that the source names."""
    one = Signer()
    token = one.token()
    assert isinstance(scope(jwt(write(one.jwk())), facts((b"authorization", value % token))), str)
    assert isinstance(scope(jwt(write(one.jwk()), header="X-Token"), facts((b"x-token", value % token))), str)


@pytest.mark.parametrize(
    "value", [None, b"", b"Bearer", b"Basic dTpw", b"Bearer a b", b"Bearer\t", b"Token abc", b"Bearer opaque", b"Bearer %b extra", b"%b.x"]
)
def test_no_token(write: Write, value: bytes | None) -> None:
    """Without a token, and with anything else in its place, nobody is identified."""
    one = Signer()
    token = one.token()
    filled = value % token if value is not None and b"%b" in value else value
    assert refused(scope(jwt(write(one.jwk())), facts(*([] if filled is None else [(b"Authorization", filled)]))))


def test_two_tokens_are_none(write: Write) -> None:
    """Two lines of credentials identify nobody, also if both are good."""
    one = Signer()
    lines = [(b"Authorization", b"Bearer " + one.token())] * 2
    assert refused(scope(jwt(write(one.jwk())), facts(*lines)), "once")


def test_algorithm_confusion(write: Write) -> None:
    """Nothing that an attacker can make out of the public key, or by leaving the signature out, is a token."""
    one = Signer("RS256")
    source = jwt(write(one.jwk()), "RS256", "ES256", "PS256")
    public = private_key("RS256", 0).public_key()
    spellings = [
        public.public_bytes(encoding, shape)
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER)
        for shape in (serialization.PublicFormat.SubjectPublicKeyInfo, serialization.PublicFormat.PKCS1)
    ]
    spellings += [json.dumps(one.jwk()).encode(), str(one.jwk()["n"]).encode(), base64.urlsafe_b64decode(str(one.jwk()["n"]) + "=="), b""]
    for name, digest in (("HS256", "sha256"), ("HS512", "sha512"), ("RS256", "sha256"), ("ES256", "sha256")):
        for secret in spellings:
            signing = compact({"alg": name, "kid": "one"}, claims(), b"").rstrip(b".")
            assert refused(scope(source, bearer(signing + b"." + segment(hmac.digest(secret, signing, digest)))))
    for name in ("none", "None", "NONE", "", "RS256", "ES256"):
        for signature in (b"", b"\0", b"none"):
            assert refused(scope(source, bearer(compact({"alg": name, "kid": "one"}, claims(), signature))))
    assert isinstance(scope(source, bearer(one.token())), str)


def test_a_known_key_in_a_forbidden_algorithm(write: Write) -> None:
    """A good signature counts only in an algorithm that the source names."""
    one = Signer("PS256")
    assert refused(scope(jwt(write(one.jwk()), "RS256"), bearer(one.token())), "algorithm")
    assert isinstance(scope(jwt(write(one.jwk()), "PS256"), bearer(one.token())), str)


def test_another_key(write: Write) -> None:
    """A token of a key that is not in the file is refused, with the known key's id or another, and with a key in its own header."""
    source = jwt(write(Signer().jwk()))
    for key_id in ("one", "two", None):
        assert refused(scope(source, bearer(Signer(key_id=key_id, number=1).token())), "signed by a key")
    header = {"alg": "ES256", "jwk": Signer(number=1).jwk()}
    assert refused(scope(source, bearer(signed(header, claims(), "ES256", private_key("ES256", 1)))), "signed by a key")


def test_a_token_with_other_claims(write: Write) -> None:
    """The signature of one token does not serve for other claims, nor another header."""
    one = Signer()
    source = jwt(write(one.jwk()))
    mine, theirs = one.token("tenant-a").split(b"."), one.token("tenant-b").split(b".")
    assert refused(scope(source, bearer(b".".join([mine[0], theirs[1], mine[2]]))), "signed by a key")
    header = segment(json.dumps({"alg": "ES256", "kid": "one", "typ": "at+jwt"}).encode())
    assert refused(scope(source, bearer(b".".join([header, mine[1], mine[2]]))), "signed by a key")


def test_times_and_leeway(write: Write) -> None:
    """Expired and not yet valid tokens are refused, to the second, and told so; nothing is told of a token that is not signed."""
    one = Signer()
    source = jwt(write(one.jwk()), leeway=30.0)
    token = bearer(one.token(exp=1000, nbf=500))
    assert isinstance(scope(source, token, now=1029.9), str)
    assert refused(scope(source, token, now=1030.0), "expired")
    assert isinstance(scope(source, token, now=470.0), str)
    assert refused(scope(source, token, now=469.9), "not hold yet")
    assert refused(scope(source, bearer(Signer(number=1).token(exp=1000)), now=2000.0), "signed by a key")
    assert refused(scope(source, bearer(one.token(exp=None))), "exp")
    assert refused(scope(source, bearer(one.token(exp=1000))), "expired")


def test_a_token_of_these_tests_outlives_a_run_of_them(write: Write) -> None:
    """Tokens that are made while tests are collected once expired before a slow machine had come to the last test."""
    one = Signer()
    token = bearer(one.token())
    assert isinstance(scope(jwt(write(one.jwk())), token, now=time.time() + 3600), str)  # noqa: TID251 - as `exp`


def test_issuer_and_audience(write: Write) -> None:
    """A token for others, or from others, is refused."""
    one = Signer()
    source = jwt(write(one.jwk()), issuer=ISSUER, audience=("payments",))
    assert isinstance(scope(source, bearer(one.token(aud=["payments", "x"]))), str)
    assert refused(scope(source, bearer(one.token(aud="refunds"))), "audience")
    assert refused(scope(source, bearer(one.token())), "audience")
    assert refused(scope(source, bearer(one.token(aud="payments", iss="https://other.test"))), "issuer")
    assert refused(scope(source, bearer(one.token(aud="payments", iss=None))), "issuer")


def test_a_token_without_the_claim(write: Write) -> None:
    """A good token that does not say who asks identifies nobody, rather than all of its kind as one."""
    one = Signer()
    subjects: list[object] = [None, "", True, 1.5, [], {"sub": "x"}]
    for subject in subjects:
        assert refused(scope(jwt(write(one.jwk())), bearer(one.token(subject))), "claim")


def test_huge_tokens(write: Write) -> None:
    """A token of megabytes is refused, and one that is as large as allowed still counts."""
    one = Signer()
    source = jwt(write(one.jwk()))
    assert isinstance(scope(source, bearer(one.token(padding="x" * 11_000))), str)
    assert refused(scope(source, bearer(one.token(padding="x" * 13_000))), "malformed")
    assert refused(scope(source, bearer(one.token(padding="x" * 3_000_000))), "malformed")


def test_secrets_are_shared_by_two(write: Write) -> None:
    """A token under a shared secret counts; one under another secret does not, nor one signed by a key."""
    source = jwt(JwtSecret(SECRET), "HS256", "HS512")
    assert isinstance(scope(source, bearer(Signer("HS256").token())), str)
    assert isinstance(scope(source, bearer(Signer("HS512", key_id=None).token())), str)
    assert refused(scope(source, bearer(Signer("HS384").token())), "algorithm")
    assert refused(scope(source, bearer(Signer().token())), "algorithm")
    forged = signed({"alg": "HS256"}, claims(), "HS256", SECRET + b"x")
    assert refused(scope(source, bearer(forged)), "signed by a key")


def build(*sources: JwtPrincipal | HeaderPrincipal, combine: Combine = Combine.ALL) -> Identifier:
    return Identifier([Policy("pay", sources, combine=combine)], {}, SystemClock())


def test_what_cannot_work_is_refused_at_the_start(write: Write, tmp_path: Path) -> None:
    """Wrong algorithms and unusable files are found when the route map is loaded, in sentences."""
    url, file = JwksUrl("https://issuer.test/keys"), write(Signer().jwk())
    for keys in (url, file):
        for name in ("none", "HS256", "ES255", ""):
            with pytest.raises(PrincipalError, match=f"`{name}` is none of them"):
                build(jwt(keys, name))
    for name in ("none", "RS256", "ES256"):
        with pytest.raises(PrincipalError, match="HS256, HS384, HS512"):
            build(jwt(JwtSecret(SECRET), "HS256", name))
    with pytest.raises(PrincipalError, match="none is named"):
        build(JwtPrincipal(("sub",), url, ()))
    with pytest.raises(PrincipalError, match="no key that can verify RS256"):
        build(jwt(file, "RS256"))
    for contents, why in ((b"", "JWK Set"), (b"{}", "JWK Set"), (b'{"keys":[]}', "no key"), (b" " * 1_000_000, "larger than 524288 bytes")):
        (tmp_path / "bad.json").write_bytes(contents)
        with pytest.raises(PrincipalError, match=rf"bad\.json.*{why}"):
            build(jwt(JwksFile(str(tmp_path / "bad.json"), "")))
    with pytest.raises(PrincipalError, match=r"absent\.json: cannot be read: No such file"):
        build(jwt(JwksFile(str(tmp_path / "absent.json"), "")))


def test_several_issuers(write: Write) -> None:
    """Under `first` a token goes to the source of its issuer, and each must name its own, so that none can speak for another."""
    mine, theirs = Signer(), Signer("HS256")
    one, two = jwt(write(mine.jwk()), issuer=ISSUER), jwt(JwtSecret(SECRET), "HS256", issuer="https://other.test")
    policy = Policy("pay", (one, two), combine=Combine.FIRST)
    identifier = Identifier([policy], {}, SystemClock())
    good = [mine.token("x"), theirs.token("x", iss="https://other.test")]
    found = [identifier.identify_now(bearer(token), policy) for token in good]
    assert not any(isinstance(one, Unidentified) for one in found)
    assert found[0] != found[1]
    for token in (
        mine.token("x", iss="https://other.test"),
        theirs.token("x"),
        mine.token("x", iss="https://third.test"),
        mine.token(iss=None),
    ):
        assert isinstance(identifier.identify_now(bearer(token), policy), Unidentified)
    with pytest.raises(PrincipalError, match="must name its issuer"):
        build(one, jwt(JwtSecret(SECRET), "HS256"), combine=Combine.FIRST)


def test_secrets_do_not_show() -> None:
    """Neither a source nor a key writes its secret into a log."""
    source = jwt(JwtSecret(SECRET), "HS256")
    assert SECRET.decode() not in repr(source)
    from gateway.principal.keys import secret_key  # noqa: PLC0415 - for this test alone

    assert SECRET.decode() not in repr(secret_key(SECRET, ["HS256"]))


WITHOUT = """
import sys
import time
sys.modules["jwt"] = None
from gateway.core.policy import Policy
from gateway.core.principal_source import HeaderPrincipal, JwtPrincipal, JwtSecret
from gateway.principal import Identifier, PrincipalError
from gateway.runtime.system import SystemClock
Identifier([Policy("a", (HeaderPrincipal("X"),))], {}, SystemClock())
try:
    Identifier([Policy("a", (JwtPrincipal(("sub",), JwtSecret(b"s" * 32), ("HS256",)),))], {}, SystemClock())
except PrincipalError as error:
    print(error)
"""


def test_the_libraries_are_an_extra() -> None:
    """Without them all other sources work, and a token source says what to install."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'idempotency-gateway[jwt]'" in done.stdout
