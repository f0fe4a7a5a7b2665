"""What real clients do besides a plain POST: keep-alive, chunked uploads, expectations, HEAD, compression, other HTTP versions."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import requests

from tests.support.faults import fault_proxy
from tests.support.services import Services
from tests.support.upstream import Exchange
from tests.system.interop.clients import BODY, PATH, curl_command, headers_of
from tests.system.interop.programs import run, started
from tests.system.interop.stage import PIECES, REST, Stage, answer_to, guarded, staged

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = guarded("pay") + guarded("large", more=", limits: {request_body: 4MiB}") + REST
MEBIBYTE = 1024 * 1024
PATIENTLY = ["--expect100-timeout", "30"]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(services, tmp_path_factory.mktemp("gateway"), ROUTES) as stage:
        yield stage


@pytest.fixture(autouse=True)
def _usual_upstream(stage: Stage) -> Iterator[None]:
    """The upstream of the next test executes and answers, whatever this one makes of it."""
    stage.upstream.requests.clear()
    yield
    stage.upstream.behave = stage.behave


@pytest.fixture
def headers(token: str) -> dict[str, str]:
    """The fields of this caller's operation, with a fresh key."""
    return headers_of(token)


def url(stage: Stage, path: str = "/pay" + PATH) -> str:
    """Straight to the gateway."""
    return f"http://127.0.0.1:{stage.gateway.port}{path}"


def marker(answer: httpx.Response | requests.Response) -> str | None:
    return answer.headers.get("Idempotent-Replayed")


async def test_curl_repeats_over_one_connection(stage: Stage, token: str, headers: dict[str, str]) -> None:
    """Two posts with one key over one connection: an execution and its replay."""
    target = url(stage)
    out = await run(*curl_command(headers), "--data", BODY, "--include", "--write-out", "\n%{num_connects}\n", target, target)
    first, second = out.split(b"HTTP/1.1 200 ")[1:]
    assert answer_to(token) in first
    assert answer_to(token) in second
    assert b"idempotent-replayed" not in first.lower()
    assert b"\r\nIdempotent-Replayed: true\r\n" in second
    assert (first.split()[-1], second.split()[-1]) == (b"1", b"0")
    assert stage.runs(token) == 1


async def test_a_session_keeps_its_connection_through_everything(stage: Stage, token: str, headers: dict[str, str]) -> None:
    """POST, chunked POST, HEAD, a refusal and a replay follow each other on one connection of requests and one of httpx."""

    def with_requests(base: str) -> list[int]:
        with requests.Session() as session:
            session.headers.update(headers)
            answers = [
                session.post(base + "/pay/1", data=BODY),
                session.head(base + "/unguarded"),
                session.post(base + "/pay/1", data="amount=200"),
                session.post(base + "/pay/1", data=iter([BODY.encode()])),
            ]
        assert marker(answers[-1]) == "true"
        return [answer.status_code for answer in answers]

    def with_httpx(base: str) -> list[int]:
        with httpx.Client(headers={**headers, "Idempotency-Key": "another-key"}) as client:
            answers = [
                client.post(base + "/pay/2", content=iter([BODY.encode()])),
                client.head(base + "/unguarded"),
                client.post(base + "/pay/2", content="amount=200"),
                client.post(base + "/pay/2", content=BODY),
            ]
        assert marker(answers[-1]) == "true"
        return [answer.status_code for answer in answers]

    for client in (with_requests, with_httpx):
        async with fault_proxy("127.0.0.1", stage.gateway.port) as front:
            assert await asyncio.to_thread(client, f"http://127.0.0.1:{front.port}") == [200, 200, 422, 200]
            assert front.connections == 1


async def test_chunked_uploads_are_one_operation_however_they_are_cut(stage: Stage, token: str, headers: dict[str, str]) -> None:
    """curl's upload from a pipe and a generator's pieces arrive whole and under our framing; a retry with a length is a replay."""
    body = b'{"note":"' + b"x" * 300_000 + b'"}'

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 7_000):
            yield body[start : start + 7_000]

    def with_httpx(key: str, content: bytes | Iterator[bytes]) -> httpx.Response:
        return httpx.post(url(stage), headers={**headers, "Idempotency-Key": key}, content=content)

    upload = ["--request", "POST", "--upload-file", "-", url(stage)]
    piped = await run(*curl_command({**headers, "Idempotency-Key": "piped"}), *upload, stdin=body)
    again = await asyncio.to_thread(with_httpx, "piped", body)
    assert (piped, again.content, marker(again)) == (answer_to(token), answer_to(token), "true")
    generated = await asyncio.to_thread(with_httpx, "generated", pieces())
    repeated = await run(*curl_command({**headers, "Idempotency-Key": "generated"}), "--data-binary", "@-", url(stage), stdin=body)
    assert generated.content == repeated == answer_to(token)
    assert [seen.body == body for seen in stage.upstream.requests] == [True, True]


async def test_curl_waits_for_100_continue_before_a_large_body(stage: Stage, token: str, headers: dict[str, str], tmp_path: Path) -> None:
    """Two mebibytes are asked for before they are sent; the expectation ends at the gateway."""
    large, answer = tmp_path / "large", tmp_path / "answer"
    large.write_bytes(b"x" * 2 * MEBIBYTE)
    send = ["--verbose", "--stderr", "-", *PATIENTLY, "--output", str(answer), "--data-binary", f"@{large}", url(stage, "/large" + PATH)]
    for marked in (False, True):
        said = await run(*curl_command({**headers, "Expect": "100-continue"}), *send)
        assert b"< HTTP/1.1 100 Continue" in said
        assert (b"< Idempotent-Replayed: true" in said) is marked
        assert answer.read_bytes() == answer_to(token)
    assert [(len(seen.body), seen.value("expect")) for seen in stage.upstream.requests] == [(2 * MEBIBYTE, None)]


