"""The name of a source's value in a scope, and the text that says what a scope means. Both use the same facts.

Both leave out where a token is found, by which keys and algorithms it is verified, and which fields the gateway sends
to an auth service: these may change while the caller stays the same.
"""

import json
from typing import assert_never

from gateway.core.headers import wire_name
from gateway.core.policy import Policy
from gateway.core.principal_source import (
    BasicPrincipal,
    CertificatePrincipal,
    Combine,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwtPrincipal,
    PrincipalSource,
)
from gateway.core.scope import NO_PRINCIPAL, length_prefixed
from gateway.principal.facts import Part


def header_part(name: str, value: bytes) -> Part:
    """The value of a request field."""
    return b"header:" + wire_name(name), value


def basic_part(user: bytes, password: bytes) -> Part:
    """The user and the password of Basic credentials."""
    return b"basic:user", length_prefixed([user, password])


def certificate_part(header: str | None, subject: bytes) -> Part:
    """A certificate's subject, as our TLS (None) or a proxy's field has it: the two spell it differently."""
    return b"certificate:tls" if header is None else b"certificate:header:" + wire_name(header), subject


def jwt_part(claim: tuple[str, ...], issuer: str | None, value: bytes) -> Part:
    """A claim, bound to the token's issuer, be that named in the configuration or not: several issuers may share their
    keys.
    """
    said = [] if issuer is None else [issuer.encode("utf-8", "surrogatepass")]
    return b"jwt:" + length_prefixed([segment.encode() for segment in claim]), length_prefixed([value, *said])


def forward_auth_part(source: ForwardAuthPrincipal, value: bytes) -> Part:
    """An auth service's answer. Two services may call different callers by one name."""
    service = [source.upstream.encode(), source.path.encode(), wire_name(source.answer_header)]
    return b"forward_auth:" + length_prefixed(service), value


def claim_text(policy: Policy) -> str:
    """What the principal of a scope means, for the registry and its messages. Another text is another principal."""
    sources = policy.principal
    if not sources:
        return NO_PRINCIPAL
    first = policy.combine is Combine.FIRST and len(sources) > 1
    names = [source.name.lower() for source in sources if isinstance(source, HeaderPrincipal)]
    if len(names) == len(sources) and not first:
        return f"header {', '.join(names)}"
    return (" or else " if first else " and ").join(_text(source) for source in sources)


def _text(source: PrincipalSource) -> str:
    match source:
        case HeaderPrincipal(name):
            return f"header {name.lower()}"
        case BasicPrincipal():
            return "basic user"
        case CertificatePrincipal(header):
            return "certificate" if header is None else f"certificate in {header.lower()}"
        case JwtPrincipal(claim, issuer=issuer):
            return f"jwt {json.dumps(list(claim))}" + (f" of {json.dumps(issuer)}" if issuer is not None else "")
        case ForwardAuthPrincipal(upstream, path, answer_header):
            return f"forward_auth {answer_header.lower()} of {upstream} {json.dumps(path)}"
        case _:
            assert_never(source)
