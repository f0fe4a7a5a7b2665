"""Who asks: sources as they arrive in a policy, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import redact
from gateway.core.policy import Policy
from gateway.core.principal_source import (
    BasicPrincipal,
    CertificatePrincipal,
    Combine,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwksFile,
    JwksUrl,
    JwtPrincipal,
    JwtSecret,
)
from gateway.core.signing import PUBLIC_KEY, SECRET_BYTES
from gateway.core.texts import jwks_url
from gateway.principal.jwks import RemoteKeys
from gateway.principal.keys import PUBLIC_ALGORITHMS, SECRET_ALGORITHMS
from gateway.runtime.system import SystemClock
from tests.config.jwks import ec_key, rsa_key, write_keys
from tests.config.support import HEAD, ROUTES, mistakes, read

SECRET = "0123456789abcdef0123456789abcdef"
URL = "jwks_url: 'https://login.example/keys'"


def with_principal(principal: str) -> str:
    return HEAD + ROUTES.replace("none", principal)


def with_jwt(fields: str) -> str:
    return with_principal(f"[{{jwt: {{{fields}}}}}]")


def policy(folder: Path, text: str) -> Policy:
    found = read(folder, text).routes[0].policy
    assert found is not None
    return found


def test_every_source_arrives(tmp_path: Path) -> None:
    """Each kind of source with its defaults, in the order of the file."""
    write_keys(tmp_path / "keys.json", rsa_key())
    (tmp_path / "secret").write_text(SECRET + "\n")
    text = with_principal(
        f"[{{header: X-Tenant}}, {{jwt: {{claim: sub, {URL}, algorithms: [RS256, ES256], issuer: j}}}}, "
        "{jwt: {claim: [realm, tenant], jwks_file: keys.json, algorithms: [PS512, RS256], header: X-Token, issuer: i, audience: a, "
        "leeway: 0s}}, {jwt: {claim: sub, secret_file: secret, algorithms: [HS256], issuer: k, audience: [a, b]}}, "
        "{forward_auth: {upstream: payments, path: '/check?x=1', answer_header: X-User}}, {basic: true}, "
        "{client_certificate: {header: X-Client}}]\n      principal_combine: first"
    )
    found = policy(tmp_path, f"{text}\ntrusted_proxies: [10.0.0.0/8]\n")
    assert found.combine is Combine.FIRST
    file = found.principal[2]
    assert isinstance(file, JwtPrincipal)
    assert isinstance(file.keys, JwksFile)
    assert (file.keys.path, len(file.keys.stamp)) == (str(tmp_path / "keys.json"), 32)
    assert found.principal == (
        HeaderPrincipal("X-Tenant"),
        JwtPrincipal(("sub",), JwksUrl("https://login.example/keys", 300.0, 86400.0), ("RS256", "ES256"), "Authorization", "j", (), 30.0),
        JwtPrincipal(("realm", "tenant"), file.keys, ("PS512", "RS256"), "X-Token", "i", ("a",), 0.0),
        JwtPrincipal(("sub",), JwtSecret(SECRET.encode()), ("HS256",), "Authorization", "k", ("a", "b"), 30.0),
        ForwardAuthPrincipal("payments", "/check?x=1", "X-User", ("Authorization", "Cookie"), 5.0),
        BasicPrincipal(),
        CertificatePrincipal("X-Client"),
    )


def test_renewed_keys_are_another_configuration(tmp_path: Path) -> None:
    """A policy compares equal while the file of keys stays the same, and differs once it does not."""
    text = with_jwt("claim: sub, jwks_file: keys.json, algorithms: [ES256, RS256], audience: a")
    write_keys(tmp_path / "keys.json", rsa_key())
    before = policy(tmp_path, text)
    assert policy(tmp_path, text) == before
    write_keys(tmp_path / "keys.json", rsa_key(), ec_key())
    assert policy(tmp_path, text) != before


def test_a_shared_secret_is_shown_nowhere(tmp_path: Path) -> None:
    """Neither the redacted configuration nor a `repr` holds a token's secret, nor what an address of keys carries in its query."""
    text = with_principal(
        f"[{{jwt: {{claim: a, secret: {SECRET}, algorithms: [HS256]}}}}, "
        "{jwt: {claim: b, jwks_url: 'https://u.example/k?token=hunter2', algorithms: [RS256], audience: a}}]"
    )
    config = read(tmp_path, text)
    shown: Any = json.loads(json.dumps(redact(config)))
    assert [one["keys"] for one in shown["routes"][0]["policy"]["principal"]] == [
        {"secret": "***"},
        {"url": "https://u.example/k", "refresh": 300.0, "stale": 86400.0},
    ]
    assert SECRET not in repr(config)


