"""How a stored body is packed: as it came, or compressed by zlib (RFC 1950), whichever pays; then perhaps sealed, with all of its answer.

Packing happens only between the gateway and its stores: clients and upstreams never see it, and a replay has the bytes
received. A body is compressed when it is long enough to be worth the time, is not compressed already (by its content
coding, RFC 9110 section 8.4, or by the nature of its media type), and becomes smaller by a tenth at least.
"""

import zlib
from dataclasses import replace

from gateway.core.model import SEALED, Headers, StoredResponse

PLAIN = 0
ZLIB = 1
ENCODINGS = frozenset({PLAIN, ZLIB, SEALED})
"""The values of `StoredResponse.encoding` that this version can read."""

PACK_BYTES = 4 * 1024
"""Shorter bodies stay as they are: they share a row with their headers, and setting up a compressor takes longer than
their bytes do.
"""

LEVEL = 3
"""The last of zlib's fast levels. JSON of 64 KiB, per KiB: level 1 takes 3.5 µs and leaves 19 %, level 3 takes 3.9 µs
and leaves 18 %, level 6 takes 9.6 µs and leaves 16 %. Reading it back takes 1 µs.
"""

SAMPLE_BYTES = 16 * 1024
"""What is tried first of a body that is several times as long: bytes that do not compress cost five times the time of
those that do.
"""

INLINE = 64 * 1024
"""Bodies up to this size may be packed and unpacked in place; longer ones would hold an event loop up."""

_NO_CODING = frozenset({b"", b"identity"})
_COMPRESSED_FAMILIES = frozenset({b"image", b"audio", b"video"})
_COMPRESSED_TYPES = frozenset(
    b"application/" + name
    for name in (
        b"epub+zip",
        b"gzip",
        b"java-archive",
        b"pdf",
        b"vnd.rar",
        b"x-7z-compressed",
        b"x-bzip2",
        b"x-gzip",
        b"x-xz",
        b"zip",
        b"zstd",
    )
) | {b"font/woff", b"font/woff2"}
_TEXT_SUFFIXES = (b"+xml", b"+json")


def packed(plain: StoredResponse) -> StoredResponse:
    """A response that came plain, as its record keeps it."""
    if plain.body is None:
        return plain
    encoding, body = pack(plain.body, plain.headers)
    return plain if encoding == PLAIN else replace(plain, body=body, encoding=encoding)


def unpacked(kept: StoredResponse) -> StoredResponse:
    """A kept response in the form that a replay needs; as it is if unpacking it would take long. Raises ValueError as `unpack` does."""
    if kept.body is None or kept.encoding == PLAIN or (kept.body_length > INLINE and kept.encoding != SEALED):
        return kept
    return replace(kept, body=unpack(kept.encoding, kept.body, kept.body_length), encoding=PLAIN)


def pack(body: bytes, headers: Headers) -> tuple[int, bytes]:
    """The encoding of a response's body, and the body in it. `headers` are the response's; they say whether compressing
    is worth trying.

    Pure; never raises. Takes 4 to 25 µs per KiB of a body that compresses, and at most about 1 ms for one that does
    not.
    """
    if len(body) < PACK_BYTES or _is_compressed(headers):
        return PLAIN, body
    if len(body) > 4 * SAMPLE_BYTES and _smaller(body[:SAMPLE_BYTES]) is None:
        return PLAIN, body
    packed = _smaller(body)
    return (PLAIN, body) if packed is None else (ZLIB, packed)


def unpack(encoding: int, body: bytes, length: int) -> bytes:
    """The body of `length` bytes that was packed. Never inflates more than one byte beyond `length`, whatever `body`
    says.

    Raises ValueError for an unknown encoding, and for whatever is not exactly the packed form of so many bytes: cut,
    prolonged or damaged.
    """
    if encoding == SEALED:
        raise ValueError("no configured key opens this answer")
    if encoding not in ENCODINGS:
        raise ValueError(f"unknown body encoding {encoding}")
    plain = _inflate(body, length) if encoding == ZLIB else body
    if len(plain) != length:
        raise ValueError(f"a stored body has not the {length} bytes that its record says")
    return plain


def _smaller(body: bytes) -> bytes | None:
    packed = zlib.compress(body, LEVEL)
    return packed if len(packed) * 10 <= len(body) * 9 else None


def _inflate(packed: bytes, length: int) -> bytes:
    if length < 0:
        raise ValueError("a body of a negative length")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(packed, length + 1)  # the byte more shows a body that is longer; and 0 would mean "no limit"
    except (zlib.error, OverflowError) as error:
        raise ValueError(str(error)) from None
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a stored body is cut, or goes on after its end")
    return plain


def _is_compressed(headers: Headers) -> bool:
    """Whether any field line says that the body is compressed already."""
    for name, value in headers:
        lower = name.lower()
        if lower == b"content-encoding" and any(coding.strip().lower() not in _NO_CODING for coding in value.split(b",")):
            return True
        if lower == b"content-type" and _is_compressed_type(value.partition(b";")[0].strip().lower()):
            return True
    return False


def _is_compressed_type(media_type: bytes) -> bool:
    """Structured suffixes (RFC 6839) tell text in a family that has little of it: image/svg+xml."""
    if media_type.endswith(_TEXT_SUFFIXES):
        return False
    return media_type in _COMPRESSED_TYPES or media_type.partition(b"/")[0] in _COMPRESSED_FAMILIES
