"""What people may read of requests and answers: the values that open doors are left out. Pure.

What is stored and replayed stays as it is: only the page shows `***`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.core.model import Headers
from gateway.core.redaction import SECRETS, redact_target

HIDDEN = "***"

SHOWN_MAX = 64 * 1024
"""Characters of a body on a page."""

_FIELDS = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "set-cookie", "set-cookie2", "www-authenticate", "proxy-authenticate"),
        *("authentication-info", "x-csrf-token", "x-xsrf-token", "x-api-key", "api-key", "x-amz-security-token", "stripe-signature"),
    }
)
"""Header fields that hold credentials, in small letters."""

_MEMBERS = frozenset(name.decode().replace("-", "_") for name in SECRETS) | {
    *("card_number", "number", "pan", "cvc", "cvv", "cvv2", "iban", "account_number", "pin", "otp"),
    *("session_id", "refreshtoken", "accesstoken", "clientsecret", "privatekey", "passphrase"),
}
"""Members of JSON documents whose values open doors, or name an account, in small letters with `_`."""


@dataclass(frozen=True, slots=True)
class Text:
    """A body as a page shows it. `kind`: json, text, or binary (then `text` is empty). `hidden`: values were left out. `cut`: more
    follows.
    """

    text: str
    kind: str
    hidden: bool = False
    cut: bool = False


def fields(headers: Headers) -> list[tuple[str, str]]:
    """Header fields as a page shows them, in their order."""
    told = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return [(name, HIDDEN if _opens_doors(name) else value) for name, value in told]


def _opens_doors(name: str) -> bool:
    lower = name.lower()
    return lower in _FIELDS or lower.endswith(("-token", "-secret", "-signature"))


def target(raw: bytes) -> str:
    """A request target as a page shows it."""
    return redact_target(raw).decode("latin-1")


def body(raw: bytes) -> Text:
    """A body as a page shows it: JSON indented, other text as it is."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Text("", "binary")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Text("", "binary") if "\0" in text else _cut(text, "text", hidden=False)
    try:
        concealed, hidden = conceal(document)
        return _cut(json.dumps(concealed, indent=2, ensure_ascii=False), "json", hidden=hidden)
    except (ValueError, RecursionError):
        return Text("", "binary")  # too deep to read


def _cut(text: str, kind: str, *, hidden: bool) -> Text:
    return Text(text[:SHOWN_MAX], kind, hidden, cut=len(text) > SHOWN_MAX)


def conceal(document: object) -> tuple[object, bool]:
    """A JSON document with `***` in place of each secret, and whether there was one. A secret that is an object or a list goes whole."""
    match document:
        case dict():
            return _members(document)
        case list():
            items = [conceal(item) for item in document]
            return [item for item, _ in items], any(hidden for _, hidden in items)
        case _:
            return document, False


def _members(document: Mapping[str, object]) -> tuple[dict[str, object], bool]:
    found: dict[str, object] = {}
    hidden = False
    for name, value in document.items():
        if value is not None and name.lower().replace("-", "_") in _MEMBERS:
            found[name], hidden = HIDDEN, True
        else:
            found[name], inner = conceal(value)
            hidden |= inner
    return found, hidden