SOURCE = [
    pytest.param(
        "[{}]",
        "10:19: {}[0]: one of `header`, `jwt`, `forward_auth`, `basic`, `client_certificate` is required",
        id="nothing",
    ),
    pytest.param("[{header: A, basic: true}]", "10:38: {}[0].basic: `header` is given too; keep one of them", id="two"),
    pytest.param("[{heder: A}]", "10:20: {}[0].heder: unknown key; did you mean `header`?", id="misspelt"),
    pytest.param("[{claim: sub}]", "10:20: {}[0].claim: unknown key; did you mean `jwt`?", id="claim"),
    pytest.param("[{basic: false}]", "10:27: {}[0].basic: write true, or remove this source", id="basic-false"),
    pytest.param("[{basic: true}, {basic: true}]", "10:34: {}[1]: `basic` is listed twice", id="twice"),
    pytest.param("[{header: A}, {header: a}]", "10:41: {}[1].header: `a` is listed twice", id="header-twice"),
    pytest.param(
        "[{client_certificate: {}}]",
        "10:40: {}[0].client_certificate: needs `tls.client_ca_file`: without it no client shows a certificate; "
        "or name the `header` in which a trusted proxy tells the subject",
        id="certificate-without-tls",
    ),
    pytest.param(
        "[{client_certificate: {header: X-Subject}}]",
        "10:49: {}[0].client_certificate.header: needs `trusted_proxies`: X-Subject is believed from these alone, and there are none",
        id="certificate-without-proxies",
    ),
    pytest.param(
        "[{client_certificate: true}]",
        "10:40: {}[0].client_certificate: expected a mapping, found a flag; it has keys, such as `header`",
        id="certificate-flag",
    ),
    pytest.param(
        "[{forward_auth: {upstream: paymets, path: /a, answer_header: A}}]",
        "10:45: {}[0].forward_auth.upstream: unknown upstream `paymets`; did you mean `payments`?",
        id="auth-upstream",
    ),
    pytest.param(
        "[{forward_auth: {upstream: payments, path: check, answer_header: A}}]",
        '10:61: {}[0].forward_auth.path: "check" is not a path; it starts with / and is ASCII without spaces and #, as in /auth/check',
        id="auth-path",
    ),
    pytest.param(
        "[{forward_auth: {upstream: payments, path: /a}}]", "10:34: {}[0].forward_auth.answer_header: is required", id="auth-answer"
    ),
    pytest.param(
        "[{forward_auth: {upstream: payments, path: /a, answer_header: A, forward: []}}]",
        "10:92: {}[0].forward_auth.forward: the list is empty; name at least one",
        id="auth-forwards-nothing",
    ),
    pytest.param(
        "[{forward_auth: {upstream: payments, path: /a, answer_header: A, cache: 6m}}]",
        "10:90: {}[0].forward_auth.cache: must be from 0s to 5m, found 6m",
        id="auth-cache",
    ),
    pytest.param(
        "[{forward_auth: {upstream: payments, path: /a, answer_header: A, forward: [Cookie, Host]}}]",
        "10:92: {}[0].forward_auth.forward: Host is about one connection, or the gateway's own to write; "
        "name the fields that hold credentials",
        id="auth-forwards-host",
    ),
]


@pytest.mark.parametrize(("principal", "expected"), SOURCE)
def test_a_mistake_in_a_source_is_found_where_it_stands(tmp_path: Path, principal: str, expected: str) -> None:
    """One wrong source gives one message with its remedy."""
    assert mistakes(tmp_path, with_principal(principal)) == ["gateway.yaml:" + expected.replace("{}", "routes[0].idempotency.principal", 1)]


