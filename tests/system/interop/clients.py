"""Clients that others made, each with the retry policy that it comes with or that its documentation tells users to write around it.

All send one operation, the creation of a payment intent, below a base URL, and keep one key for all tries. Pauses are the clients' own.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import stripe
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from tests.system.interop.programs import optional, required, run

PATH = "/v1/payment_intents"
BODY = "amount=100&currency=eur"
TRIES = 3
WORTH_ANOTHER_TRY = (409, 502, 503, 504)
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client was left with after its last try: `status` 0 is no answer at all; `replayed` is the marker's value, None without it."""

    status: int
    body: bytes
    replayed: str | None

    @property
    def problem(self) -> str:
        """The last segment of the problem document's type."""
        return str(json.loads(self.body)["type"]).rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Errand:
    """What one client is to do. `folder` is the client's to write to."""

    base: str
    token: str
    folder: Path


Client = Callable[[Errand], Awaitable[Outcome]]


def headers_of(token: str) -> dict[str, str]:
    """The fields of every client that sets its own; the key is fresh for each operation."""
    return {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Idempotency-Key": str(uuid.uuid4()),
    }


def curl_command(headers: Mapping[str, str]) -> list[str]:
    """A curl that reads no settings of the user's own, with these header fields."""
    fields = [word for name, value in headers.items() for word in ("--header", f"{name}: {value}")]
    return [required("curl"), "-q", "--no-progress-meter", "--max-time", "60", *fields]


async def curl(errand: Errand) -> Outcome:
    """Its own retries: 1 s, then doubled, or as `Retry-After` says. Without --fail an answer of 409 ends them."""
    return await _curl(errand)


async def curl_fail(errand: Errand) -> Outcome:
    """The same with --fail-with-body, under which --retry-all-errors takes a 409 for an error too."""
    return await _curl(errand, "--fail-with-body")


async def _curl(errand: Errand, *more: str) -> Outcome:
    head, body = errand.folder / "head", errand.folder / "body"
    retries = ["--retry", str(TRIES - 1), "--retry-all-errors", "--retry-connrefused", *more]
    files = ["--dump-header", str(head), "--output", str(body), "--write-out", "%{http_code}"]
    out = await run(*curl_command(headers_of(errand.token)), *retries, *files, "--data", BODY, errand.base + PATH, codes=(0, 22))
    last = head.read_bytes().split(b"\r\n\r\n")[-2].lower()
    _, marked, rest = last.partition(b"\r\nidempotent-replayed: ")
    return Outcome(int(out), body.read_bytes(), rest.partition(b"\r\n")[0].decode() if marked else None)


async def requests_session(errand: Errand) -> Outcome:
    """urllib3's `Retry`, allowed to repeat POST because there is a key; the last answer is returned rather than raised."""

    def send() -> Outcome:
        policy = Retry(
            total=TRIES - 1, allowed_methods=["POST"], status_forcelist=WORTH_ANOTHER_TRY, backoff_factor=0.1, raise_on_status=False
        )
        with requests.Session() as session:
            session.mount("http://", HTTPAdapter(max_retries=policy))
            answer = session.post(errand.base + PATH, data=BODY, headers=headers_of(errand.token), timeout=60)
        return Outcome(answer.status_code, answer.content, answer.headers.get("Idempotent-Replayed"))

    return await asyncio.to_thread(send)


async def httpx_client(errand: Errand) -> Outcome:
    """The transport repeats failed connects; a loop around it repeats the rest."""

    def send() -> Outcome:
        headers = headers_of(errand.token)
        with httpx.Client(transport=httpx.HTTPTransport(retries=TRIES - 1), timeout=60) as client:
            for left in reversed(range(TRIES)):
                try:
                    answer = client.post(errand.base + PATH, content=BODY, headers=headers)
                except httpx.TransportError:
                    if left:
                        continue
                    raise
                if left and answer.status_code in WORTH_ANOTHER_TRY:
                    time.sleep(float(answer.headers.get("Retry-After", "0.1")))
                else:
                    return Outcome(answer.status_code, answer.content, answer.headers.get("Idempotent-Replayed"))
        raise AssertionError("the last try returns or raises")

    return await asyncio.to_thread(send)


async def stripe_sdk(errand: Errand) -> Outcome:
    """The SDK as it is: its own key, its own retries of failed connections, 409 and 5xx; it does not look at `Retry-After`."""

    def send() -> Outcome:
        http = stripe.RequestsClient()
        client = stripe.StripeClient(errand.token, base_addresses={"api": errand.base}, max_network_retries=TRIES - 1, http_client=http)
        try:
            intent = client.v1.payment_intents.create({"amount": 100, "currency": "eur"})
        except stripe.StripeError as error:
            return Outcome(error.http_status or 0, (error.http_body or "").encode(), (error.headers or {}).get("Idempotent-Replayed"))
        finally:
            http.close()  # type: ignore[no-untyped-call]  # the SDK's own
        raw: Any = intent.last_response
        return Outcome(raw.code, raw.body.encode(), raw.headers.get("Idempotent-Replayed"))

    return await asyncio.to_thread(send)


async def node_fetch(errand: Errand) -> Outcome:
    """Node's fetch in a loop."""
    node = optional("node")
    if await run(node, "--print", "typeof fetch") != b"function\n":
        pytest.skip("this node has no fetch")
    out = await run(node, str(FOLDER / "retry.mjs"), errand.base + PATH, errand.token, str(uuid.uuid4()), BODY)
    answer = json.loads(out)
    return Outcome(answer["status"], answer["body"].encode(), answer["replayed"])


async def java_http_client(errand: Errand) -> Outcome:
    """Java's HttpClient in a loop; it offers to change to h2c with its first request."""
    program = [_java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", str(FOLDER / "Retry.java")]
    out = await run(*program, errand.base + PATH, errand.token, str(uuid.uuid4()), BODY)
    status, replayed, body = out.split(b"\n", 2)
    return Outcome(int(status), body.removesuffix(b"\n"), replayed.decode() or None)


def _java() -> str:
    """A java that runs source files, which takes a compiler beside it."""
    java = optional("java")
    if not (Path(java).resolve().parent / "javac").exists():
        pytest.skip("this java has no compiler")
    return java


CLIENTS: Mapping[str, Client] = {
    "curl": curl,
    "curl-fail": curl_fail,
    "requests": requests_session,
    "httpx": httpx_client,
    "stripe": stripe_sdk,
    "node": node_fetch,
    "java": java_http_client,
}
