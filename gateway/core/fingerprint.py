"""Fingerprint v1: a domain-tagged SHA-256 over what a request means.

Covered: scope name, method, raw path, raw query, media type, content coding, the configured headers, and the body by mode.
Each part is length-prefixed, so that no two different requests share an input. With a digest secret it is an HMAC, so that a
leaked table does not give bodies away to guessing. The version and the digest of the policy text are kept beside each record: a
record is compared under its own. The client's JSON is never judged: what is not strict I-JSON counts as bytes, under another tag.

A body longer than `LARGE_BODY` counts by its SHA-256, whatever its type (mode `none` aside): JSON pointers are not left out of it, and
another spelling is another body. So a body need not be in memory to be judged, and where one process kept it and another spilled it to
disk, both find the same fingerprint.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass

from gateway.core.canonical import canonicalise
from gateway.core.model import Fingerprint, Headers
from gateway.core.policy import BodyMode, FingerprintPolicy
from gateway.core.routes import split_target
from gateway.core.scope import length_prefixed

VERSION = 1

LARGE_BODY = 1024 * 1024
"""Bodies of more bytes than this count by their SHA-256. Part of version 1: another number is another version."""

_DOMAIN = b"idempotency-gateway/fingerprint/1\0"


@dataclass(frozen=True, slots=True)
class BodyDigest:
    """A body that is longer than `LARGE_BODY` and need not be at hand: its length, and its SHA-256 (32 bytes).

    Raises ValueError for a shorter body, which counts by what is in it, and for a digest that is none.
    """

    length: int
    sha256: bytes

    def __post_init__(self) -> None:
        if self.length <= LARGE_BODY:
            raise ValueError(f"a body of {self.length} bytes counts by its bytes, not by their digest")
        if len(self.sha256) != 32:
            raise ValueError("a SHA-256 has 32 bytes")


def digest_body(body: bytes) -> BodyDigest:
    """What stands for a body longer than `LARGE_BODY`. Raises ValueError for a shorter one."""
    return BodyDigest(len(body), hashlib.sha256(body).digest())


@dataclass(slots=True)  # not frozen: one for every request, and that would cost three times as much; nobody changes it
class Content:
    """The parts of a request that carry its meaning. `target` as received; `headers` in wire order. A `body` longer than `LARGE_BODY` and
    its `BodyDigest` mean the same.
    """

    scope: str
    method: str
    target: bytes
    headers: Headers
    body: bytes | BodyDigest


def policy_text(policy: FingerprintPolicy) -> str:
    """The full text of a policy, canonical: what the registry keeps, and what its digest is made of."""
    fields = {"body": policy.body.value, "headers": sorted(policy.headers), "ignore": sorted(policy.ignore)}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def policy_digest(text: str) -> bytes:
    """16 bytes that name a policy text."""
    return hashlib.sha256(b"idempotency-gateway/fingerprint-policy/1\0" + text.encode()).digest()[:16]


def parse_policy(text: str) -> FingerprintPolicy:
    """The inverse of `policy_text`. Raises ValueError for a text that this version does not understand."""
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.keys() != {"body", "headers", "ignore"}:
        raise ValueError(f"not a fingerprint policy of this version: {text}")
    headers, ignore = fields["headers"], fields["ignore"]
    if not (_is_texts(headers) and _is_texts(ignore)):
        raise ValueError(f"not a fingerprint policy of this version: {text}")
    return FingerprintPolicy(BodyMode(fields["body"]), tuple(headers), tuple(ignore))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


@dataclass(frozen=True, slots=True)
class Fingerprinter:
    """A policy made ready: its names in bytes and its digest, computed once per configuration.

    `lengths` are those of the field names that count, so that the others need not be looked at. `keyed` is an HMAC that has taken in the
    secret and nothing else: its copies cost less than beginning anew.
    """

    policy: FingerprintPolicy
    digest: bytes
    names: tuple[bytes, ...]
    lengths: frozenset[int]
    keyed: hmac.HMAC | None

    def fingerprint(self, content: Content) -> Fingerprint:
        """The request's fingerprint under this policy. Pure; its cost is linear in the body, nothing for a `BodyDigest`."""
        path, query, _ = split_target(content.target)
        media_type, coding, configured = self._fields(content.headers)
        tag, body = self._body(media_type, coding, content.body)
        parts = [content.scope.encode(), content.method.encode(), path, query, media_type, coding, *configured, tag, body]
        return Fingerprint(VERSION, self.digest, self._hash(length_prefixed(parts)))

    def _hash(self, message: bytes) -> bytes:
        if self.keyed is not None:
            keyed = self.keyed.copy()
            keyed.update(_DOMAIN + message)
            return keyed.digest()
        return hashlib.sha256(_DOMAIN + message).digest()

    def _fields(self, headers: Headers) -> tuple[bytes, bytes, list[bytes]]:
        """Media type (without parameters; of each line), content coding, and the configured headers as name, number of lines, lines."""
        media_types: list[bytes] = []
        coding = b""
        extra: dict[bytes, list[bytes]] = {name: [] for name in self.names}
        for name, value in headers:
            if len(name) not in self.lengths:
                continue
            lower = name.lower()
            if lower == b"content-type":
                media_types.append(value.partition(b";")[0].strip().lower())
            elif lower == b"content-encoding":
                coding += value.strip().lower() + b","
            if lower in extra:
                extra[lower].append(value.strip(b" \t"))
        configured: list[bytes] = []
        for name in self.names:
            configured += [name, b"%d" % len(extra[name]), *extra[name]]
        return b",".join(media_types), coding, configured

    def _body(self, media_type: bytes, coding: bytes, body: bytes | BodyDigest) -> tuple[bytes, bytes]:
        """The tag that says how the body was read, and what of it is covered."""
        mode = self.policy.body
        if mode is BodyMode.NONE:
            return b"none", b""
        if isinstance(body, BodyDigest):
            return b"sha256", body.sha256
        if len(body) > LARGE_BODY:
            return b"sha256", hashlib.sha256(body).digest()
        if mode is BodyMode.JSON or (mode is BodyMode.AUTO and not coding and _is_json(media_type)):
            canonical = canonicalise(body, self.policy.ignore)
            if canonical is not None:
                return b"json", canonical
        return b"bytes", body


def make_fingerprinter(policy: FingerprintPolicy, secret: bytes) -> Fingerprinter:
    """Make a policy ready for use. `secret` may be empty: then the fingerprint is a plain digest."""
    names = tuple(sorted(name.lower().encode() for name in policy.headers))
    lengths = frozenset(map(len, (b"content-type", b"content-encoding", *names)))
    keyed = hmac.new(secret, digestmod="sha256") if secret else None
    return Fingerprinter(policy, policy_digest(policy_text(policy)), names, lengths, keyed)


def _is_json(media_type: bytes) -> bool:
    """application/json and the `+json` structured suffix (RFC 6839 section 3.1). Two types at once are none: who reads which is unknown."""
    return media_type == b"application/json" or (media_type.endswith(b"+json") and b"," not in media_type)
