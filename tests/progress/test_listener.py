"""The listener of upstreams that take part, without a gateway around it."""

import asyncio

import pytest

from gateway.core.attempt_token import AttemptToken, write_token
from gateway.core.model import RecordKey
from gateway.core.recovery_point import RecoveryPoint
from gateway.http.problem import ProblemWriter
from gateway.http.request import Request
from gateway.http.response import WireResponse
from gateway.ports.participation import Participant, Progress
from gateway.progress import listener
from gateway.progress.listener import PATH, ProgressListener
from gateway.runtime.system import SystemClock, SystemRandomness
from tests.engine.stage import NotingObserver
from tests.http.connections.house import House, request

TOKEN = write_token(AttemptToken(RecordKey("rides:none", "k-1"), b"o" * 16))


class NoAttempts:
    """Knows no attempt."""

    async def advance(self, token: AttemptToken, point: RecoveryPoint) -> Progress | None:
        return None

    async def progress(self, token: AttemptToken) -> Progress | None:
        return None

    async def register(self, participants: object) -> None:
        assert not isinstance(participants, Participant)


async def test_a_body_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte for each silence that is put up with would hold a connection for days."""
    monkeypatch.setattr(listener, "PATIENCE", 0.2)
    async with House() as house, house.peer() as peer:
        told = ProgressListener(NoAttempts(), NotingObserver(), SystemClock(), SystemRandomness(), ProblemWriter(), house.memory)

        async def answering(asked: Request) -> WireResponse:
            return await told.handle(asked)

        house.answering = answering
        await peer.send(request("PUT", PATH.decode(), f"Authorization: Bearer {TOKEN}", "Content-Length: 1000"))
        answered = asyncio.ensure_future(peer.rest())
        async with asyncio.timeout(10):
            while not answered.done():
                await peer.send(b" ")
                await asyncio.sleep(0.02)
        assert (await answered).startswith(b"HTTP/1.1 408 ")
