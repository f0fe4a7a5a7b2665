"""A collector for OTLP over HTTP that keeps what it is told."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
"""For a gateway's environment: spans are exported after a tenth of a second instead of five."""


@dataclass(slots=True)
class Collector:
    """`spans` as the protocol has them, ids in hex; `names` of attributes with their values."""

    endpoint: str = ""
    spans: list[Any] = field(default_factory=list)

    async def named(self, name: str, count: int = 1) -> list[Any]:
        """The spans of this name, once there are `count` of them."""
        async with asyncio.timeout(20):
            while len(found := [span for span in self.spans if span.name == name]) < count:
                await asyncio.sleep(0.05)
        return found


def attributes(span: Any) -> dict[str, str | int]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@contextlib.asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """One that listens, and is gone at the end of the block."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: PLC0415 - may be missing

    collector = Collector()

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        told = ExportTraceServiceRequest.FromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        collector.spans += [span for resource in told.resource_spans for scope in resource.scope_spans for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        collector.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
        yield collector
    finally:
        await runner.cleanup()
