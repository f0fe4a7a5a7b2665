"""What finds out about unknown outcomes, as a configuration makes it."""

import asyncio
from pathlib import Path

from gateway.ports import UpstreamRequest
from gateway.run.server.finding_out import make_probes
from tests.config.support import HEAD, read

SLOW = 0.5

MAP = (
    HEAD
    + """\
routes:
  - id: pay
    path: /v1/pay
    upstream: payments
    idempotency:
      principal: none
      reconcile:
        probe: lookup
        request: {path: "/v1/pay/{key}"}
        rules: [{status: [200], verdict: executed, answer: {status: 200, pointer: ""}}]
        timeout: 30s
"""
)


async def test_a_probe_has_its_own_time(tmp_path: Path) -> None:
    """A look-up that is slower than what requests are given (`first_byte`, `read_idle`, `total`) is waited for."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(SLOW)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await asyncio.sleep(SLOW)
        writer.write(b"{}")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    timeouts = "{connect: 10s, first_byte: 50ms, read_idle: 50ms, total: 100ms}"
    text = MAP.replace('"http://payments:8000"', f'"http://127.0.0.1:{port}", max_execution: 2m, timeouts: {timeouts}')
    probe = make_probes(read(tmp_path, text))["payments"]
    try:
        response = await probe.send(UpstreamRequest(b"GET", b"/v1/pay/k", ((b"Host", b"payments"),), b""), lambda: True)
        assert await response.read(100) == b"{}"
        response.close()
    finally:
        await probe.close()
        server.close()
        await server.wait_closed()
