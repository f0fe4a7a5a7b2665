"""Fingerprints: a domain-tagged SHA-256 over what a request means.

A fingerprint covers the scope name, method, raw path, raw query, media type, content coding, the configured headers,
and the body by mode; from version 3 on also the host, the media type's parameters, and fields that select the operation
(`gateway.core.field_names.SELECTING`). Each part is length-prefixed, so that no two different requests share an input.
With a digest secret the fingerprint is an HMAC, so that a reader of a leaked table cannot guess bodies. Each record
keeps the version and the digest of the policy text, and the gateway compares it under these. The client's body is never
refused: a body without a strict reading as JSON, as a form or as parts counts as bytes, under another tag. A content
coding counts, and the gateway does not undo it.

* Version 1 reads JSON, and everything else as bytes. The gateway reads it, and writes it no more.
* Version 2 also reads forms (`gateway.core.forms`) and multipart/form-data (`gateway.core.multipart`), covers `only`
  what a policy selects, takes `*` in its pointers for every member or element, and reads no body with a content coding.
  The gateway writes it on demand, for the time of an upgrade: releases before version 3 cannot read version 3.
* Version 3 covers all of the above, may leave out parameters of the query, fields of a form and selecting fields, takes
  a path with one closing slash for the path without it, sorts a form's pairs only where no reader can tell
  (`in_safe_order`), and takes JSON with names that differ only in letter case for bytes.

A body longer than `LARGE_BODY` counts by its SHA-256, or by those of its parts, except in mode `none`. JSON pointers do
not apply to it, and another spelling is another body. So the body need not be in memory: a process that kept it and a
process that spilled it to disk find the same fingerprint.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.core.canonical import canonicalise
from gateway.core.field_names import DROPPABLE, HOST
from gateway.core.fingerprint_head import HeadReader, head_reader
from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.forms import FORM_TYPE, in_order_of_names, in_safe_order, read_form, without_named
from gateway.core.memo import Memo
from gateway.core.model import Fingerprint, Headers
from gateway.core.multipart import MEDIA_TYPE as MULTIPART_TYPE
from gateway.core.multipart import parts_reader, read_parts
from gateway.core.pointers import Pointer, compile_pointer
from gateway.core.routes import split_target
from gateway.core.scope import length_prefixed
from gateway.core.value import value

VERSION = 3
"""The version that is written."""

WRITABLE = (2, 3)
"""The versions that can be written: the present one, and the one that the release before reads."""

VERSIONS = (1, 2, 3)
"""The versions that can be computed."""

LARGE_BODY = 1024 * 1024
"""Bodies of more bytes than this count by their SHA-256. Part of every version: another number is another version."""

_REMEMBERED = 256
_REMEMBERED_LONGEST = 1024
_REMEMBERED_NAME = 64
_REMEMBERED_BODY = 16 * 1024
"""How many targets, heads and names are remembered, how long each may be, and how long a body may be that is."""


@dataclass(frozen=True, slots=True)
class BodyDigest:
    """A body that is longer than `LARGE_BODY` and need not be at hand: its length, and its SHA-256 (32 bytes).

    `parts` is what a `parts_reader` of the request's header fields made of it, None if there is no such reader or it
    has no reading. Raises ValueError for a shorter body, which counts by what is in it, and for a digest that is none.
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
    """What stands for a body longer than `LARGE_BODY` in a request with these fields. Raises ValueError for a shorter
    one.
    """
    reader = parts_reader(headers)
    if reader is not None:
        reader.feed(body)
    return BodyDigest(len(body), hashlib.sha256(body).digest(), None if reader is None else reader.digest())


@value
class Content:
    """The parts of a request that carry its meaning. `target` as received; `headers` are its field lines, in wire order. A `body` longer
    than `LARGE_BODY` and its `BodyDigest` mean the same. `host` is whom the request is for, in one spelling
    (`gateway.core.host`).
    """

    scope: str
    method: str
    target: bytes
    headers: Iterable[tuple[bytes, bytes]]
    body: bytes | BodyDigest
    host: bytes = b""


_LATER = ("only", "ignore_headers", "ignore_query", "ignore_form")
"""Fields of a policy that a text has only if they say something: texts that are in databases have no such field."""


def policy_text(policy: FingerprintPolicy) -> str:
    """The full text of a policy, canonical: what the registry keeps, and what its digest is made of."""
    fields = {"body": policy.body.value, "headers": sorted(policy.headers), "ignore": sorted(policy.ignore)}
    for name in _LATER:
        if getattr(policy, name):
            fields[name] = sorted(getattr(policy, name))
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def policy_digest(text: str, version: int = VERSION) -> bytes:
    """16 bytes that name a policy text as a version reads it: the registry keeps one line for each of the two."""
    return hashlib.sha256(b"idempotency-gateway/fingerprint-policy/%d\0" % version + text.encode()).digest()[:16]


