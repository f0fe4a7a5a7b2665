"""`/metrics`: the format that the scraper asks for, packed if it takes that."""

import asyncio
import gzip
from collections.abc import Callable

from aiohttp import web

LEVEL = 1
"""Of packing: series are so alike that more work saves little."""

Exposition = Callable[[str], tuple[bytes, str]]
"""From an Accept field to body and content type. Safe to call from any thread."""


async def scrape(exposition: Exposition, request: web.Request) -> web.Response:
    """One answer to Prometheus."""
    accept, packed = request.headers.get("Accept", ""), takes_gzip(request.headers.get("Accept-Encoding", ""))
    # Thousands of series take tens of milliseconds to write and to pack: too long for a loop that has clients waiting.
    body, content_type = await asyncio.to_thread(_write, exposition, accept, packed=packed)
    headers = {"Content-Type": content_type, "Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding"}
    return web.Response(body=body, headers={**headers, "Content-Encoding": "gzip"} if packed else headers)


def _write(exposition: Exposition, accept: str, *, packed: bool) -> tuple[bytes, str]:
    body, content_type = exposition(accept)
    return (gzip.compress(body, LEVEL) if packed else body), content_type


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding field (RFC 9110 section 12.5.3) names gzip with a weight above 0. `*` alone is no reason to pack."""
    for part in accept_encoding.split(","):
        coding, _, weight = part.partition(";")
        if coding.strip().lower() == "gzip":
            return weight.replace(" ", "").lower() not in {"q=0", "q=0.", "q=0.0", "q=0.00", "q=0.000"}
    return False
