"""Whether the client is still there, for work that is only worth doing for it."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from gateway.http.body import ClientGone


class Connection(Protocol):
    """The part of a client's connection that tells when it is gone."""

    def on_lost(self, callback: Callable[[], None], *, streaming: bool = False) -> Callable[[], None]: ...


class WhilePresent:
    """Within this block the current task is cancelled when the client's connection is lost, which leaves the block as `ClientGone`.

    For unguarded requests only: an attempt belongs to the process, whoever has left. With `streaming`, an answer is under way that may
    never end, and a client that ends its sending counts as gone too.
    """

    def __init__(self, connection: Connection, *, streaming: bool = False) -> None:
        self._connection = connection
        self._streaming = streaming
        self._gone = False
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._unsubscribe = self._connection.on_lost(self._lost, streaming=self._streaming)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unsubscribe()
        if self._gone:
            assert self._task is not None
            self._task.uncancel()
            raise ClientGone from error

    def _lost(self) -> None:
        self._gone = True
        if self._task is not None:
            self._task.cancel()
