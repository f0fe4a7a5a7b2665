"""The value format of a Redis entry."""

from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import Fingerprint, StoredResponse
from gateway.core.packing import ENCODINGS, PLAIN, ZLIB
from gateway.store.completed import CompletedEntry
from gateway.store.redis import codec
from gateway.store.redis.codec import LeaseEntry, Seal, encode_lease, entry_key, lease_prefix

SEAL = Seal(b"secret")
decode = partial(codec.decode, seal=SEAL)
encode_completed = partial(codec.encode_completed, seal=SEAL)

LOOKUP = bytes(range(32))
OWNER = b"o" * 16
LIMIT = 1 << 20

lookups = st.binary(min_size=32, max_size=32)
owners = st.binary(min_size=16, max_size=16)
fingerprints = st.builds(Fingerprint, st.integers(0, 65535), st.binary(max_size=64), st.binary(max_size=64))
lines = st.binary(max_size=300).map(lambda text: text.replace(b"\n", b""))
headers = st.lists(st.tuples(lines, lines), max_size=12).map(tuple)


@st.composite
def responses(draw: st.DrawFn) -> StoredResponse:
    body = draw(st.none() | st.binary(max_size=2000))
    encoding = PLAIN if body is None else draw(st.sampled_from(sorted(ENCODINGS)))
    length = len(body) if body is not None and encoding == PLAIN else draw(st.integers(0, 2**40))
    digest = draw(st.binary(min_size=32, max_size=32))
    return StoredResponse(draw(st.integers(100, 599)), draw(st.binary(max_size=60)), draw(headers), body, length, digest, encoding)


completed = st.builds(
    CompletedEntry,
    fingerprints,
    owners,
    st.integers(-(2**63), 2**63 - 1),
    st.uuids(),
    st.integers(0, 2**63),
    st.integers(0, 2**31),
    st.text(st.characters(codec="utf-8"), max_size=100),
    responses(),
)


RESPONSE = StoredResponse(201, b"Created", ((b"Set", b"1"), (b"set", b"2"), (b"Empty", b"")), b"body", 4, b"d" * 32)
ENTRY = CompletedEntry(Fingerprint(1, b"p" * 32, b"f" * 32), OWNER, 1_700_000_000_000_000, UUID(int=7), 3, 1, "req-1", RESPONSE)


PACKED = replace(ENTRY, response=replace(RESPONSE, body=b"packed", body_length=5000, encoding=ZLIB))


def encoded(entry: CompletedEntry = ENTRY) -> bytes:
    value = encode_completed(LOOKUP, entry, LIMIT)
    assert value is not None
    return value


@given(lookups, fingerprints, owners)
def test_a_lease_survives(lookup: bytes, fingerprint: Fingerprint, owner: bytes) -> None:
    """A lease is read as it was written, and begins as its owner's lease does."""
    value = encode_lease(lookup, fingerprint, owner)
    assert decode(lookup, value) == LeaseEntry(fingerprint, owner)
    assert value.startswith(lease_prefix(owner))
    assert len(lease_prefix(owner)) == 18


@given(lookups, completed)
def test_a_completed_record_survives(lookup: bytes, entry: CompletedEntry) -> None:
    """A completed record is read as it was written, byte for byte, header order and repeats included; it never begins as a lease."""
    value = encode_completed(lookup, entry, LIMIT)
    assert value is not None
    assert decode(lookup, value) == entry
    assert not value.startswith(lease_prefix(entry.owner))


@given(lookups, lookups, completed)
def test_another_records_value_is_not_read(lookup: bytes, other: bytes, entry: CompletedEntry) -> None:
    """A value that names another record says nothing, so that a reply out of step is nobody's answer."""
    value = encode_completed(other, entry, LIMIT)
    assert value is not None
    assert (decode(lookup, value) is None) == (lookup != other)


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(value: bytes) -> None:
    """Bytes that are no entry mean "ask the authority"; reading never raises."""
    assert decode(LOOKUP, value) is None


@given(completed, st.data())
def test_altered_values_are_not_read(entry: CompletedEntry, data: st.DataObject) -> None:
    """A value of which any byte was changed, in the body, in a header, in the status or anywhere else, says nothing."""
    value = bytearray(encoded(entry))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    assert decode(LOOKUP, bytes(value)) is None


@given(completed)
def test_a_seal_of_another_secret_is_not_read(entry: CompletedEntry) -> None:
    """Who can write to Redis and does not know the digest secret makes no entry that is an answer."""
    for other in (Seal(b""), Seal(b"other")):
        assert codec.decode(LOOKUP, encoded(entry), other) is None
        forged = codec.encode_completed(LOOKUP, entry, LIMIT, other)
        assert forged is not None
        assert decode(LOOKUP, forged) is None


@given(completed, st.data())
def test_cut_and_prolonged_values_are_not_read(entry: CompletedEntry, data: st.DataObject) -> None:
    """A value that is not exactly as long as it says is not read."""
    value = encoded(entry)
    assert decode(LOOKUP, value[: data.draw(st.integers(0, len(value) - 1))]) is None
    assert decode(LOOKUP, value + data.draw(st.binary(min_size=1, max_size=9))) is None
    lease = encode_lease(LOOKUP, entry.fingerprint, entry.owner)
    assert decode(LOOKUP, lease[: data.draw(st.integers(0, len(lease) - 1))]) is None
    assert decode(LOOKUP, lease + b"x") is None


@pytest.mark.parametrize("at", [0, 1])
def test_unknown_format_and_state_are_not_read(at: int) -> None:
    """A format or a state of a later release says nothing to this one."""
    value = bytearray(encoded())
    value[at] = 99
    assert decode(LOOKUP, bytes(value)) is None


