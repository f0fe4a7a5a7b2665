"""Fields, Basic users and certificates of proxies: there once, not empty, from whom they may come."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.principal_source import BasicPrincipal, CertificatePrincipal, HeaderPrincipal
from gateway.principal import Facts, Unidentified
from gateway.principal.credentials import find_basic, find_certificate, find_header, of_scheme
from gateway.principal.parts import basic_part
from tests.principal.tokens import facts

TENANT = HeaderPrincipal("X-Tenant")
BASIC = BasicPrincipal()
PROXY = CertificatePrincipal("X-Client-DN")


def basic(text: bytes, scheme: bytes = b"Basic ") -> Facts:
    return facts((b"Authorization", scheme + text))


def test_a_field_is_a_principal() -> None:
    """The field's value without blanks around it; the name's letter case does not matter."""
    for name in (b"X-Tenant", b"x-tenant", b"X-TENANT"):
        assert find_header(TENANT, facts((name, b"\t a b "))) == (b"header:x-tenant", b"a b")
    assert find_header(HeaderPrincipal("x-TENANT"), facts((b"X-Tenant", b"a"))) == (b"header:x-tenant", b"a")


@pytest.mark.parametrize(
    ("lines", "absent"), [([], True), ([b""], True), ([b" "], True), ([b"a", b"a"], False), ([b"a", b""], False), ([b"", b""], False)]
)
def test_no_field_no_principal(lines: list[bytes], absent: bool) -> None:
    """An absent or empty field says nothing; a repeated one fails, since which of two an upstream believes is unknown."""
    found = find_header(TENANT, facts(*[(b"X-Tenant", line) for line in lines]))
    assert isinstance(found, Unidentified)
    assert (found.header, found.absent, found.unavailable) == ("X-Tenant", absent, False)


@given(st.binary(min_size=1), st.binary())
def test_basic_users(user: bytes, password: bytes) -> None:
    """The user is what stands before the first colon, the password all behind it, byte for byte; both say who asks."""
    user = user.replace(b":", b"").translate(None, bytes([*range(32), 127]))
    found = find_basic(BASIC, basic(base64.b64encode(user + b":" + password)))
    assert found == basic_part(user, password) if user else isinstance(found, Unidentified)


def test_another_password_is_another_caller() -> None:
    """A replay never reaches whoever judges passwords: a caller with a wrong one must not be taken for the user."""
    right, wrong = (find_basic(BASIC, basic(base64.b64encode(b"u:" + password))) for password in (b"right", b"wrong"))
    assert right != wrong


@pytest.mark.parametrize("scheme", [b"basic ", b"BASIC ", b"Basic   "])
def test_spellings_of_the_scheme(scheme: bytes) -> None:
    """The scheme's letter case and the number of spaces behind it do not matter (RFC 9110 section 11.4)."""
    assert find_basic(BASIC, basic(base64.b64encode(b"u:p"), scheme)) == basic_part(b"u", b"p")


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(b"no colon"),
        base64.b64encode(b":password"),
        base64.b64encode(b"a\0b:p"),
        base64.b64encode(b"a\nb:p"),
        b"dTpw=",
        b"dXM6cA",
        b"dXM6cA=",
        b"dXM6cA== x",
        b"dXM6cB==",
        b"dTpwA",
        b"dT\npw",
        b"dTp!",
        b"dTo\xff",
        b"-_-_",
        b"dR==",
        b"====",
    ],
)
def test_malformed_basic_credentials(text: bytes) -> None:
    """Only canonical base64 of a user and a colon counts, so that one user has one spelling; nothing of it is echoed."""
    found = find_basic(BASIC, basic(text))
    assert isinstance(found, Unidentified)
    assert not found.absent
    assert found.challenges == (b'Basic realm="api"',)
    assert text.decode("latin-1") not in found.detail


@pytest.mark.parametrize("value", [b"", b"Basic", b"Basic ", b"Bearer dTpw", b"Basicd dTpw", b"dTpw"])
def test_other_schemes_are_absent(value: bytes) -> None:
    """Credentials in another scheme are no Basic credentials, and leave the word to the next source."""
    found = find_basic(BASIC, facts((b"Authorization", value)))
    assert isinstance(found, Unidentified)
    assert found.absent


def test_two_credentials_are_none() -> None:
    """Two lines of credentials fail, also if they are equal."""
    line = (b"Authorization", b"Basic dTpw")
    found = find_basic(BASIC, facts(line, line))
    assert isinstance(found, Unidentified)
    assert not found.absent


@given(st.binary(max_size=30))
def test_no_authorization_is_an_error(value: bytes) -> None:
    """Whatever stands in the field is credentials or none."""
    find_basic(BASIC, facts((b"Authorization", value)))
    found = of_scheme(value, b"bearer")
    assert found is None or value.lower().startswith(b"bearer ")


def test_a_proxy_names_the_certificate() -> None:
    """A trusted proxy's field is believed byte for byte."""
    found = find_certificate(PROXY, facts((b"x-client-dn", b"CN=a,O=b"), trusted=True))
    assert found == (b"certificate:header:x-client-dn", b"CN=a,O=b")


@pytest.mark.parametrize("subject", [None, b"of our own"])
def test_nobody_else_names_a_certificate(subject: bytes | None) -> None:
    """From any other peer the field means nothing: anybody can write it. A certificate of our own TLS does not stand in for it."""
    found = find_certificate(PROXY, facts((b"X-Client-DN", b"CN=a"), trusted=False, subject=subject))
    assert isinstance(found, Unidentified)
    assert found.absent


def test_two_subjects_are_none() -> None:
    """A client that smuggles a second line through a trusted proxy identifies nobody."""
    found = find_certificate(PROXY, facts((b"X-Client-DN", b"CN=a"), (b"X-Client-DN", b"CN=b"), trusted=True))
    assert isinstance(found, Unidentified)
    assert not found.absent


def test_the_certificate_of_our_own_tls() -> None:
    """Without a field the certificate of the connection counts, and no field can name another."""
    own = CertificatePrincipal()
    assert find_certificate(own, facts(subject=b"subject")) == (b"certificate:tls", b"subject")
    found = find_certificate(own, facts((b"X-Client-DN", b"CN=a"), trusted=True))
    assert isinstance(found, Unidentified)
    assert found.absent
