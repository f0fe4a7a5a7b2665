"""The caller as one text, which the record keeps where the route names `{principal}`: probes and webhooks compare by
it.
"""

from collections.abc import Sequence

from gateway.core.headers import Fields, wire_name
from gateway.core.policy import Policy
from gateway.core.principal_source import HeaderPrincipal
from gateway.core.reconcile.capture import MAX_LENGTH, keepable
from gateway.principal.facts import Part


def told_by_fields(fields: Fields, policy: Policy) -> str | None:
    """The value of the one field that names the caller, as in the scope; None if a record cannot keep it: then no
    operation is ever found to be that caller's.
    """
    if len(policy.principal) != 1 or not isinstance(policy.principal[0], HeaderPrincipal):
        return None
    value = fields.first(wire_name(policy.principal[0].name))
    return None if value is None else _text(value.strip(b" \t"))


def told_value(parts: Sequence[Part]) -> str | None:
    """The value of the one source. A claim's stands first in its part, with its length before it."""
    if len(parts) != 1:
        return None
    name, value = parts[0]
    if name.startswith(b"jwt:"):
        length, _, rest = value.partition(b":")
        value = rest[: int(length)]
    return _text(value)


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text and len(text) <= MAX_LENGTH and keepable(text) else None
