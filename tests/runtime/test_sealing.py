"""Sealed requests: opened by any configured key, under their own record, as they were; and refused otherwise."""

import hashlib
import hmac
import sys

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports.reconciliation import Unsealable
from gateway.runtime.sealing import AesSealer, MissingSealing, PackedRequest, pack_request, unpack_request

SEALER = AesSealer((b"a secret", b"a former secret"))
REQUESTS = st.builds(
    PackedRequest,
    st.binary(max_size=8),
    st.binary(max_size=64),
    st.lists(st.tuples(st.binary(max_size=16), st.binary(max_size=32)), max_size=5).map(tuple),
    st.binary(max_size=256),
)


@given(st.binary(max_size=300), st.binary(max_size=40))
def test_what_is_sealed_opens(plain: bytes, bound_to: bytes) -> None:
    """Under what it was bound to, and never twice as the same bytes."""
    sealed = SEALER.seal(plain, bound_to)
    assert SEALER.open(sealed, bound_to) == plain
    assert SEALER.seal(plain, bound_to) != sealed
    assert len(plain) < 4 or plain not in sealed


@given(st.binary(max_size=60), st.data())
def test_any_change_is_refused(plain: bytes, data: st.DataObject) -> None:
    """Of a single bit, of the length, of the record: none of it opens."""
    sealed = SEALER.seal(plain, b"record")
    at = data.draw(st.integers(0, len(sealed) - 1))
    flipped = sealed[:at] + bytes((sealed[at] ^ 1 << data.draw(st.integers(0, 7)),)) + sealed[at + 1 :]
    cut = sealed[: data.draw(st.integers(0, len(sealed) - 1))]
    for changed in (flipped, cut, sealed + b"\0"):
        with pytest.raises(Unsealable):
            SEALER.open(changed, b"record")
    for other in (b"", b"another", b"record\0"):
        with pytest.raises(Unsealable):
            SEALER.open(sealed, other)


def test_the_first_key_seals_and_all_open() -> None:
    """A secret is changed by putting the new one first; one that is gone opens nothing any more."""
    before = AesSealer((b"a former secret",))
    old = before.seal(b"request", b"record")
    assert SEALER.open(old, b"record") == b"request"
    with pytest.raises(Unsealable, match="not configured"):
        before.open(SEALER.seal(b"request", b"record"), b"record")
    with pytest.raises(Unsealable, match="not configured"):
        AesSealer((b"a secret",)).open(old, b"record")


def test_the_format_is_the_documented_one() -> None:
    """Another implementation of HKDF and AES-GCM reads it: key id, salt and nonce in the head, the head authenticated."""
    sealed = SEALER.seal(b"request", b"record")
    domain = b"idempotency-gateway/seal/1"
    pseudorandom = hmac.new(domain, b"a secret", hashlib.sha256).digest()
    key_id = HKDFExpand(SHA256(), 8, domain + b"/id").derive(pseudorandom)
    assert sealed[:9] == b"\x01" + key_id
    key = HKDFExpand(SHA256(), 32, domain + b"/message\0" + sealed[9:25]).derive(pseudorandom)
    assert AESGCM(key).decrypt(sealed[25:37], sealed[37:], sealed[:37] + b"record") == b"request"


@pytest.mark.parametrize("keys", [(), (b"",), (b"a secret", b"")])
def test_no_key_is_no_sealer(keys: tuple[bytes, ...]) -> None:
    """An empty secret would encrypt for everybody."""
    with pytest.raises(ValueError, match="secret"):
        AesSealer(keys)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever configures a key without the extra learns what to install."""
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingSealing, match=r"idempotency-gateway\[sealing\]"):
        AesSealer((b"a secret",))


@given(REQUESTS)
def test_a_packed_request_is_unpacked_as_it_was(request: PackedRequest) -> None:
    """Whatever bytes it is made of."""
    assert unpack_request(pack_request(*request)) == request


@given(REQUESTS, st.data())
def test_what_is_no_packed_request_is_refused(request: PackedRequest, data: st.DataObject) -> None:
    """Cut anywhere, prolonged, or of another version."""
    packed = pack_request(*request)
    for broken in (packed[: data.draw(st.integers(0, len(packed) - 1))], packed + b"\0", b"\x02" + packed[1:]):
        with pytest.raises(ValueError, match="packed request"):
            unpack_request(broken)


@given(st.binary(max_size=100))
def test_unpacking_never_raises_anything_else(packed: bytes) -> None:
    """Nor takes memory for numbers that a few bytes claim."""
    try:
        again = unpack_request(packed)
    except ValueError:
        return
    assert pack_request(*again) == packed
