"""Passes an upstream's body straight on to the client, at the client's pace."""

from collections.abc import AsyncIterator

from gateway.ports import InDoubt, RelayCut, UpstreamResponse


class UpstreamStream:
    """Implements `Streams` of `gateway.engine.answers` over a response whose head has arrived. Owns the response."""

    def __init__(self, response: UpstreamResponse) -> None:
        self._response = response

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.chunks():
                yield chunk
        except InDoubt as error:
            raise RelayCut from error
        finally:
            self._response.close()

    def close(self) -> None:
        self._response.close()
