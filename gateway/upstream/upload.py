"""A streamed request body, sent beside the wait for the response, piece by piece behind the fence."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from gateway.ports import DoubtReason, InDoubt
from gateway.upstream.exchange import Exchange
from gateway.upstream.framing import LAST_CHUNK, chunk


async def send_body(loop: asyncio.AbstractEventLoop, exchange: Exchange, body: AsyncIterator[bytes], length: int | None) -> None:
    """Send `body` and wait for the head of the final response, which may come first: then the rest is not sent.

    Raises InDoubt like `Exchange.head`, also when `body` has another length than announced, and whatever `body` raises,
    as it is. In each case, and when cancelled, the connection is cut. A connection whose request was not sent to its
    end is not reused. The fence is asked for every piece.
    """
    sending = loop.create_task(_pump(exchange, body, length))

    def stopped(task: asyncio.Task[None]) -> None:
        error = InDoubt(DoubtReason.DISCONNECTED) if task.cancelled() else task.exception()
        if error is not None:
            exchange.fail(error)

    sending.add_done_callback(stopped)
    try:
        await exchange.head()
    finally:
        sending.remove_done_callback(stopped)
        if not sending.done():
            sending.cancel()
            await asyncio.wait([sending])
        if not sending.cancelled():
            sending.exception()  # marks it as seen: the response, or the failure that ended the wait, came first


async def _pump(exchange: Exchange, body: AsyncIterator[bytes], length: int | None) -> None:
    try:
        left = length
        async for piece in body:
            if exchange.open_connection() is None:
                return
            if not piece:
                continue
            if left is not None:
                left -= len(piece)
                if left < 0:
                    break
            connection = exchange.send_on(chunk(piece) if left is None else piece)
            if connection is None:
                return
            if connection.unsent:
                exchange.limit_silence()
                await connection.drain()
                exchange.lift_limit()
        if exchange.open_connection() is None:
            return
        if left:
            raise InDoubt(DoubtReason.DISCONNECTED)
        if left is None and exchange.send_on(LAST_CHUNK) is None:
            return
        exchange.sent()
    finally:
        if isinstance(body, AsyncGenerator):
            await body.aclose()
