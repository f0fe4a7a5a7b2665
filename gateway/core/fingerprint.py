"""Fingerprints: a domain-tagged SHA-256 over what a request means.

Covered: scope name, method, raw path, raw query, media type, content coding, the configured headers, and the body by mode.
Each part is length-prefixed, so that no two different requests share an input. With a digest secret it is an HMAC, so that a
leaked table does not give bodies away to guessing. The version and the digest of the policy text are kept beside each record: a
record is compared under its own. The client's body is never judged: what has no strict reading as JSON, as a form or as parts counts
as bytes, under another tag. A content coding counts and is not undone.

* Version 1 reads JSON, and everything else as bytes. It is not written any more, and stays readable.
* Version 2 also reads forms (`gateway.core.forms`) and multipart/form-data (`gateway.core.multipart`), covers `only` what a policy
  selects, takes `*` in its pointers for every member or element, and reads nothing under a content coding.

A body longer than `LARGE_BODY` counts by its SHA-256, or by those of its parts; mode `none` aside. JSON pointers are not left out of it,
and another spelling is another body. So a body need not be in memory to be judged, and where one process kept it and another spilled it
to disk, both find the same fingerprint.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass

from gateway.core.canonical import canonicalise
from gateway.core.forms import read_form
from gateway.core.model import Fingerprint, Headers
from gateway.core.multipart import MEDIA_TYPE as MULTIPART_TYPE
from gateway.core.multipart import parts_reader, read_parts
from gateway.core.pointers import Pointer, compile_pointer
from gateway.core.policy import BodyMode, FingerprintPolicy
from gateway.core.routes import split_target
from gateway.core.scope import length_prefixed

VERSION = 2
"""The version that is written."""

VERSIONS = (1, 2)
"""The versions that can be computed."""

LARGE_BODY = 1024 * 1024
"""Bodies of more bytes than this count by their SHA-256. Part of both versions: another number is another version."""

FORM_TYPE = b"application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class BodyDigest:
    """A body that is longer than `LARGE_BODY` and need not be at hand: its length, and its SHA-256 (32 bytes).

    `parts` is what a `parts_reader` of the request's header fields made of it, None if there is no such reader or it has no reading.
    Raises ValueError for a shorter body, which counts by what is in it, and for a digest that is none.
    """

    length: int
    sha256: bytes
    parts: bytes | None = None

    def __post_init__(self) -> None:
        if self.length <= LARGE_BODY:
            raise ValueError(f"a body of {self.length} bytes counts by its bytes, not by their digest")
        if len(self.sha256) != 32 or (self.parts is not None and len(self.parts) != 32):
            raise ValueError("a SHA-256 has 32 bytes")


def digest_body(body: bytes, headers: Headers = ()) -> BodyDigest:
    """What stands for a body longer than `LARGE_BODY` in a request with these fields. Raises ValueError for a shorter one."""
    reader = parts_reader(headers)
    if reader is not None:
        reader.feed(body)
    return BodyDigest(len(body), hashlib.sha256(body).digest(), None if reader is None else reader.digest())


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
    if policy.only:
        fields["only"] = sorted(policy.only)  # only then: texts that are in databases have no such field
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def policy_digest(text: str, version: int = VERSION) -> bytes:
    """16 bytes that name a policy text as a version reads it: the registry keeps one line for each of the two."""
    return hashlib.sha256(b"idempotency-gateway/fingerprint-policy/%d\0" % version + text.encode()).digest()[:16]


def parse_policy(text: str) -> FingerprintPolicy:
    """The inverse of `policy_text`. Raises ValueError for a text that is not fully understood."""
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.keys() - {"only"} != {"body", "headers", "ignore"}:
        raise ValueError(f"not a fingerprint policy that this release knows: {text}")
    headers, ignore, only = fields["headers"], fields["ignore"], fields.get("only", [])
    if not (_is_texts(headers) and _is_texts(ignore) and _is_texts(only)) or ("only" in fields and not only):
        raise ValueError(f"not a fingerprint policy that this release knows: {text}")
    return FingerprintPolicy(BodyMode(fields["body"]), tuple(headers), tuple(ignore), tuple(only))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


@dataclass(frozen=True, slots=True)
class Fingerprinter:
    """A policy made ready, as one version reads it: names in bytes, pointers split, its digest; computed once per configuration.

    `lengths` are those of the field names that count, so that the others need not be looked at. `keyed` is an HMAC that has taken in the
    secret and nothing else: its copies cost less than beginning anew.
    """

    policy: FingerprintPolicy
    version: int
    digest: bytes
    names: tuple[bytes, ...]
    lengths: frozenset[int]
    ignore: tuple[Pointer, ...]
    only: tuple[Pointer, ...]
    domain: bytes
    keyed: hmac.HMAC | None

    def fingerprint(self, content: Content) -> Fingerprint:
        """The request's fingerprint under this policy. Pure; its cost is linear in the body, nothing for a `BodyDigest`.

        May be called in any thread: what it costs beyond 64 KiB of body can be felt in an event loop.
        """
        path, query, _ = split_target(content.target)
        content_type, media_type, coding, configured = self._fields(content.headers)
        tag, body = self._body(content_type, self._mode(media_type, coding), content.body)
        parts = [content.scope.encode(), content.method.encode(), path, query, media_type, coding, *configured, tag, body]
        return Fingerprint(self.version, self.digest, self._hash(length_prefixed(parts)))

    def _hash(self, message: bytes) -> bytes:
        if self.keyed is not None:
            keyed = self.keyed.copy()
            keyed.update(self.domain + message)
            return keyed.digest()
        return hashlib.sha256(self.domain + message).digest()

    def _fields(self, headers: Headers) -> tuple[bytes, bytes, bytes, list[bytes]]:
        """The last Content-Type as it is, the media type (without parameters; of each line), the content coding, and the configured
        headers as name, number of lines, lines.
        """
        content_type = b""
        media_types: list[bytes] = []
        coding = b""
        extra: dict[bytes, list[bytes]] = {name: [] for name in self.names}
        for name, value in headers:
            if len(name) not in self.lengths:
                continue
            lower = name.lower()
            if lower == b"content-type":
                content_type = value
                media_types.append(value.partition(b";")[0].strip().lower())
            elif lower == b"content-encoding":
                coding += value.strip().lower() + b","
            if lower in extra:
                extra[lower].append(value.strip(b" \t"))
        configured: list[bytes] = []
        for name in self.names:
            configured += [name, b"%d" % len(extra[name]), *extra[name]]
        return content_type, b",".join(media_types), coding, configured

    def _mode(self, media_type: bytes, coding: bytes) -> BodyMode:
        """How the body is to be read."""
        mode = self.policy.body
        if mode is BodyMode.NONE:
            return mode
        if coding and (mode is BodyMode.AUTO or self.version > 1):
            return BodyMode.BYTES
        if mode is BodyMode.AUTO:
            return _mode_of(media_type, self.version)
        return BodyMode.BYTES if mode is BodyMode.MULTIPART and media_type != MULTIPART_TYPE else mode

    def _body(self, content_type: bytes, mode: BodyMode, body: bytes | BodyDigest) -> tuple[bytes, bytes]:
        """The tag that says how the body was read, and what of it is covered."""
        if mode is BodyMode.NONE:
            return b"none", b""
        if mode is BodyMode.MULTIPART:
            parts = body.parts if isinstance(body, BodyDigest) else read_parts(content_type, body)
            if parts is not None:
                return b"multipart", parts
        if isinstance(body, BodyDigest):
            return b"sha256", body.sha256
        if len(body) > LARGE_BODY:
            return b"sha256", hashlib.sha256(body).digest()
        if mode is BodyMode.JSON:
            canonical = canonicalise(body, self.ignore, self.only)
            if canonical is not None:
                return b"json", canonical
        elif mode is BodyMode.FORM:
            pairs = read_form(body)
            if pairs is not None:
                return b"form", pairs
        return b"bytes", body


def make_fingerprinter(policy: FingerprintPolicy, secret: bytes, version: int = VERSION) -> Fingerprinter:
    """Make a policy ready for use, as one of `VERSIONS` reads it. `secret` may be empty: then the fingerprint is a plain digest.

    Raises ValueError for another version, for what a version does not know, and for pointers that are none.
    """
    if version not in VERSIONS:
        raise ValueError(f"no fingerprint version of this release: {version}")
    if version == 1 and (policy.only or policy.body in {BodyMode.FORM, BodyMode.MULTIPART}):
        raise ValueError("fingerprint version 1 knows neither `only` nor the modes `form` and `multipart`")
    names = tuple(sorted(name.lower().encode() for name in policy.headers))
    return Fingerprinter(
        policy,
        version,
        policy_digest(policy_text(policy), version),
        names,
        frozenset(map(len, (b"content-type", b"content-encoding", *names))),
        _compiled(policy.ignore, version),
        _compiled(policy.only, version),
        b"idempotency-gateway/fingerprint/%d\0" % version,
        hmac.new(secret, digestmod="sha256") if secret else None,
    )


def _compiled(pointers: tuple[str, ...], version: int) -> tuple[Pointer, ...]:
    return tuple(compile_pointer(pointer, wildcards=version > 1) for pointer in pointers)


def _mode_of(media_type: bytes, version: int) -> BodyMode:
    """What `auto` makes of a media type. Two types at once are none: who reads which is unknown."""
    if media_type == b"application/json" or (media_type.endswith(b"+json") and b"," not in media_type):  # RFC 6839 section 3.1
        return BodyMode.JSON
    if media_type == FORM_TYPE and version > 1:
        return BodyMode.FORM
    return BodyMode.MULTIPART if media_type == MULTIPART_TYPE and version > 1 else BodyMode.BYTES
