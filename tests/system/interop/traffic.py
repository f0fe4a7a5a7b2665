"""Requests as raw bytes, for what lies between the client and the gateway or the gateway and the upstream."""

import asyncio

from tests.support.client import Client, payment
from tests.system.interop.stage import PIECES, Stage, answer_to

LARGE = b"x" * 100_000


def request(where: str, token: str, *, method: str = "POST", body: bytes = b"amount=100", key: str = "k1") -> bytes:
    """An operation of the caller `token`, below /`where`/."""
    target = f"/{where}/v1/payment_intents".encode()
    return payment(key.encode(), body, method=method.encode(), target=target, principal=b"Bearer " + token.encode())


def chunked(raw: bytes, size: int = 9_000) -> bytes:
    """The same request with its body in chunks."""
    head, _, body = raw.partition(b"\r\n\r\n")
    kept = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    return kept + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in chunks) + b"0\r\n\r\n"


async def every_framing(stage: Stage, port: int, where: str, token: str) -> None:
    """Over one connection, bodies with lengths and in chunks, first and again, a refusal, HEAD, and an answer in chunks, first and again.

    Asserts that each arrives whole, and that three operations run once each.
    """
    answer, pieces = answer_to(token), b"".join(PIECES)
    in_pieces = f"{where}/chunked"
    steps = [
        (chunked(request(where, token, body=LARGE, key="k1")), 200, answer, None),
        (request(where, token, body=LARGE, key="k1"), 200, answer, b"true"),
        (request(where, token, body=LARGE, key="k2"), 200, answer, None),
        (chunked(request(where, token, body=LARGE, key="k2")), 200, answer, b"true"),
        (request(where, token, key="k2"), 422, None, None),
        (request(where, token, method="HEAD", body=b""), 200, b"", None),
        (request(in_pieces, token, key="k3"), 200, pieces, None),
        (chunked(request(in_pieces, token, key="k3")), 200, pieces, b"true"),
    ]
    seen = len(stage.upstream.requests)
    async with asyncio.timeout(30), await Client.connect(port) as client:
        for number, (raw, status, body, marked) in enumerate(steps):
            got = await client.request(raw, head_only=raw.startswith(b"HEAD"))
            assert (got.status, got.field("idempotent-replayed")) == (status, marked), number
            assert body is None or got.body == body, number
    bodies = [one.body for one in stage.upstream.requests[seen:] if one.method == b"POST"]
    assert bodies == [LARGE, LARGE, b"amount=100"]
