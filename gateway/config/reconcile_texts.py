"""Texts of probes and webhooks that have a form. As in `texts`: each function returns the value or raises ValueError with the remedy, and
no message repeats the text of a secret.
"""

import base64
import binascii
import re

from gateway.config.texts import header_name, pointer
from gateway.core.reconcile.policy import OWN_KEY
from gateway.core.routes import parse_pattern

CAPTURED_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
WHOLE_POINTER_PATTERN = r"^(/([^~/]|~[01])*)*$"
EVENT_ID_PATTERN = r"^(header:|/)"
MIN_ENCRYPTION_KEY = 32

_CAPTURED = re.compile(CAPTURED_PATTERN[1:-1])
_TARGET = re.compile(r"/[\x21\x22\x24-\x7e]*")
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_STANDARD = "whsec_"


def captured_name(text: str) -> str:
    """The name of a captured value. `key` is there by itself."""
    if text == OWN_KEY:
        raise ValueError("`key` is the key itself, as the upstream saw it, and always there; choose another name")
    return captured(text)


def captured(text: str) -> str:
    if not _CAPTURED.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not the name of a captured value; use letters, digits and _, as in customer_id')
    return text


def whole_pointer(text: str) -> str:
    """RFC 6901; the empty one is the whole body."""
    return pointer(text) if text else ""


def inner_pointer(text: str) -> str:
    """RFC 6901, into a request or an event: to something in it."""
    if not text:
        raise ValueError("the empty pointer means the whole of it; name a member, as in /data/object/id")
    return pointer(text)


def event_id(text: str) -> str:
    """A pointer into the event, or `header:<name>`."""
    if text.startswith("header:"):
        return f"header:{header_name(text.removeprefix('header:'))}"
    if not text.startswith("/"):
        raise ValueError(f'"{text[:70]}" names no place of an event\'s id; write a pointer such as /id, or header:webhook-id')
    return pointer(text)


def request_target(text: str) -> str:
    """A request's path and query with placeholders. Spaces and what is not ASCII are written percent-encoded."""
    if not _TARGET.fullmatch(text):
        raise ValueError("is a path, perhaps with a query; it starts with / and is ASCII without spaces and #, as in /v1/charges?key={key}")
    return text


def header_value(text: str) -> str:
    """A field's value, perhaps with placeholders, perhaps with a secret."""
    if not _VALUE.fullmatch(text):
        raise ValueError("a header value is visible ASCII, with spaces inside if need be, and not empty")
    return text


def literal_path(text: str) -> str:
    """A path without parameters, as it stands in a request."""
    pattern = parse_pattern(text)
    if pattern.rest or None in pattern.segments:
        raise ValueError("a webhook has one path, without {parameters} and **, as in /webhooks/payments")
    return text


def signing_secret(text: str) -> bytes | None:
    """A secret whose text itself is the key, as with Stripe (`whsec_` included) and plain HMAC."""
    return text.encode() or None


def signature_prefix(text: str) -> str:
    if text and not _VALUE.fullmatch(text):
        raise ValueError("what stands before a signature is visible ASCII, as in sha256=")
    return text


def standard_secret(text: str) -> bytes | None:
    """`whsec_` and base64, or base64 alone, decoded (Standard Webhooks: 24 to 64 bytes)."""
    if not text:
        return None
    try:
        key = base64.b64decode(text.removeprefix(_STANDARD), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64: a secret of Standard Webhooks is whsec_ and base64, as the provider shows it") from None
    if not 24 <= len(key) <= 64:
        raise ValueError(f"holds {len(key)} bytes, and a secret of Standard Webhooks has 24 to 64; is it whole?")
    return key


def encryption_key(text: str) -> bytes | None:
    if text and len(text) < MIN_ENCRYPTION_KEY:
        raise ValueError(f"has {len(text)} characters and needs {MIN_ENCRYPTION_KEY} or more; make one with: openssl rand -hex 32")
    return text.encode() or None
