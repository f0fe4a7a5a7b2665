"""Who asks: from a request's facts to the parts of its principal, by verifying or asking what a route names as its source.

A caller that fails its source gets nothing but that: no record is looked up for it. Whatever cannot be told for want of somebody
else's answer is `unavailable`, never a yes, and never the caller's fault.
"""

from gateway.principal.certificate import certificate_subject
from gateway.principal.facts import Facts, Part, PrincipalError, Unidentified
from gateway.principal.identifier import Identifier, needs_waiting
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
    "needs_waiting",
    "told_by_fields",
    "told_value",
]
