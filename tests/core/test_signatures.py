"""Signatures of webhooks. What should be right is computed here from the schemes' own texts, with the standard library."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.model import Headers
from gateway.core.reconcile.policy import PlainSignature, Signature, StandardSignature, StripeSignature
from gateway.core.reconcile.signatures import Refusal, Verified, verify

NOW = 1_700_000_000.0
OLD, NEW = b"whsec_old", b"whsec_new"
BODY = b'{"id":"evt_1","type":"charge.succeeded"}'
BAD, LATE = Refusal("bad_signature"), Refusal("out_of_tolerance")

STRIPE = StripeSignature((NEW, OLD), 300.0)
STANDARD = StandardSignature((NEW, OLD), 300.0)
GITHUB = PlainSignature("X-Hub-Signature-256", (NEW, OLD), "hex", "sha256=")
SHOPIFY = PlainSignature("X-Shopify-Hmac-Sha256", (NEW, OLD), "base64")


def mac(secret: bytes, content: bytes) -> bytes:
    return hmac.new(secret, content, hashlib.sha256).digest()


def v1(secret: bytes = NEW, at: int = int(NOW), body: bytes = BODY) -> bytes:
    return mac(secret, str(at).encode() + b"." + body).hex().encode()


def stripe(value: bytes) -> Headers:
    return ((b"Content-Type", b"application/json"), (b"Stripe-Signature", value))


def standard(signature: bytes, event_id: bytes = b"msg_1", at: bytes = b"1700000000") -> Headers:
    return ((b"Webhook-Id", event_id), (b"Webhook-Timestamp", at), (b"Webhook-Signature", signature))


def signed(secret: bytes = NEW, event_id: bytes = b"msg_1", at: bytes = b"1700000000", body: bytes = BODY) -> bytes:
    return b"v1," + base64.b64encode(mac(secret, event_id + b"." + at + b"." + body))


@pytest.mark.parametrize(
    "value",
    [
        b"t=1700000000,v1=" + v1(),
        b"t=1700000000,v1=" + v1(OLD),
        b"t=1700000000, v1=" + v1() + b", v0=abc",
        b"v1=" + v1() + b",t=1700000000",
        b"t=1700000000,v1=" + b"0" * 64 + b",v1=" + v1(),
        b"t=1700000000,v1=" + v1(OLD) + b",v1=" + b"zz",
        b"t=1700000000,v1=" + v1().upper(),
        b" t=1700000000,v1=" + v1() + b" ",
    ],
)
def test_stripe(value: bytes) -> None:
    """Any v1 by any of our secrets will do, in any order, among other schemes."""
    assert verify(STRIPE, stripe(value), BODY, NOW) == Verified()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"v1=" + v1(),
        b"t=1700000000",
        b"t=1700000000,v0=" + v1(),
        b"t=1700000000,v1=" + v1(b"guess"),
        b"t=1700000000,v1=" + v1(b""),
        b"t=1700000000,v1=",
        b"t=1700000001,v1=" + v1(),
        b"t=1700000000,t=1700000000,v1=" + v1(),
        b"t=1700000000,t=1700000001,v1=" + v1(),
        b"t= 1700000000,v1=" + v1(),
        b"t=+1700000000,v1=" + v1(),
        b"t=1e9,v1=" + mac(NEW, b"1e9." + BODY).hex().encode(),
        b"t=" + b"9" * 13 + b",v1=" + v1(NEW, 10**13 - 1),
        b"t=1700000000,v1=" + v1()[:-1],
        b"t=1700000000,v1=" + v1() + b"0",
        b"t=1700000000;v1=" + v1(),
        b"t=1700000000,v1=\xff" + v1()[1:],
        b"t=1700000000," + b"v1=00," * 40 + b"v1=" + v1(),
    ],
)
def test_bad_stripe(value: bytes) -> None:
    """Without one right v1 over one time, nothing is right."""
    assert verify(STRIPE, stripe(value), BODY, NOW) == BAD


@pytest.mark.parametrize(
    ("off", "want"), [(0, Verified()), (300, Verified()), (301, LATE), (-300, Verified()), (-301, LATE), (-(10**9), LATE)]
)
def test_stripe_tolerance(off: int, want: Verified | Refusal) -> None:
    """The time may be off by the tolerance, in either direction."""
    value = b"t=%d,v1=" % (int(NOW) + off) + v1(NEW, int(NOW) + off)
    assert verify(STRIPE, stripe(value), BODY, NOW) == want
    assert verify(STRIPE, stripe(value), BODY + b" ", NOW) == BAD


@pytest.mark.parametrize("off", [0.0, 86400.0])
def test_the_signature_is_judged_first(off: float) -> None:
    """Who cannot sign learns nothing of our clock."""
    assert verify(STRIPE, stripe(b"t=1700000000,v1=" + v1(b"guess")), BODY, NOW + off) == BAD
    assert verify(STANDARD, standard(signed(b"guess")), BODY, NOW + off) == BAD


def test_standard_webhooks_vector() -> None:
    """The example of the scheme's reference libraries."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    event_id, at = b"msg_p5jXN8AQM9LWM0D4loKWxJek", b"1614265330"
    headers = standard(b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", event_id, at)
    body = b'{"test": 2432232314}'
    assert verify(StandardSignature((secret,)), headers, body, 1614265330.0) == Verified(event_id.decode())
    assert verify(StandardSignature((secret,)), headers, body + b" ", 1614265330.0) == BAD


@pytest.mark.parametrize(
    "value",
    [signed(), signed(OLD), b"v1,AAAA " + signed(), signed() + b" v1a,AAAA", b"v2," + b"x" * 44 + b" " + signed(OLD) + b" v1,"],
)
def test_standard(value: bytes) -> None:
    """Any v1 of the list by any of our secrets will do; the id that was signed along is told."""
    assert verify(STANDARD, standard(value), BODY, NOW) == Verified("msg_1")


@pytest.mark.parametrize(
    "headers",
    [
        standard(b""),
        standard(signed(b"guess")),
        standard(signed().removeprefix(b"v1,")),
        standard(b"v1a," + signed().removeprefix(b"v1,")),
        standard(signed(), b"msg_2"),
        standard(signed(), b"msg_1", b"1700000001"),
        standard(signed(NEW, b""), b""),
        standard(signed(NEW, b"a.b"), b"a.b"),
        standard(signed(NEW, b"msg_\xe9"), b"msg_\xe9"),
        standard(signed(NEW, b"msg_1", b"1.7e9"), b"msg_1", b"1.7e9"),
        standard(signed(NEW, b"msg_1", b""), b"msg_1", b""),
        standard(signed())[1:],
        standard(signed())[:1] + standard(signed())[2:],
        standard(signed())[:2],
        (*standard(signed()), (b"webhook-id", b"msg_2")),
        (*standard(signed()), (b"webhook-timestamp", b"1700000000")),
        (*standard(signed()), (b"webhook-signature", signed())),
        standard(b"v1,AAAA " * 40 + signed()),
    ],
)
def test_bad_standard(headers: Headers) -> None:
    """Each of the three fields is there once, and the signature is over all of them and the body."""
    assert verify(STANDARD, headers, BODY, NOW) == BAD


@pytest.mark.parametrize(("off", "want"), [(300, Verified("msg_1")), (301, LATE), (-300, Verified("msg_1")), (-301, LATE)])
def test_standard_tolerance(off: int, want: Verified | Refusal) -> None:
    """The time may be off by the tolerance, in either direction."""
    at = b"%d" % (int(NOW) + off)
    assert verify(STANDARD, standard(signed(NEW, b"msg_1", at), b"msg_1", at), BODY, NOW) == want


def test_what_was_signed_splits_in_one_way() -> None:
    """A body that begins like a time cannot lend its beginning to the id: the signature for one event is none for another."""
    tricky = b"1700000000.{}"
    value = signed(NEW, b"msg_1", b"1600000000", tricky)
    assert verify(STANDARD, standard(value, b"msg_1.1600000000", b"1700000000"), b"{}", NOW) == BAD


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_plain(secret: bytes) -> None:
    """HMAC of the body alone, as hex with a prefix or as base64."""
    digest = mac(secret, BODY)
    assert verify(GITHUB, ((b"x-hub-signature-256", b"sha256=" + digest.hex().encode()),), BODY, NOW) == Verified()
    assert verify(GITHUB, ((b"X-Hub-Signature-256", b"sha256=" + digest.hex().upper().encode()),), BODY, NOW) == Verified()
    assert verify(SHOPIFY, ((b"X-Shopify-Hmac-SHA256", b" " + base64.b64encode(digest)),), BODY, NOW) == Verified()


@pytest.mark.parametrize(
    ("signature", "headers"),
    [
        (GITHUB, ()),
        (GITHUB, ((b"X-Hub-Signature-256", b""),)),
        (GITHUB, ((b"X-Hub-Signature-256", b"sha256="),)),
        (GITHUB, ((b"X-Hub-Signature-256", mac(NEW, BODY).hex().encode()),)),
        (GITHUB, ((b"X-Hub-Signature-256", b"sha1=" + mac(NEW, BODY).hex().encode()),)),
        (GITHUB, ((b"X-Hub-Signature-256", b"sha256=" + base64.b64encode(mac(NEW, BODY))),)),
        (GITHUB, ((b"X-Hub-Signature-256", b"sha256=" + mac(b"", BODY).hex().encode()),)),
        (GITHUB, ((b"X-Hub-Signature-256", b"sha256=" + mac(NEW, BODY + b" ").hex().encode()),)),
        (GITHUB, ((b"X-Hub-Signature", b"sha256=" + mac(NEW, BODY).hex().encode()),)),
        (GITHUB, ((b"X-Hub-Signature-256", b"sha256=" + mac(NEW, BODY).hex().encode()),) * 2),
        (SHOPIFY, ((b"X-Shopify-Hmac-Sha256", base64.b64encode(mac(NEW, BODY)).rstrip(b"=")),)),
        (SHOPIFY, ((b"X-Shopify-Hmac-Sha256", base64.b64encode(mac(NEW, BODY)).swapcase()),)),
        (SHOPIFY, ((b"X-Shopify-Hmac-Sha256", mac(NEW, BODY).hex().encode()),)),
    ],
)
def test_bad_plain(signature: Signature, headers: Headers) -> None:
    """One field, one prefix, one encoding."""
    assert verify(signature, headers, BODY, NOW) == BAD


def test_one_right_signature_of_a_list_is_enough() -> None:
    """PagerDuty and others sign with each secret that is valid while one is rotated."""
    digest = mac(OLD, BODY).hex().encode()
    unknown, known = b"sha256=" + mac(b"of somebody else", BODY).hex().encode(), b"sha256=" + digest
    for value in (unknown + b"," + known, known + b", " + unknown, b"sha1=00," + known):
        assert verify(GITHUB, ((b"X-Hub-Signature-256", value),), BODY, NOW) == Verified()
    for value in (unknown + b"," + unknown, b",", digest + b"," + digest, b",".join([unknown] * 40 + [known])):
        assert verify(GITHUB, ((b"X-Hub-Signature-256", value),), BODY, NOW) == BAD
    listed = b",".join(base64.b64encode(mac(secret, BODY)) for secret in (b"of somebody else", NEW))
    assert verify(SHOPIFY, ((b"X-Shopify-Hmac-Sha256", listed),), BODY, NOW) == Verified()


@pytest.mark.parametrize("secrets", [(), (b"",)])
def test_without_a_secret_nothing_is_right(secrets: tuple[bytes, ...]) -> None:
    """An empty secret is one that everybody knows."""
    assert verify(StripeSignature(secrets), stripe(b"t=1700000000,v1=" + v1(b"")), BODY, NOW) == BAD
    assert verify(StandardSignature(secrets), standard(signed(b"")), BODY, NOW) == BAD
    headers = ((b"X-Sig", mac(b"", BODY).hex().encode()),)
    assert verify(PlainSignature("X-Sig", secrets), headers, BODY, NOW) == BAD


_secrets = st.binary(min_size=1, max_size=40)


@given(_secrets, _secrets, st.binary(), st.binary(), st.integers(0, 10**12 - 1))
def test_what_is_signed_is_right_and_nothing_else(secret: bytes, other: bytes, body: bytes, other_body: bytes, at: int) -> None:
    """Each scheme takes what its secret signed; another secret or another body is bad."""
    time = str(at).encode()
    hexed = ((b"X-Sig", mac(secret, body).hex().encode()),)
    cases: list[tuple[Signature, Signature, Headers]] = [
        (StripeSignature((secret,)), StripeSignature((other,)), stripe(b"t=%b,v1=%b" % (time, v1(secret, at, body)))),
        (StandardSignature((secret,)), StandardSignature((other,)), standard(signed(secret, b"m", time, body), b"m", time)),
        (PlainSignature("X-Sig", (secret,)), PlainSignature("X-Sig", (other,)), hexed),
    ]
    same_key = hmac.compare_digest(mac(secret, b""), mac(other, b""))
    for mine, others, headers in cases:
        assert isinstance(verify(mine, headers, body, float(at)), Verified)
        assert (verify(mine, headers, other_body, float(at)) == BAD) == (body != other_body)
        assert (verify(others, headers, body, float(at)) == BAD) == (not same_key)


@given(st.sampled_from([STRIPE, STANDARD, GITHUB, SHOPIFY]), st.lists(st.binary(max_size=60), min_size=4, max_size=4), st.binary())
def test_never_fails(signature: Signature, values: list[bytes], body: bytes) -> None:
    """Whatever is sent: an answer, and no error."""
    headers = (
        (b"stripe-signature", values[0]),
        (b"webhook-id", values[1]),
        (b"webhook-timestamp", values[2]),
        (b"webhook-signature", values[3]),
        (b"x-hub-signature-256", b"sha256=" + values[0]),
        (b"x-shopify-hmac-sha256", values[0]),
    )
    assert verify(signature, headers, body, NOW) == BAD
