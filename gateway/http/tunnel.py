"""Two connections that have left HTTP, joined: what one side sends, the other gets, at the pace of the slower."""

import asyncio

from gateway.ports import Tunnel


async def join(client: Tunnel, upstream: Tunnel) -> int:
    """Carry bytes both ways until either side ends; then both are closed. Returns how many bytes went to the client."""
    carried = 0

    async def carry(source: Tunnel, target: Tunnel, *, counts: bool) -> None:
        nonlocal carried
        while data := await source.read():
            target.write(data)
            if counts:
                carried += len(data)
            await target.drain()

    ways = {
        asyncio.ensure_future(carry(upstream, client, counts=True)),
        asyncio.ensure_future(carry(client, upstream, counts=False)),
    }
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        upstream.close()
        client.close()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    return carried
