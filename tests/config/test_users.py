"""Users of the admin listener, a second person, and the provider, in the file."""

from pathlib import Path

import pytest

from gateway.config import User
from gateway.core.roles import Role
from gateway.core.second_approval import Above, SecondApproval
from tests.config.support import HEAD, ROUTES, mistakes, read

DIGEST = "sha256:" + "0f" * 32
OTHER = "sha256:" + "f0" * 32
ANA, BEN = f'{{name: ana, role: operator, token_digest: "{DIGEST}"}}', f'{{name: ben, role: approver, token_digest: "{OTHER}"}}'
CAPTURE = "      reconcile: {probe: manual, capture: {amount: /amount}}\n"


def test_users_are_read(tmp_path: Path) -> None:
    """With them a listener may be off loopback."""
    admin = read(tmp_path, f'{HEAD}{ROUTES}admin: {{listen: "0.0.0.0:9464", users: [{ANA}, {BEN}]}}\n').admin
    assert admin.users[0] == User(name="ana", role=Role.OPERATOR, token_digest=bytes.fromhex("0f" * 32))
    assert not admin.open
    assert "0f0f" not in repr(admin)


def test_a_second_person_is_read(tmp_path: Path) -> None:
    """The captured value must be one that a route captures."""
    text = f"{HEAD}{ROUTES}{CAPTURE}admin: {{users: [{ANA}, {BEN}], second_approval: {{above: {{capture: amount, value: 10000}}}}}}\n"
    config = read(tmp_path, text)
    assert config.admin.second_approval == SecondApproval(above=Above(capture="amount", value=10_000))
    assert [one for one in config.warnings if "nothing uses it" in str(one)] == []  # the second person does


def test_a_provider_is_read(tmp_path: Path) -> None:
    """Its issuer stands in the file as its metadata spells it; http is for loopback alone."""
    oidc = "{issuer: 'https://login.example/a/', client_id: gateway, client_secret: SECRET, roles: {sre: operator, leads: admin}}"
    admin = read(tmp_path, f"{HEAD}{ROUTES}admin: {{url: 'https://Admin.example:443/', oidc: {oidc}}}\n").admin
    assert admin.oidc is not None
    assert (admin.url, admin.oidc.issuer, admin.oidc.roles) == (
        "https://admin.example",
        "https://login.example/a/",
        (("sre", Role.OPERATOR), ("leads", Role.ADMIN)),
    )
    assert "SECRET" not in repr(admin)
    assert not admin.open


@pytest.mark.parametrize(
    ("admin", "message"),
    [
        (
            f"users: [{ANA[:-1]}, subject: u-1}}, {BEN[:-1]}, subject: u-1}}]",
            "is that of user 1 too: one person is one user",
        ),
        (f"users: [{ANA[:-1]}, subject: ''}}]", "is no `sub`; write it as id tokens have it"),
        (f"users: [{ANA[:-1]}, subject: 'u-1 '}}]", "is no `sub`; write it as id tokens have it"),
        (f"users: [{ANA[:-1]}, subject: u-1}}]", "there is none: write `oidc`, or remove it"),
        (f'users: [{ANA}, {{name: ana, role: admin, token_digest: "{OTHER}"}}]', "`ana` is the name of user 1 too"),
        (f"users: [{ANA}, {ANA.replace('ana', 'eve')}]", "is that of user 1 too; each user has a token of its own"),
        (f"token: t, users: [{ANA.replace('ana', 'admin')}]", "`admin` is the name of whoever has admin.token"),
        (f"users: [{ANA.replace('operator', 'boss')}]", "expected one of viewer, operator, approver, admin"),
        (f"users: [{ANA.replace(DIGEST, 'hunter2')}]", "is no digest; `idempotency-gateway users token` makes a token"),
        (f"users: [{ANA.replace('ana', 'oidc:ana')}]", "is no name of a user"),
        (f"users: [{ANA}], second_approval: {{not_executed_within_max_execution: true}}", "needs two users, of whom one has the role"),
        (f"users: [{ANA}, {BEN}], second_approval: {{above: {{capture: sum, value: 1}}}}", "no route captures `sum`"),
        ("url: 'https://a.example/path'", "is no origin; write scheme and host"),
        ("oidc: {issuer: 'https://a.example', client_id: c, roles: {g: viewer}}", "is required with `oidc`: the provider sends browsers"),
        ("oidc: {issuer: 'http://a.example', client_id: c, roles: {g: viewer}}", "must be the https URL of an issuer"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, admin: str, message: str) -> None:
    """At its place, and without a token that stands there by mistake."""
    found = mistakes(tmp_path, f"{HEAD}{ROUTES}{CAPTURE}admin: {{{admin}}}\n")
    assert any(message in one for one in found), found
    assert not any("hunter2" in one for one in found)
