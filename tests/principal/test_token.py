"""Tokens are read strictly, and their claims are judged to the second."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.principal_source import JwtPrincipal, JwtSecret
from gateway.core.strict_json import AS_PYTHON, read
from gateway.principal.token import MAX_TOKEN, claim_at, find_fault, read_token
from tests.principal.tokens import compact, segment

HEADER = {"alg": "ES256", "kid": "one"}
NOW = 1_800_000_000.0


def source(issuer: str | None = None, audience: tuple[str, ...] = (), leeway: float = 30.0) -> JwtPrincipal:
    return JwtPrincipal(("sub",), JwtSecret(b""), ("HS256",), issuer=issuer, audience=audience, leeway=leeway)


def test_a_token_is_taken_apart() -> None:
    """Header, claims, signed bytes and signature are as they stand in the token."""
    text = compact(HEADER, {"iss": "me", "sub": "x"}, b"signature")
    token = read_token(text)
    assert token is not None
    assert (token.algorithm, token.key_id, token.claims, token.issuer) == ("ES256", "one", {"iss": "me", "sub": "x"}, "me")
    assert token.signed + b"." + segment(token.signature) == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"..",
        b"opaque",
        compact({"alg": "none"}, {"sub": "x"}, b""),
        compact(HEADER, {}, b"s") + b".",
        compact(HEADER, {}, b"s") + b"=",
        compact(HEADER, {}, b"s") + b"\n",
        b" " + compact(HEADER, {}, b"s"),
        compact(HEADER, {}, b"s").replace(b".", b"..", 1),
        b"a." + compact(HEADER, {}, b"s").partition(b".")[2],
        compact({"alg": "dir", "enc": "A128GCM"}, {}, b"s") + b".a.b",
        compact(HEADER, b"", b"s"),
        compact([], {}, b"s"),
        compact(HEADER, [], b"s"),
        compact(HEADER, "text", b"s"),
        compact({}, {}, b"s"),
        compact({"alg": None}, {}, b"s"),
        compact({"alg": ["ES256"]}, {}, b"s"),
        compact({"alg": "ES256", "kid": 1}, {}, b"s"),
        compact({"alg": "ES256", "crit": ["exp"]}, {}, b"s"),
        compact({"alg": "ES256", "crit": []}, {}, b"s"),
        compact({"alg": "ES256", "b64": False}, {}, b"s"),
        compact(b'{"alg":"ES256","alg":"none"}', {}, b"s"),
        compact(HEADER, b'{"sub":"a","sub":"b"}', b"s"),
        compact(HEADER, b'{"exp":NaN}', b"s"),
        compact(HEADER, b'{"exp":Infinity}', b"s"),
        compact(HEADER, b'\xef\xbb\xbf{"sub":"a"}', b"s"),
        compact(HEADER, '{"sub":"a"}'.encode("utf-16"), b"s"),
        compact(HEADER, b'{"sub":"\xff"}', b"s"),
        compact(HEADER, b'{"sub":"a"}{}', b"s"),
        compact(HEADER, b'{"exp":' + b"9" * 5000 + b"}", b"s"),
        compact(HEADER, b"[" * 11000, b"s"),
        compact(HEADER, b'{"a":' * 2000, b"s"),
    ],
)
def test_what_is_no_token(text: bytes) -> None:
    """Unsigned, encrypted, padded, ambiguous or broken tokens, and those with critical extensions, are refused as malformed."""
    assert read_token(text) is None


def test_huge_tokens_are_refused_unread() -> None:
    """A token of just the limit is read, one byte more is refused; nothing of a megabyte is looked at."""
    rest = len(compact(HEADER, {"sub": ""}, b"s"))
    fitting = next(
        text
        for n in range(4 * MAX_TOKEN)
        if len(text := compact(HEADER, {"sub": "x" * ((MAX_TOKEN - rest) * 3 // 4 - n)}, b"s")) <= MAX_TOKEN
    )
    assert len(fitting) >= MAX_TOKEN - 2
    assert read_token(fitting) is not None
    assert read_token(fitting + b"a" * (MAX_TOKEN + 1 - len(fitting))) is None
    assert read_token(b"a." * 500_000) is None


@given(st.binary(max_size=60) | st.lists(st.binary(max_size=30).map(segment), max_size=4).map(b".".join))
def test_no_bytes_are_an_error(text: bytes) -> None:
    """Whatever a client sends is a token or none."""
    token = read_token(text)
    assert token is None or text.startswith(token.signed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_strict_json_reads_json(value: object) -> None:
    """What a JSON writer writes is read as it was."""
    assert read(json.dumps(value).encode(), AS_PYTHON) == value


@pytest.mark.parametrize(
    ("claims", "fault"),
    [
        ({"exp": NOW - 29}, None),
        ({"exp": NOW - 29.5}, None),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": NOW - 31}, "expired"),
        ({"exp": -1}, "expired"),
        ({"exp": 10**400}, None),
        ({"exp": NOW + 1, "nbf": NOW + 30}, None),
        ({"exp": NOW + 99, "nbf": NOW + 31}, "yet"),
        ({"exp": NOW + 99, "nbf": 10**400}, "yet"),
        ({"exp": NOW + 99, "iat": NOW + 99}, None),
        ({}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": "1900000000"}, "exp"),
        ({"exp": float("inf")}, "exp"),
        ({"exp": [NOW + 1]}, "exp"),
        ({"exp": NOW + 1, "nbf": "0"}, "exp"),
        ({"exp": NOW + 1, "nbf": None}, "exp"),
    ],
)
def test_the_time_of_a_token(claims: dict[str, object], fault: str | None) -> None:
    """A token holds from `nbf` to before `exp`, give or take the leeway; `exp` must be there, and both must be numbers."""
    found = find_fault(claims, source(), NOW)
    assert found is None if fault is None else found is not None and fault in found


@given(st.integers(-100, 100), st.integers(0, 100))
def test_leeway_is_exact(off: int, leeway: int) -> None:
    """With a leeway the token holds that many seconds longer and earlier, and not one more."""
    allowed = source(leeway=float(leeway))
    assert (find_fault({"exp": NOW + off}, allowed, NOW) is None) == (off + leeway > 0)
    assert (find_fault({"exp": NOW + 999, "nbf": NOW + off}, allowed, NOW) is None) == (off <= leeway)


@pytest.mark.parametrize("said", [None, "https://other.test", "https://issuer.test/", ["https://issuer.test"], 5])
def test_another_issuer(said: object) -> None:
    """Where an issuer is named, `iss` must be that text and no other."""
    good = {"exp": NOW + 1, "iss": "https://issuer.test"}
    assert find_fault(good, source("https://issuer.test"), NOW) is None
    assert find_fault({**good, "iss": said}, source("https://issuer.test"), NOW) == "The token is from another issuer."


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("b", True),
        (["x", "b"], True),
        (["a"], True),
        ("ab", False),
        (["x"], False),
        ([], False),
        (None, False),
        (5, False),
        ([5, None], False),
    ],
)
def test_the_audience(said: object, meant: bool) -> None:
    """Where audiences are named, `aud` must be one of them or list one; else it does not matter."""
    claims = {"exp": NOW + 1, "aud": said}
    assert (find_fault(claims, source(audience=("a", "b")), NOW) is None) == meant
    assert find_fault(claims, source(), NOW) is None


@pytest.mark.parametrize(
    ("claims", "path", "value"),
    [
        ({"sub": "a"}, ("sub",), b"text:a"),
        ({"sub": "ü"}, ("sub",), "text:ü".encode()),
        ({"sub": 7}, ("sub",), b"number:7"),
        ({"sub": -7}, ("sub",), b"number:-7"),
        ({"sub": 2**53 + 1}, ("sub",), b"number:9007199254740993"),
        ({"sub": "7"}, ("sub",), b"text:7"),
        ({"org": {"id": "x"}}, ("org", "id"), b"text:x"),
        ({"org.id": "x"}, ("org.id",), b"text:x"),
        ({"org": {"id": "x"}}, ("org.id",), None),
        ({"org": {"id": "x"}}, ("org",), None),
        ({"org": ["x"]}, ("org", "0"), None),
        ({"org": "x"}, ("org", "id"), None),
        ({}, ("sub",), None),
        ({"sub": ""}, ("sub",), None),
        ({"sub": None}, ("sub",), None),
        ({"sub": True}, ("sub",), None),
        ({"sub": 1.0}, ("sub",), None),
        ({"sub": ["a"]}, ("sub",), None),
        ({"sub": "\ud800"}, ("sub",), None),
    ],
)
def test_the_claim_that_identifies(claims: dict[str, object], path: tuple[str, ...], value: bytes | None) -> None:
    """A text that is not empty or a whole number, at a path of members; never an empty, missing or ambiguous value that many share."""
    assert claim_at(claims, path) == value


@given(st.text(min_size=1) | st.integers(), st.text(min_size=1) | st.integers())
def test_claims_are_injective(one: str | int, other: str | int) -> None:
    """Two claims give the same bytes only if they are equal, in type too."""
    first, second = claim_at({"c": one}, ("c",)), claim_at({"c": other}, ("c",))
    assert (first == second) == (one == other)
