"""Stored bodies: what is compressed and what is not, and that only the very body ever comes out again."""

import random
import zlib
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import SEALED, Headers
from gateway.core.packing import ENCODINGS, LEVEL, PACK_BYTES, PLAIN, SAMPLE_BYTES, ZLIB, pack, unpack

JSON: Headers = ((b"Content-Type", b"application/json"),)
TEXT = b'{"id": "ch_1", "amount": 100}' * 400
NOISE = random.Random(1).randbytes(8 * SAMPLE_BYTES)

texts = st.binary(min_size=1, max_size=40).flatmap(lambda unit: st.integers(0, 400).map(lambda times: unit * times))
bodies = st.binary(max_size=6000) | texts
compressible = st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 99)).map(
    lambda drawn: drawn[0] * (PACK_BYTES // len(drawn[0]) + drawn[1])
)
headers = st.lists(
    st.tuples(
        st.sampled_from([b"Content-Type", b"content-encoding", b"X-Other"]),
        st.sampled_from([b"application/json", b"image/png", b"gzip", b"identity", b"", b"\xff;,"]),
    ),
    max_size=3,
).map(tuple)


def refused() -> AbstractContextManager[object]:
    return pytest.raises(ValueError)  # noqa: PT011 - zlib's words and ours, one contract: a ValueError


@given(bodies, headers)
def test_a_body_comes_out_as_it_went_in(body: bytes, fields: Headers) -> None:
    """Whatever the body and its headers, packing and unpacking give the same bytes, in a known encoding, and never more of them."""
    encoding, packed = pack(body, fields)
    assert encoding in ENCODINGS
    assert unpack(encoding, packed, len(body)) == body
    assert packed == body if encoding == PLAIN else len(packed) * 10 <= len(body) * 9


@given(compressible, st.data())
def test_what_is_not_the_packed_body_is_refused(body: bytes, data: st.DataObject) -> None:
    """A packed body that is cut, prolonged, or said to have another length is an error, never another body."""
    encoding, packed = pack(body, JSON)
    assert encoding == ZLIB
    with refused():
        unpack(ZLIB, packed[: data.draw(st.integers(0, len(packed) - 1))], len(body))
    with refused():
        unpack(ZLIB, packed + data.draw(st.binary(min_size=1, max_size=9)), len(body))
    with refused():
        unpack(ZLIB, packed, data.draw(st.integers(-5, len(body) - 1) | st.integers(len(body) + 1, 2**64)))


@given(st.binary(max_size=300), st.integers(-3, 2**64))
def test_any_bytes_unpack_to_that_length_or_are_refused(packed: bytes, length: int) -> None:
    """Whatever a store gives, what comes out has the length asked for, or ValueError says that it has not."""
    for encoding in ENCODINGS:
        try:
            plain = unpack(encoding, packed, length)
        except ValueError:
            continue
        assert len(plain) == length


@given(st.binary(max_size=300), st.data())
def test_a_damaged_body_is_noticed(body: bytes, data: st.DataObject) -> None:
    """One byte changed in a compressed body is found out by its checksum, or changes nothing of what comes out."""
    packed = bytearray(zlib.compress(body))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        plain = unpack(ZLIB, bytes(packed), len(body))
    except ValueError:
        return
    assert plain == body


@pytest.mark.parametrize("length", [0, 1, 5_000, 10_000_000])
def test_a_bomb_is_not_inflated(length: int) -> None:
    """A few bytes that would inflate to many more than were announced are refused after the announced ones."""
    bomb = zlib.compress(bytes(50_000_000), 9)
    assert len(bomb) < 50_000
    with refused():
        unpack(ZLIB, bomb, length)


def test_what_is_sealed_is_not_unpacked() -> None:
    """What no configured key opened is no body."""
    with pytest.raises(ValueError, match="no configured key opens"):
        unpack(SEALED, b"body", 4)


@pytest.mark.parametrize("encoding", [-1, 3, 99])
def test_an_unknown_encoding_is_refused(encoding: int) -> None:
    """An encoding of a later release is never taken for one of ours."""
    with pytest.raises(ValueError, match="unknown body encoding"):
        unpack(encoding, b"body", 4)


def test_a_plain_body_has_its_length() -> None:
    """A plain body of another length than its record says is not what was stored."""
    assert unpack(PLAIN, b"body", 4) == b"body"
    assert unpack(PLAIN, b"", 0) == b""
    for length in (3, 5, -1):
        with refused():
            unpack(PLAIN, b"body", length)


# ---- when it pays


def test_short_bodies_stay_as_they_are() -> None:
    """From 4 KiB on a body may be compressed, below never."""
    body = b"a" * PACK_BYTES
    assert pack(body, JSON) == (ZLIB, zlib.compress(body, LEVEL))
    assert pack(body[1:], JSON) == (PLAIN, body[1:])


def test_a_body_that_saves_less_than_a_tenth_stays_as_it_is() -> None:
    """The saving must be worth the reading back."""
    for length in (PACK_BYTES, 8 * SAMPLE_BYTES):
        assert pack(NOISE[:length], JSON) == (PLAIN, NOISE[:length])
    mostly_noise = NOISE[:9000] + bytes(700)
    assert len(zlib.compress(mostly_noise, LEVEL)) < len(mostly_noise)
    assert pack(mostly_noise, JSON) == (PLAIN, mostly_noise)


def test_a_long_body_is_judged_by_its_beginning() -> None:
    """Where the first bytes do not compress the rest is not tried; where they do, the whole decides."""
    noise_first = NOISE[:SAMPLE_BYTES] + bytes(8 * SAMPLE_BYTES)
    assert pack(noise_first, JSON) == (PLAIN, noise_first)
    noise_later = bytes(SAMPLE_BYTES) + NOISE * 2
    assert pack(noise_later, JSON) == (PLAIN, noise_later)
    assert pack(bytes(SAMPLE_BYTES) + NOISE, JSON)[0] == ZLIB


@pytest.mark.parametrize(
    "fields",
    [
        ((b"Content-Encoding", b"gzip"),),
        ((b"CONTENT-ENCODING", b" BR "), *JSON),
        ((b"Content-Encoding", b"identity, gzip"),),
        ((b"Content-Encoding", b"identity"), (b"content-encoding", b"zstd")),
        ((b"Content-Encoding", b"made-up"),),
        ((b"Content-Type", b"image/png"),),
        ((b"Content-Type", b" Image/JPEG ; q=1"),),
        ((b"content-type", b"video/mp4"),),
        ((b"Content-Type", b"audio/ogg"),),
        ((b"Content-Type", b"application/zip"),),
        ((b"Content-Type", b"APPLICATION/PDF"),),
        ((b"Content-Type", b"application/gzip"),),
        ((b"Content-Type", b"font/woff2"),),
        (*JSON, (b"Content-Type", b"image/png")),
    ],
)
def test_what_is_compressed_already_stays_as_it_is(fields: Headers) -> None:
    """A body under a content coding, or of a type that is compressed by nature, is not tried."""
    assert pack(TEXT, fields) == (PLAIN, TEXT)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        JSON,
        ((b"Content-Encoding", b"identity"),),
        ((b"Content-Encoding", b""),),
        ((b"Content-Encoding", b"Identity, identity"), *JSON),
        ((b"Content-Type", b"image/svg+xml; charset=utf-8"),),
        ((b"Content-Type", b"application/vnd.image+json"),),
        ((b"Content-Type", b"text/plain; note=image/png"),),
        ((b"Content-Type", b"imagery/x"),),
        ((b"Content-Type", b"\xff"),),
        ((b"X-Content-Encoding", b"gzip"),),
    ],
)
def test_everything_else_is_tried(fields: Headers) -> None:
    """Text of any name is compressed, also without a name, and the family `image` has text in it."""
    encoding, packed = pack(TEXT, fields)
    assert encoding == ZLIB
    assert len(packed) < len(TEXT) // 10
