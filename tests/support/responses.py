"""The body of a stand-in upstream's response, read as `gateway.ports.UpstreamResponse` promises."""

from collections.abc import AsyncIterator


class Body:
    """Pieces that come with time, to be read whole or one by one; what was read in vain is given again."""

    def __init__(self, coming: AsyncIterator[bytes], announced: int | None = None) -> None:
        self._coming = coming
        self._announced = announced
        self._kept: list[bytes] = []

    async def read(self, limit: int) -> bytes | None:
        if self._announced is not None and self._announced > limit:
            return None
        while sum(map(len, self._kept)) <= limit:
            try:
                self._kept.append(await anext(self._coming))
            except StopAsyncIteration:
                return b"".join(self._kept)
        return None

    def __aiter__(self) -> "Body":
        return self

    async def __anext__(self) -> bytes:
        return self._kept.pop(0) if self._kept else await anext(self._coming)