def resealed(value: bytes) -> bytes:
    """As if it had been written so."""
    return value[:-16] + SEAL.of(value[:-16])


def test_the_formats_of_the_releases_before_are_told_apart() -> None:
    """Leases stay as they were; completed records have a format that those releases do not read."""
    assert (encoded()[0], encoded(PACKED)[0]) == (3, 3)
    assert encode_lease(LOOKUP, ENTRY.fingerprint, OWNER)[0] == 1


@pytest.mark.parametrize("form", [1, 2])
def test_an_unsealed_completed_record_is_not_read(form: int) -> None:
    """What the release before has written: nobody knows whether it was altered."""
    head = bytes((form, 2)) + OWNER + LOOKUP + ENTRY.expires_at_us.to_bytes(8, "big") + b"\x00\x01" + b"\x20\x20" + b"p" * 32 + b"f" * 32
    record = UUID(int=7).bytes + (3).to_bytes(8, "big") + (1).to_bytes(4, "big") + (5).to_bytes(2, "big")
    answer = (201).to_bytes(2, "big") + (7).to_bytes(2, "big") + (3).to_bytes(2, "big") + (18).to_bytes(4, "big")
    packed = (ZLIB).to_bytes(1, "big") + (4).to_bytes(4, "big") if form == 2 else b""
    body = b"\x01" + (4).to_bytes(8, "big") + b"\x20" + packed
    value = head + record + answer + body + b"req-1" + b"Created" + b"d" * 32 + b"Set\n1\nset\n2\nEmpty\n" + b"body"
    assert decode(LOOKUP, value) is None
    assert decode(LOOKUP, resealed(value + bytes(16))) is None


@pytest.mark.parametrize("form", [1, 3])
def test_neither_format_is_read_as_the_other(form: int) -> None:
    """A completed record is never taken for a lease, nor the other way round."""
    for value in (encoded(), encoded(PACKED), encode_lease(LOOKUP, ENTRY.fingerprint, OWNER)):
        if value[0] != form:
            assert decode(LOOKUP, bytes((form,)) + value[1:]) is None
            assert decode(LOOKUP, resealed(bytes((form,)) + value[1:])) is None


@pytest.mark.parametrize("encoding", [3, 255])
def test_an_unknown_encoding_is_not_read(encoding: int) -> None:
    """How a later release packs bodies says nothing to this one."""
    value = encoded(PACKED)
    at = value.index((ZLIB).to_bytes(1, "big") + (6).to_bytes(4, "big") + b"req-1")
    assert decode(LOOKUP, value) == PACKED
    assert decode(LOOKUP, resealed(value[:at] + bytes((encoding,)) + value[at + 1 :])) is None


def test_a_packed_body_counts_as_it_is_stored() -> None:
    """The limit is one of bytes in Redis, not of the bytes that they stand for."""
    long = replace(PACKED, response=replace(PACKED.response, body_length=LIMIT * 2))
    assert decode(LOOKUP, encoded(long)) == long
    assert encode_completed(LOOKUP, PACKED, len(encoded(PACKED)) - 1) is None


def test_a_body_that_was_not_kept_stays_apart_from_an_empty_one() -> None:
    """No body and an empty body are two things, and the full body's length and digest survive without it."""
    without = replace(ENTRY, response=replace(RESPONSE, body=None, body_length=9_000_000))
    empty = replace(ENTRY, response=replace(RESPONSE, body=b"", body_length=0))
    assert decode(LOOKUP, encoded(without)) == without
    assert decode(LOOKUP, encoded(empty)) == empty


def test_values_over_the_limit_are_not_made() -> None:
    """A completed record longer than the limit has no value; one exactly as long has."""
    length = len(encoded())
    assert encode_completed(LOOKUP, ENTRY, length) is not None
    assert encode_completed(LOOKUP, ENTRY, length - 1) is None


@pytest.mark.parametrize(
    "entry",
    [
        replace(ENTRY, version=-1),
        replace(ENTRY, request_id="x" * 70_000),
        replace(ENTRY, request_id="\ud800"),
        replace(ENTRY, fingerprint=Fingerprint(1, b"p" * 256, b"f")),
        replace(ENTRY, fingerprint=Fingerprint(70_000, b"p", b"f")),
        replace(ENTRY, owner=b"short"),
        replace(ENTRY, expires_at_us=2**63),
        replace(ENTRY, response=replace(RESPONSE, reason=b"r" * 70_000)),
        replace(ENTRY, response=replace(RESPONSE, headers=((b"Split", b"a\nb"),))),
        replace(ENTRY, response=replace(RESPONSE, headers=((b"H", b""),) * 70_000)),
    ],
)
def test_what_the_format_cannot_hold_has_no_value(entry: CompletedEntry) -> None:
    """A record that does not fit into the format is left to the authority."""
    assert encode_completed(LOOKUP, entry, LIMIT) is None


def test_impossible_leases_are_refused() -> None:
    """An owner token or a lookup digest of another length is a mistake of ours."""
    with pytest.raises(ValueError, match="16 bytes"):
        encode_lease(LOOKUP, ENTRY.fingerprint, b"short")
    with pytest.raises(ValueError, match="16 bytes"):
        encode_lease(b"short", ENTRY.fingerprint, OWNER)
    with pytest.raises(ValueError, match="16 bytes"):
        lease_prefix(b"short")


@given(lookups, lookups)
def test_each_record_has_its_own_key(one: bytes, other: bytes) -> None:
    """Keys are printable, share the `idem:` prefix of the ACL, and differ when the records differ."""
    assert (entry_key(one) == entry_key(other)) == (one == other)
    assert entry_key(one).startswith(b"idem:{")
    assert entry_key(one).isascii()