JWT = [
    pytest.param(
        f"claim: sub, {URL}",
        "25: algorithms: is required",
        id="algorithms",
    ),
    pytest.param(f"{URL}, algorithms: [RS256]", "25: claim: is required", id="claim"),
    pytest.param(f"claim: '', {URL}, algorithms: [RS256]", "33: claim: a claim has a name, such as sub", id="claim-empty"),
    pytest.param(f"claim: [], {URL}, algorithms: [RS256]", "33: claim: the list is empty; name at least one", id="claim-nothing"),
    pytest.param(
        f"claim: [a, 5], {URL}, algorithms: [RS256]",
        "37: claim[1]: expected the name of a claim, found 5; put it in quotes",
        id="claim-number",
    ),
    pytest.param(
        "claim: sub, algorithms: [RS256]",
        "25: : one of `jwks_file`, `jwks_url`, `secret`, `secret_file` is required",
        id="keys",
    ),
    pytest.param(
        f"claim: sub, {URL}, jwks_file: k, algorithms: [RS256]",
        "89: jwks_file: `jwks_url` is given too; keep one of them",
        id="keys-twice",
    ),
    pytest.param(
        f"claim: sub, algorithms: [none], {URL}",
        "51: algorithms[0]: `none` is no signature: anybody could write such a token; name what the issuer signs with, such as RS256",
        id="algorithm-none",
    ),
    pytest.param(
        f"claim: sub, algorithms: [NoNe], {URL}",
        "51: algorithms[0]: `none` is no signature: anybody could write such a token; name what the issuer signs with, such as RS256",
        id="algorithm-none-in-other-letters",
    ),
    pytest.param(
        f"claim: sub, algorithms: [rs256], {URL}",
        '51: algorithms[0]: "rs256" is no algorithm that is known here; write one of RS256, RS384, RS512, PS256, PS384, PS512, '
        "ES256, ES384, ES512, EdDSA, HS256, HS384, HS512; did you mean `RS256`?",
        id="algorithm-in-small-letters",
    ),
    pytest.param(f"claim: sub, algorithms: [], {URL}", "50: algorithms: the list is empty; name at least one", id="no-algorithms"),
    pytest.param(
        f"claim: sub, algorithms: [RS256, HS256], {URL}",
        "50: algorithms: HS256 takes a shared secret, and whoever knows the public keys could sign with them; "
        "write what the issuer signs with, such as RS256",
        id="confusion",
    ),
    pytest.param(
        f"claim: sub, algorithms: [RS256, HS256], secret: {SECRET}",
        "50: algorithms: RS256 takes public keys: name them in `jwks_file` or `jwks_url`, or write HS256",
        id="secret-for-public-keys",
    ),
    pytest.param(
        f"claim: sub, algorithms: [HS256, HS384], secret: {SECRET}",
        "74: secret: has 32 bytes, and HS384 needs 48 or more: a shorter one can be guessed",
        id="secret-too-short",
    ),
    pytest.param(
        "claim: sub, algorithms: [HS256], secret: '-----BEGIN PUBLIC KEY-----MFkwEwYHKo'",
        "67: secret: is a public key or a certificate, which everybody may know, and no secret; name it in `jwks_file`",
        id="secret-is-public",
    ),
    pytest.param(
        "claim: sub, algorithms: [RS256], jwks_url: login.example",
        "69: jwks_url: the address of public keys looks like https://login.example.com/.well-known/jwks.json",
        id="url",
    ),
    pytest.param(
        "claim: sub, algorithms: [RS256], jwks_url: 'https://u:hunter2@login.example'",
        "69: jwks_url: the address of public keys holds no credentials and no #fragment",
        id="url-credentials",
    ),
    pytest.param(
        f"claim: sub, algorithms: [RS256], {URL}, refresh: 2h, stale: 1h",
        "119: stale: stale (1h) is shorter than refresh (2h): between two refreshes there would be no keys",
        id="stale",
    ),
    pytest.param(f"claim: sub, algorithms: [RS256], {URL}, leeway: 6m", "107: leeway: must be from 0s to 5m, found 6m", id="leeway"),
]


