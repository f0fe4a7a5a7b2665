"""Sources that a request answers by itself: fields, Basic credentials, certificates. Pure."""

import base64
import binascii
import re

from gateway.core.headers import Fields, wire_name
from gateway.core.principal_source import BasicPrincipal, CertificatePrincipal, HeaderPrincipal
from gateway.principal.facts import Facts, Found, Unidentified
from gateway.principal.parts import basic_part, certificate_part, header_part

BASIC_CHALLENGE = b'Basic realm="api"'
AUTHORIZATION = "Authorization"

_SCHEME = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) +(.+)", re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


def single(fields: Fields, name: str) -> bytes | None:
    """The value of a field, empty if there is none; None if the field is repeated: which of two an upstream believes is
    unknown.
    """
    values = fields.values(wire_name(name))
    if len(values) > 1:
        return None
    return values[0].strip(b" \t") if values else b""


def needs(name: str, *, absent: bool, challenges: tuple[bytes, ...] = ()) -> Unidentified:
    """The refusal of a request without the field, or with two of them."""
    return Unidentified(f"This operation needs the {name} field, once, to identify the caller.", name, challenges, absent=absent)


def of_scheme(value: bytes, scheme: bytes) -> bytes | None:
    """The credentials of an `Authorization` value in this scheme (lower case; RFC 9110 section 11.4); None if it is in
    another.
    """
    found = _SCHEME.fullmatch(value)
    return found[2] if found is not None and found[1].lower() == scheme else None


def find_header(source: HeaderPrincipal, facts: Facts) -> Found:
    """The field's value, whatever its bytes."""
    value = single(facts.fields, source.name)
    if not value:
        return needs(source.name, absent=value is not None)
    return header_part(source.name, value)


def find_basic(_source: BasicPrincipal, facts: Facts) -> Found:
    """User and password of Basic credentials (RFC 7617): strict base64, a colon, a user that is not empty and holds no
    control characters.

    The password counts, too: no server judges it on a replay, so a caller without it must be another caller.
    """
    value = single(facts.fields, AUTHORIZATION)
    challenges = (BASIC_CHALLENGE,)
    if value is None:
        return needs(AUTHORIZATION, absent=False, challenges=challenges)
    text = of_scheme(value, b"basic")
    if text is None:
        return Unidentified("This operation needs Basic credentials to identify the caller.", AUTHORIZATION, challenges, absent=True)
    user, colon, password = (_decode(text) or b"").partition(b":")
    if not colon or not user or _CONTROL.search(user):
        return Unidentified("The Basic credentials are malformed.", AUTHORIZATION, challenges)
    return basic_part(user, password)


def _decode(text: bytes) -> bytes | None:
    """Base64 in its one canonical spelling."""
    try:
        plain = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return plain if base64.b64encode(plain) == text else None


def find_certificate(source: CertificatePrincipal, facts: Facts) -> Found:
    """The subject of the client's certificate. A proxy's word counts only if the proxy is trusted; anybody can write
    the field.
    """
    name = source.header
    if name is None:
        if facts.certificate_subject is None:
            return Unidentified("This operation needs a client certificate with a subject.", absent=True)
        return certificate_part(None, facts.certificate_subject)
    value = single(facts.fields, name) if facts.trusted else b""
    if not value:
        return Unidentified("This operation needs a client certificate.", name, absent=value is not None)
    return certificate_part(name, value)
