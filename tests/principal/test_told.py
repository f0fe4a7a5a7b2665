"""Who asks as one text."""

import pytest

from gateway.core.headers import Fields
from gateway.core.policy import Policy
from gateway.core.principal_source import BasicPrincipal, ForwardAuthPrincipal, HeaderPrincipal
from gateway.principal import told_by_fields, told_value
from gateway.principal.facts import Part
from gateway.principal.parts import forward_auth_part, header_part, jwt_part

SERVICE = ForwardAuthPrincipal("auth", "/check", "X-User")
ACCOUNT = Policy("s", (HeaderPrincipal("X-Account"),))


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (header_part("X-Account", b"a-1"), "a-1"),
        (forward_auth_part(SERVICE, b"u:1,2"), "u:1,2"),
        (jwt_part(("sub",), "https://issuer", b"user:7,8"), "user:7,8"),
        (jwt_part(("sub",), None, "\u00e9".encode()), "\u00e9"),
        (header_part("X-Account", b"\xff"), None),
        (header_part("X-Account", b"a\0"), None),
        (header_part("X-Account", b"a" * 256), None),
    ],
)
def test_the_value_of_one_source(part: Part, text: str | None) -> None:
    """The value alone, without its issuer or service; none that a store could not keep, or that is cut."""
    assert told_value([part]) == text


def test_several_sources_have_no_one_value() -> None:
    assert told_value([header_part("A", b"1"), header_part("B", b"2")]) is None
    fields = Fields(((b"X-Account", b" a-1\t"), (b"X-User", b"u")))
    assert told_by_fields(fields, ACCOUNT) == "a-1"
    assert told_by_fields(fields, Policy("s", (HeaderPrincipal("X-Account"), HeaderPrincipal("X-User")))) is None
    assert told_by_fields(fields, Policy("s", (BasicPrincipal(),))) is None
    assert told_by_fields(Fields(()), ACCOUNT) is None