@pytest.mark.parametrize(("fields", "expected"), JWT)
def test_a_mistake_about_a_token_is_found_where_it_stands(tmp_path: Path, fields: str, expected: str) -> None:
    """One wrong setting gives one message; no message shows a secret."""
    column, name, message = expected.split(": ", 2)
    path = f"routes[0].idempotency.principal[0].jwt{'.' if name else ''}{name}"
    assert mistakes(tmp_path, with_jwt(fields)) == [f"gateway.yaml:10:{column}: {path}: {message}"]


def test_what_is_taken_here_is_what_can_be_verified() -> None:
    """The algorithms of the table and of the verification are the same."""
    assert set(PUBLIC_KEY) == PUBLIC_ALGORITHMS
    assert set(SECRET_BYTES) == SECRET_ALGORITHMS


def test_two_issuers_of_which_the_first_counts_are_told_apart(tmp_path: Path) -> None:
    """Otherwise one of them could name the callers of the other."""
    one, other = (f"{{jwt: {{claim: sub, jwks_url: 'https://{host}/k', algorithms: [RS256], audience: a}}}}" for host in "ab")
    text = with_principal(f"[{one}, {other}]") + "      principal_combine: first\n"
    found = mistakes(tmp_path, text)
    assert [message.split(": ", 2)[1] for message in found] == [f"routes[0].idempotency.principal[{n}].jwt.issuer" for n in (0, 1)]
    assert mistakes(tmp_path, text.replace("audience: a", "audience: a, issuer: i")) == []
    assert mistakes(tmp_path, text.replace("first", "all")) == []


@given(st.one_of(st.text(max_size=30), st.from_regex(r"https?://[a-z0-9.:\[\]@%-]{0,20}(/[!-~]{0,10})?", fullmatch=True)))
def test_any_text_is_an_address_of_keys_or_refused(text: str) -> None:
    """What is read can be asked; everything else is a ValueError."""
    try:
        url = jwks_url(text)
    except ValueError:
        return
    if url is not None:
        RemoteKeys(JwksUrl(url), SystemClock())


FILES = [
    pytest.param(None, "cannot read {}: No such file or directory", id="missing"),
    pytest.param("", 'cannot use {}: it is no JWK Set, {{"keys": [...]}} in JSON (RFC 7517 section 5)', id="empty"),
    pytest.param("[]", 'cannot use {}: it is no JWK Set, {{"keys": [...]}} in JSON (RFC 7517 section 5)', id="list"),
    pytest.param('{"keys": [5]}', 'cannot use {}: it is no JWK Set, {{"keys": [...]}} in JSON (RFC 7517 section 5)', id="no-key"),
    pytest.param('{"keys": []}', "{} has no key for RS256: it holds no public key that could verify a signature", id="no-keys"),
    pytest.param(" " * 600_000, "cannot use {}: it is larger than 512KiB", id="large"),
    pytest.param(json.dumps({"keys": [ec_key()]}), "{} has no key for RS256: its keys are for ES256", id="other-keys"),
    pytest.param(
        json.dumps({"keys": [rsa_key() | {"d": "hunter2"}]}),
        "{} holds a private or secret key; keep here what the issuer publishes, public keys alone",
        id="private",
    ),
    pytest.param(
        json.dumps({"keys": [{"kty": "oct", "k": "hunter2"}]}),
        "{} holds a private or secret key; keep here what the issuer publishes, public keys alone",
        id="secret",
    ),
    pytest.param(json.dumps({"keys": [rsa_key()]}), None, id="good"),
]


@pytest.mark.parametrize(("content", "expected"), FILES)
def test_a_file_of_keys_must_be_usable(tmp_path: Path, content: str | None, expected: str | None) -> None:
    """What is wrong with it is told at the setting that names it."""
    if content is not None:
        (tmp_path / "keys.json").write_text(content)
    found = mistakes(tmp_path, with_jwt("claim: sub, jwks_file: keys.json, algorithms: [RS256], audience: a"))
    path = "routes[0].idempotency.principal[0].jwt.jwks_file"
    assert found == ([] if expected is None else [f"gateway.yaml:10:49: {path}: {expected.format('keys.json')}"])


