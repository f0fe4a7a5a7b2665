"""Signatures of webhooks. Secrets and signatures are compared in constant time; every secret is tried whichever one fits.

A field that is missing, or there more than once, is a bad signature: two readers could take another line of it each.
"""

import base64
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from gateway.core.model import Headers
from gateway.core.reconcile.policy import PlainSignature, Signature, StandardSignature, StripeSignature

_SECONDS = re.compile(rb"[0-9]{1,12}")
_VISIBLE = re.compile(rb"[\x21-\x7e]{1,255}")
_MOST_SIGNATURES = 32
"""In one field: senders list one for each secret and version that they use."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The sender knows a secret. `event_id_hint` is the id that was signed along (Standard Webhooks), if there is one."""

    event_id_hint: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """`out_of_tolerance`: the signature is right, its time is not: a replay, or a clock that is off."""

    reason: Literal["bad_signature", "out_of_tolerance"]


_BAD = Refusal("bad_signature")


def verify(signature: Signature, headers: Headers, body: bytes, now: float) -> Verified | Refusal:
    """Judge an event as it came: `headers` and `body` as received, `now` in seconds since the epoch. Raises nothing.

    The tolerance holds for both directions. It is looked at last: only who can sign learns what our clock says.
    """
    match signature:
        case StripeSignature():
            return _stripe(signature, headers, body, now)
        case StandardSignature():
            return _standard(signature, headers, body, now)
        case PlainSignature():
            return _plain(signature, headers, body)
        case _:
            assert_never(signature)


def _stripe(signature: StripeSignature, headers: Headers, body: bytes, now: float) -> Verified | Refusal:
    """`t=1492774577,v1=…,v1=…,v0=…`; schemes other than v1 are not looked at."""
    field = _only(headers, b"stripe-signature")
    if field is None:
        return _BAD
    items = [item.strip(b" \t").partition(b"=") for item in field.split(b",")]
    times = [value for name, _, value in items if name == b"t"]
    given = [value.lower() for name, _, value in items if name == b"v1"]
    if len(times) != 1 or not _SECONDS.fullmatch(times[0]):
        return _BAD
    wanted = [digest.hex().encode() for digest in _digests(signature.secrets, times[0] + b"." + body)]
    return _within(signature.tolerance, times[0], now, Verified()) if _any_equal(given, wanted) else _BAD


def _standard(signature: StandardSignature, headers: Headers, body: bytes, now: float) -> Verified | Refusal:
    """Standard Webhooks 1.0.0. An id with a full stop is refused: with one, two ways to split what was signed can be right."""
    event_id, time, field = [_only(headers, b"webhook-" + part) for part in (b"id", b"timestamp", b"signature")]
    if event_id is None or time is None or field is None:
        return _BAD
    if not _VISIBLE.fullmatch(event_id) or b"." in event_id or not _SECONDS.fullmatch(time):
        return _BAD
    given = [item.removeprefix(b"v1,") for item in field.split(b" ") if item.startswith(b"v1,")]
    wanted = [base64.b64encode(digest) for digest in _digests(signature.secrets, b".".join((event_id, time, body)))]
    return _within(signature.tolerance, time, now, Verified(event_id.decode())) if _any_equal(given, wanted) else _BAD


def _plain(signature: PlainSignature, headers: Headers, body: bytes) -> Verified | Refusal:
    """One, or a list with commas: senders sign with the new secret and the former one while they rotate."""
    field, prefix = _only(headers, signature.header.lower().encode()), signature.prefix.encode()
    if field is None:
        return _BAD
    items = [item.strip(b" \t") for item in field.split(b",")]
    given, digests = [item.removeprefix(prefix) for item in items if item.startswith(prefix)], _digests(signature.secrets, body)
    if signature.encoding == "base64":
        return Verified() if _any_equal(given, [base64.b64encode(digest) for digest in digests]) else _BAD
    return Verified() if _any_equal([one.lower() for one in given], [digest.hex().encode() for digest in digests]) else _BAD


def _only(headers: Headers, name: bytes) -> bytes | None:
    values = [value.strip(b" \t") for field, value in headers if field.lower() == name]
    return values[0] if len(values) == 1 else None


def _digests(secrets: Sequence[bytes], content: bytes) -> list[bytes]:
    """An empty secret, which everybody knows, signs nothing."""
    return [hmac.digest(secret, content, "sha256") for secret in secrets if secret]


def _any_equal(given: Sequence[bytes], wanted: Sequence[bytes]) -> bool:
    if len(given) > _MOST_SIGNATURES:
        return False
    return sum(hmac.compare_digest(one, other) for one in given for other in wanted) > 0


def _within(tolerance: float, time: bytes, now: float, verified: Verified) -> Verified | Refusal:
    return verified if abs(now - int(time)) <= tolerance else Refusal("out_of_tolerance")