def parse_policy(text: str) -> FingerprintPolicy:
    """The inverse of `policy_text`. Raises ValueError for a text that is not fully understood."""
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.keys() - set(_LATER) != {"body", "headers", "ignore"}:
        raise ValueError(f"not a fingerprint policy that this release knows: {text}")
    body = fields.pop("body")
    later = [fields[name] for name in _LATER if name in fields]
    if not all(map(_is_texts, fields.values())) or not all(later) or not DROPPABLE.issuperset(fields.get("ignore_headers", ())):
        raise ValueError(f"not a fingerprint policy that this release knows: {text}")
    return FingerprintPolicy(BodyMode(body), **{name: tuple(texts) for name, texts in fields.items()})


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


class Hash(Protocol):
    """A hash function that has taken in something."""

    def copy(self) -> "Hash": ...

    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class EqualRequests:
    """Remembers the fingerprints of requests that come again and again, for all fingerprinters of a process.

    `seen` holds hashes of requests that came: nearly all come once, and cost no more than that. `known` has those that
    came again, by a keyed digest of all that their fingerprints depend on. So neither holds a body.
    """

    __slots__ = ("known", "seen")

    def __init__(self) -> None:
        self.seen: Memo[int, None] = Memo(16 * 1024)
        self.known: Memo[bytes, Fingerprint] = Memo(4 * 1024)


class ReadHead(NamedTuple):
    """What a request's fields come to: the `parts` that count, encoded, how the body is to be read, the media type as
    it stands, and whether to read the body so costs more than to look whether an equal one came before.
    """

    parts: bytes
    mode: BodyMode
    content_type: bytes
    costly: bool


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprinter:
    """A policy made ready, as one version reads it: names in bytes, pointers split, its digest; computed once per
    configuration.

    `host` says whether the host counts. `inner` and `outer` are the two hashes of an HMAC (RFC 2104) that have taken in
    the secret, `inner` the domain too: their copies cost less than beginning anew. Without a secret there is no
    `outer`. `targets`, `heads` and `passed_over` remember what short parts came to, `passed_over` the spellings of
    names that do not count; `equal` (None: not wanted) remembers requests, which `naming` names for it: a keyed hash
    that has taken in the policy.
    """

    policy: FingerprintPolicy
    version: int
    digest: bytes
    head_reader: HeadReader
    host: bool
    ignore: tuple[Pointer, ...]
    only: tuple[Pointer, ...]
    ignore_query: frozenset[bytes]
    ignore_form: frozenset[bytes]
    inner: Hash
    outer: Hash | None
    naming: Hash
    equal: EqualRequests | None
    targets: Memo[tuple[str, str, bytes], bytes]
    heads: Memo[Headers, ReadHead]
    passed_over: Memo[bytes, None]

    def fingerprint(self, content: Content, head: ReadHead | None = None) -> Fingerprint:
        """The request's fingerprint under this policy. Pure; its cost is linear in the body, nothing for a
        `BodyDigest`. `head` is what `read_head` has made of its fields, if it was asked already.

        May be called in any thread: what it costs beyond 64 KiB of body can be felt in an event loop.
        """
        body = content.body
        target = self.targets.get((content.scope, content.method, content.target)) or self._read_target(content)
        if head is None:
            head = self.read_head(content.headers)
        host = content.host if self.host else b""
        equal = self.equal
        if equal is None or not head.costly or not isinstance(body, bytes) or len(body) > _REMEMBERED_BODY:
            return self._make(target, head, body, host)
        glance = hash((target, head.parts, host, body))
        if glance not in equal.seen:
            equal.seen.keep(glance, None)
            return self._make(target, head, body, host)
        naming = self.naming.copy()
        naming.update(b"%b%b%d:%b,%b" % (target, head.parts, len(host), host, body))
        name = naming.digest()
        return equal.known.get(name) or equal.known.keep(name, self._make(target, head, body, host))

    def read_head(self, headers: Iterable[tuple[bytes, bytes]]) -> ReadHead:
        """What a request's fields come to."""
        passed_over = self.passed_over
        counted = tuple([field for field in headers if field[0] not in passed_over])
        return self.heads.get(counted) or self._read_head(counted)

    def _make(self, target: bytes, head: ReadHead, body: bytes | BodyDigest, host: bytes) -> Fingerprint:
        """As `length_prefixed` encodes all parts together."""
        tag, covered = self._body(head.content_type, head.mode, body)
        keyed = self.inner.copy()
        keyed.update(b"%b%b%d:%b,%d:%b," % (target, head.parts, len(tag), tag, len(covered), covered))
        if self.version > 2:
            keyed.update(b"%d:%b," % (len(host), host))
        digest = keyed.digest()
        if self.outer is not None:
            keyed = self.outer.copy()
            keyed.update(digest)
            digest = keyed.digest()
        return Fingerprint(self.version, self.digest, digest)

    def _read_target(self, content: Content) -> bytes:
        """Scope, method, path and query, encoded."""
        path, query, _ = split_target(content.target)
        if self.version > 2:
            path = path[:1] + path[1:].removesuffix(b"/")
        if self.ignore_query and query:
            query = without_named(query, self.ignore_query)
        encoded = length_prefixed([content.scope.encode(), content.method.encode(), path, query])
        short = len(content.target) <= _REMEMBERED_LONGEST
        return self.targets.keep((content.scope, content.method, content.target), encoded) if short else encoded

    def _read_head(self, headers: Headers) -> ReadHead:
        counted = tuple([field for field in headers if self.head_reader.counts(field[0])])
        for name, _ in headers:
            if len(name) <= _REMEMBERED_NAME and not self.head_reader.counts(name):
                self.passed_over.keep(name, None)
        head = self.head_reader.read(counted)
        mode = self._mode(head.media_type, head.coding)
        read = ReadHead(length_prefixed(head.parts), mode, head.content_type, mode in {BodyMode.JSON, BodyMode.FORM})
        short = sum(len(name) + len(value) for name, value in counted) <= _REMEMBERED_LONGEST
        return self.heads.keep(counted, read) if short else read

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
            canonical = canonicalise(body, self.ignore, self.only, case_variants=self.version < 3)
            if canonical is not None:
                return b"json", canonical
        elif mode is BodyMode.FORM:
            pairs = read_form(body, self.ignore_form, in_safe_order if self.version > 2 else in_order_of_names)
            if pairs is not None:
                return b"form", pairs
        return b"bytes", body


