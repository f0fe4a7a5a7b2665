"""Cost of a request's fingerprint, in microseconds of CPU, by kind and size of body.

    python -m benchmarks.fingerprint [MILLISECONDS A ROUND]

Under a digest secret, as in production, with the header fields of an ordinary client. The least of many rounds: on a shared machine the
others measure the neighbours. The aim is 25 µs for 1 KB of JSON. Above 64 KiB a body is better judged outside of the event loop.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial

from gateway.core.fingerprint import Content, digest_body, make_fingerprinter
from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.model import Headers

ROUNDS = 25
SECRET = b"a secret of 32 bytes for digests"
AUTO = FingerprintPolicy()
FORM = b"application/x-www-form-urlencoded"
KIB = 1024


def payment(items: int) -> dict[str, object]:
    """A payment with so many items; with five it is 1 KB of JSON."""
    return {
        "amount": 109900,
        "currency": "eur",
        "confirm": True,
        "description": "Order 4711 of 2026-11-27",
        "customer": {
            "id": "cus_9s6XKzkNRiz8i3",
            "email": "jenny.rosen@example.com",
            "name": "Jenny Rosen",
            "phone": None,
            "address": {"line1": "510 Townsend St", "line2": None, "city": "San Francisco", "postal_code": "94103", "country": "US"},
        },
        "items": [
            {"sku": f"sku_{at:04d}", "quantity": at + 1, "price": 1099 + at, "taxes": [{"rate": 19, "kind": "vat"}]} for at in range(items)
        ],
        "payment_method": {"type": "card", "card": {"exp_month": 12, "exp_year": 2027, "token": "tok_1MmlLrLkdIwHu7ix0snN0B15"}},
        "metadata": {"order": "4711", "channel": "web", "client_timestamp": "2026-11-27T22:00:00Z"},
    }


def written(value: object) -> bytes:
    return json.dumps(value).encode()


def fields(content_type: bytes, size: int) -> Headers:
    return (
        (b"Host", b"api.example.com"),
        (b"User-Agent", b"shop/4.2 (linux) python-requests/2.32"),
        (b"Accept", b"*/*"),
        (b"Accept-Encoding", b"gzip, deflate"),
        (b"Authorization", b"Bearer 0123456789abcdef0123456789abcdef"),
        (b"Idempotency-Key", b'"8e03978e-40d5-43dd-bc93-6894a57f9324"'),
        (b"Content-Type", content_type),
        (b"Content-Length", b"%d" % size),
    )


def content(body: bytes, content_type: bytes = b"application/json") -> Content:
    return Content("create-charge", "POST", b"/v1/charges", fields(content_type, len(body)), body)


def form(pairs: int) -> Content:
    return content(b"&".join(b"metadata%%5Bfield_%04d%%5D=a+value+of+some+letters" % at for at in range(pairs)), FORM)


def parts(size: int, boundary: bytes = b"----boundary7MA4YWxkTrZu0gW") -> Content:
    """A text and a file of `size` bytes."""
    head = b'Content-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    file = b'; filename="a.pdf"\r\nContent-Type: application/pdf'
    pieces = [head % (b"amount", b"", b"109900"), head % (b"file", file, b"%PDF-1.7 " * (size // 9)), b""]
    body = (b"--" + boundary + b"\r\n").join([b"", *pieces])[: -len(b"\r\n")] + b"--\r\n"
    return content(body, b"multipart/form-data; boundary=" + boundary)


def jsons() -> dict[str, tuple[Content, FingerprintPolicy]]:
    plain = written(payment(5))
    return {
        "JSON, 1 KB": (content(plain), AUTO),
        "JSON, 1 KB, without 2 ignored pointers": (
            content(plain),
            FingerprintPolicy(ignore=("/metadata/client_timestamp", "/items/*/taxes")),
        ),
        "JSON, 1 KB, only 3 fields": (content(plain), FingerprintPolicy(only=("/amount", "/currency", "/items/*/sku"))),
        "JSON, 1 KB, letters beyond ASCII": (content(plain.replace(b"Rosen", "Rosén".encode())), AUTO),
        "JSON, 1 KB, escapes": (content(plain.replace(b"Rosen", b'Ros\\u00e9n \\"J\\"').replace(b"/", b"\\/")), AUTO),
        "JSON, 1 KB, emoji": (content(plain.replace(b"Rosen", "😀".encode())), AUTO),
        "JSON, 1 KB, fractions": (content(plain.replace(b"1099", b"10.99").replace(b"110", b"1.5")), AUTO),
        "JSON, 1 KB, whole numbers with fractions": (content(plain.replace(b"1099", b"109.00")), AUTO),
        "JSON, 1 KB, numbers with exponents": (content(plain.replace(b" 19,", b" 1.9e1,")), AUTO),
        "JSON, 10 KB": (content(written(payment(100))), AUTO),
        "JSON, 64 KB": (content(written(payment(720))), AUTO),
        "JSON, 1 MB": (content(written(payment(11000))), AUTO),
        "JSON, 1 MB of numbers in other spellings": (content(b"[" + b"1.5e1," * (170 * KIB) + b"1]"), AUTO),
    }


def others() -> dict[str, tuple[Content, FingerprintPolicy]]:
    plain = written(payment(5))
    large = parts(4 * KIB * KIB)
    assert isinstance(large.body, bytes)
    spilled = Content(large.scope, large.method, large.target, large.headers, digest_body(large.body, tuple(large.headers)))
    return {
        "form, 1 KB": (form(20), AUTO),
        "form, 64 KB": (form(1300), AUTO),
        "multipart, 1 KB": (parts(KIB - 250), AUTO),
        "multipart, 1 MB": (parts(KIB * KIB - KIB), AUTO),
        "multipart, 4 MB, read in passing": (spilled, AUTO),
        "bytes, 1 KB": (content(plain), FingerprintPolicy(BodyMode.BYTES)),
        "no body counts": (content(plain), FingerprintPolicy(BodyMode.NONE)),
    }


def cost(work: Callable[[], object], seconds: float) -> float:
    """CPU seconds of one call."""
    started = time.process_time()
    work()
    calls = max(1, int(seconds / max(time.process_time() - started, 1e-6)))
    least = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(calls):
            work()
        least = min(least, (time.process_time() - started) / calls)
    return least


def main(seconds: float) -> None:
    for name, (request, policy) in (jsons() | others()).items():
        fingerprinter = make_fingerprinter(policy, SECRET)
        body = request.body
        size = len(body) if isinstance(body, bytes) else body.length
        print(f"{name:42s} {size:8d} bytes {cost(partial(fingerprinter.fingerprint, request), seconds) * 1e6:10.1f} us")


if __name__ == "__main__":
    main(float(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.02)