async def test_curl_sends_no_byte_of_a_body_that_is_too_large(stage: Stage, headers: dict[str, str], tmp_path: Path) -> None:
    """A length over the limit is refused by the head: curl, which asked first, keeps its body to itself."""
    large = tmp_path / "large"
    large.write_bytes(b"x" * 2 * MEBIBYTE)
    send = [*PATIENTLY, "--output", str(tmp_path / "answer"), "--write-out", "%{http_code} %{size_upload}", "--data-binary", f"@{large}"]
    out = await run(*curl_command({**headers, "Expect": "100-continue"}), *send, url(stage))
    assert out == b"413 0"
    assert not stage.upstream.requests


async def test_head_says_what_get_would_give(stage: Stage, headers: dict[str, str]) -> None:
    """A HEAD answer keeps its length and has no body; the connection is good for the next request."""

    async def document(exchange: Exchange) -> None:
        body = b"" if exchange.seen.method == b"HEAD" else b"x" * 77
        await exchange.send(b"HTTP/1.1 200 OK\r\nETag: abc\r\nContent-Length: 77\r\n\r\n" + body)

    stage.upstream.behave = document
    target = url(stage, "/document")
    out = await run(*curl_command(headers), "--head", "--write-out", "%{num_connects} %{size_download}\n", target, target)
    assert out.count(b"\r\nContent-Length: 77\r\n") == 2
    assert out.count(b"\r\nETag: abc\r\n") == 2
    assert [line for line in out.splitlines() if line.endswith(b" 0") and len(line) == 3] == [b"1 0", b"0 0"]
    assert len(await run(*curl_command(headers), target)) == 77


async def test_compressed_answers_pass_and_replay_as_they_are(stage: Stage, headers: dict[str, str]) -> None:
    """The same compressed bytes reach curl both times, and every client that asked for them reads the same text out of them."""
    text = b'{"note":"' + b"compressible " * 500 + b'"}'
    packed = gzip.compress(text, mtime=0)

    async def compressed(exchange: Exchange) -> None:
        exchange.execute()
        await exchange.answer(200, packed, fields=(b"Content-Encoding: gzip", b"Vary: Accept-Encoding"))

    stage.upstream.behave = compressed
    command = [*curl_command({**headers, "Accept-Encoding": "gzip"}), "--data", BODY, url(stage)]
    assert [await run(*command), await run(*command)] == [packed, packed]
    assert await run(*command, "--compressed") == text
    plain = await asyncio.to_thread(lambda: requests.post(url(stage), data=BODY, headers=headers))
    modern = await asyncio.to_thread(lambda: httpx.post(url(stage), content=BODY, headers=headers))
    assert plain.content == modern.content == text
    assert [seen.value("accept-encoding") for seen in stage.upstream.requests] == [b"gzip"]


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_http_1_0_gets_answers_that_it_can_read(stage: Stage, token: str, headers: dict[str, str], framing: str) -> None:
    """curl -0 sends a length, takes no chunks, and gets the same answer first and replayed."""

    path, expected = "/pay" + PATH, answer_to(token)
    if framing == "chunked":
        path, expected = "/pay/chunked" + PATH, b"".join(PIECES)
    for marked in (False, True):
        out = await run(*curl_command(headers), "--http1.0", "--include", "--data", BODY, url(stage, path))
        head, _, body = out.partition(b"\r\n\r\n")
        assert body == expected
        assert b"transfer-encoding" not in head.lower()
        assert (b"\r\nIdempotent-Replayed: true" in head) is marked
    assert stage.runs(token) == 1


@pytest.mark.parametrize("path", ["/pay" + PATH, "/unguarded"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_offer_of_h2c_is_dropped(stage: Stage, headers: dict[str, str], path: str, method: str) -> None:
    """curl --http2 offers to change protocols: the answer is HTTP/1.1, and the upstream hears nothing of the offer."""
    send = ["--data", BODY] if method == "POST" else []
    out = await run(*curl_command(headers), "--http2", *send, "--include", "--write-out", "\n%{http_version}", url(stage, path))
    assert out.startswith(b"HTTP/1.1 200 ")
    assert out.endswith(b"\n1.1")
    names = {name.lower() for name, _ in stage.upstream.requests[0].fields}
    assert not names & {b"upgrade", b"http2-settings", b"connection"}


async def test_a_gateway_that_is_not_there_yet_is_tried_again(stage: Stage, token: str, headers: dict[str, str]) -> None:
    """Refused connections are repeated by curl --retry-connrefused and by httpx's transport alone, and run the operation once."""
    refused, loop = asyncio.Event(), asyncio.get_running_loop()

    def trace(event: str, _: object) -> None:
        if event == "connection.connect_tcp.failed":
            loop.call_soon_threadsafe(refused.set)

    def with_httpx(target: str) -> bytes:
        with httpx.Client(transport=httpx.HTTPTransport(retries=5)) as client:
            return client.post(target, headers=headers, content=BODY, extensions={"trace": trace}).content

    await stage.front.refuse()
    answer = asyncio.ensure_future(asyncio.to_thread(with_httpx, stage.base("pay") + PATH))
    await refused.wait()
    await stage.front.heal()
    assert await answer == answer_to(token)

    await stage.front.refuse()
    command = [*curl_command(headers), "--retry", "5", "--retry-connrefused", "--data", BODY, stage.base("pay") + PATH]
    async with started(*command) as process:
        assert process.stderr is not None
        while b"Will retry" not in (line := await process.stderr.readline()):
            assert line
        await stage.front.heal()
        out, _ = await process.communicate()
    assert out == answer_to(token)
    assert stage.runs(token) == 1