def make_fingerprinter(
    policy: FingerprintPolicy,
    secret: bytes,
    version: int = VERSION,
    *,
    equal: EqualRequests | None = None,
) -> Fingerprinter:
    """Make a policy ready for use, as one of `VERSIONS` reads it. `secret` may be empty: then the fingerprint is a
    plain digest. `equal` may be shared by all fingerprinters of a process.

    Raises ValueError for another version, for what a version does not know, and for pointers that are none.
    """
    if version not in VERSIONS:
        raise ValueError(f"no fingerprint version of this release: {version}")
    if version == 1 and (policy.only or policy.body in {BodyMode.FORM, BodyMode.MULTIPART}):
        raise ValueError("fingerprint version 1 knows neither `only` nor the modes `form` and `multipart`")
    if version < 3 and (policy.ignore_headers or policy.ignore_query or policy.ignore_form):
        raise ValueError(f"fingerprint version {version} knows none of `ignore_headers`, `ignore_query` and `ignore_form`")
    digest, (inner, outer) = policy_digest(policy_text(policy), version), _pads(secret)
    return Fingerprinter(
        policy,
        version,
        digest,
        head_reader(policy, version),
        HOST not in policy.ignore_headers,
        _compiled(policy.ignore, version),
        _compiled(policy.only, version),
        frozenset(name.encode() for name in policy.ignore_query),
        frozenset(name.encode() for name in policy.ignore_form),
        hashlib.sha256(inner + b"idempotency-gateway/fingerprint/%d\0" % version),
        hashlib.sha256(outer) if secret else None,
        _naming(secret, digest),
        equal,
        Memo(_REMEMBERED),
        Memo(_REMEMBERED),
        Memo(_REMEMBERED),
    )


def _pads(secret: bytes) -> tuple[bytes, bytes]:
    """What the two hashes of an HMAC under SHA-256 begin with (RFC 2104 section 2); nothing without a secret."""
    if not secret:
        return b"", b""
    block = (hashlib.sha256(secret).digest() if len(secret) > 64 else secret).ljust(64, b"\0")
    return bytes(octet ^ 0x36 for octet in block), bytes(octet ^ 0x5C for octet in block)


def _naming(secret: bytes, policy: bytes) -> Hash:
    """Names requests under a policy, for one process alone: no record holds these names."""
    key = hmac.digest(secret, b"idempotency-gateway/equal-requests/1\0" + policy, "sha256")
    return hashlib.blake2b(key=key, digest_size=32)


def _compiled(pointers: tuple[str, ...], version: int) -> tuple[Pointer, ...]:
    return tuple(compile_pointer(pointer, wildcards=version > 1) for pointer in pointers)


def _mode_of(media_type: bytes, version: int) -> BodyMode:
    """What `auto` makes of a media type. Two types at once are none: who reads which is unknown."""
    if media_type == b"application/json" or (media_type.endswith(b"+json") and b"," not in media_type):  # RFC 6839 section 3.1
        return BodyMode.JSON
    if media_type == FORM_TYPE and version > 1:
        return BodyMode.FORM
    return BodyMode.MULTIPART if media_type == MULTIPART_TYPE and version > 1 else BodyMode.BYTES
