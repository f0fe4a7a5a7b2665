"""Identifies the caller: from a request's facts to the parts of its principal, by the source that the route names.

For a caller that fails its source the gateway looks up no record. Where another server's answer is missing, the result
is `unavailable`: never a yes, and never the caller's fault.
"""

from gateway.principal.certificate import certificate_subject
from gateway.principal.facts import Facts, Part, PrincipalError, Unidentified
from gateway.principal.identifier import Identifier
from gateway.principal.parts import claim_text
from gateway.principal.told import told_by_fields, told_value

__all__ = [
    "Facts",
    "Identifier",
    "Part",
    "PrincipalError",
    "Unidentified",
    "certificate_subject",
    "claim_text",
    "told_by_fields",
    "told_value",
]
