"""The callers whom an operator names: the values that a policy's sources give for them, as parts. Pure."""

from collections.abc import Sequence
from typing import assert_never

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
from gateway.principal.facts import Part
from gateway.principal.parts import basic_part, certificate_part, forward_auth_part, header_part, jwt_part


def parts_named(policy: Policy, values: Sequence[bytes]) -> list[list[Part]]:
    """The parts of each caller of the route whom these values can mean, one value for each source in the policy's order; where the first
    source counts, one value of any source. A token's value is bound to its issuer, so that a source without one has no caller here.
    """
    sources = policy.principal
    if not sources:
        return []
    if policy.combine is Combine.FIRST:
        return [[part] for source in sources if len(values) == 1 and (part := _part(source, values[0])) is not None]
    if len(values) != len(sources):
        return []
    parts = [part for source, value in zip(sources, values, strict=True) if (part := _part(source, value)) is not None]
    return [parts] if len(parts) == len(sources) else []


def _part(source: PrincipalSource, value: bytes) -> Part | None:
    match source:
        case HeaderPrincipal(name):
            return header_part(name, value)
        case BasicPrincipal():
            user, _, password = value.partition(b":")
            return basic_part(user, password)
        case CertificatePrincipal(header):
            return certificate_part(header, value)
        case JwtPrincipal(claim, issuer=issuer):
            return None if issuer is None else jwt_part(claim, issuer, value)
        case ForwardAuthPrincipal():
            return forward_auth_part(source, value)
        case _:
            assert_never(source)