def test_one_key_of_several_kinds_is_enough(tmp_path: Path) -> None:
    """An issuer may be about to change what it signs with."""
    write_keys(tmp_path / "keys.json", rsa_key())
    assert mistakes(tmp_path, with_jwt("claim: sub, jwks_file: keys.json, algorithms: [RS256, ES256], audience: a")) == []


def test_a_certificate_header_on_a_socket_is_a_mistake(tmp_path: Path) -> None:
    """Who connects to a Unix socket is never a trusted proxy."""
    text = with_principal("[{client_certificate: {header: X-Subject}}]") + f"trusted_proxies: [10.0.0.0/8]\nlisten: unix:{tmp_path}/s\n"
    assert [one.split(": ", 2)[2] for one in mistakes(tmp_path, text)] == [
        "X-Subject is believed from `trusted_proxies` alone, and who connects to a Unix socket has no address; use basic or jwt"
    ]


def test_a_mistake_in_the_principal_of_defaults_is_told_once(tmp_path: Path) -> None:
    """Two routes that take it do not repeat it."""
    routes = "".join(f"  - {{id: {name}, path: /{name}, upstream: payments, idempotency: {{}}}}\n" for name in "ab")
    text = f"{HEAD}defaults: {{principal: [{{client_certificate: {{}}}}]}}\nroutes:\n{routes}"
    assert [one.split(": ")[1] for one in mistakes(tmp_path, text)] == ["defaults.principal[0].client_certificate"]


SCOPES = [
    pytest.param("[{header: X}]", "[{header: x}]", "", True, id="letter-case"),
    pytest.param("[{header: X}]", "[{basic: true}]", "", False, id="other-source"),
    pytest.param("[{header: X}, {header: Y}]", "[{header: Y}, {header: X}]", "", False, id="other-order"),
    pytest.param("[{header: X}, {header: Y}]", "[{header: X}, {header: Y}]", ", principal_combine: first", False, id="other-combination"),
    pytest.param("[{header: X}]", "[{header: X}]", ", principal_combine: first", True, id="combination-of-one"),
    pytest.param("[{header: X}]", "[{header: X}]", ", key: {pattern: '[a-z]+'}", False, id="other-pattern"),
    pytest.param("[{header: X}]", "[{header: X}]", ", key: {fold_case: true}", False, id="other-case"),
    pytest.param("[{header: X}]", "[{header: X}]", ", key: {query: a}", False, id="other-place"),
    pytest.param("[{header: X}]", "[{header: X}]", ", key: {notice: false}", True, id="notice"),
    pytest.param(
        f"[{{jwt: {{claim: sub, {URL}, algorithms: [RS256], audience: a}}}}]",
        f"[{{jwt: {{claim: sub, {URL}, algorithms: [ES256], audience: b, header: X, leeway: 1s}}}}]",
        "",
        True,
        id="same-issuer",
    ),
    pytest.param(
        f"[{{jwt: {{claim: sub, {URL}, algorithms: [RS256], audience: a}}}}]",
        f"[{{jwt: {{claim: sub, {URL}x, algorithms: [RS256], audience: a}}}}]".replace("'x", "x'"),
        "",
        False,
        id="other-issuer",
    ),
]


@pytest.mark.parametrize(("first", "second", "more", "same"), SCOPES)
def test_routes_of_one_scope_ask_the_same_who(tmp_path: Path, first: str, second: str, more: str, same: bool) -> None:
    """A scope is shared by routes that would call each caller the same and take the same keys."""
    text = f"{HEAD}routes:\n  - {{id: a, path: /a, upstream: payments, idempotency: {{principal: {first}}}}}\n"
    text += f"  - {{id: b, path: /b, upstream: payments, idempotency: {{scope: a, principal: {second}{more}}}}}\n"
    found = mistakes(tmp_path, text)
    assert [one.endswith("a scope means one thing") for one in found] == ([] if same else [True])
