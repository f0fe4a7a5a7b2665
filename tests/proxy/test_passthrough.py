"""What becomes of a request that passes straight through, where the gateway itself fails."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.policy import Route
from gateway.core.problems import Problem
from gateway.engine.answers import Refused
from gateway.http.body import ClientGone
from gateway.http.request import RequestBody
from gateway.http.request_body import NO_BODY, IncomingBody
from gateway.plan import RoutePlan
from gateway.ports import UpstreamRequest, UpstreamResponse
from gateway.proxy.call import Call
from gateway.proxy.passthrough import Desk, Passage
from gateway.proxy.routing import Edge, make_routing
from gateway.runtime.system import SystemClock
from tests.engine.stage import NotingObserver
from tests.support.connected import Connected
from tests.support.requests import NoUpstream


class Defect(Exception):
    """What is raised."""


class Broken(NoUpstream):
    """An upstream's client that fails where it must not."""

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> UpstreamResponse:
        if isinstance(request.body, bytes):
            raise Defect
        async for _ in request.body:
            pass
        raise AssertionError("the body ended")


def call_of(body: RequestBody, *lines: tuple[bytes, bytes]) -> tuple[Call, RoutePlan]:
    routing = make_routing((Route("rest", "/**", "payments"),), {"payments": Broken()}, b"", (), Edge())
    call = Call(Connected(), "POST", b"/other", (1, 1), Fields(((b"Host", b"shop.example"), *lines)), body, True)
    call.begin(routing, "request-1", 0.0)
    return call, routing.plans["rest"]


async def test_a_defect_of_ours_is_answered() -> None:
    """Nobody knows whether anything was sent: 502, and the failure is counted."""
    call, plan = call_of(NO_BODY)
    observer = NotingObserver()
    reply = await Passage(call, plan, (), cast("Desk", None), SystemClock(), observer).run()
    assert (reply.label, reply.reason, reply.upstream_status) == (Label.BYPASS, "gateway_error", None)
    assert isinstance(reply.answer, Refused)
    assert (reply.answer.problem, reply.answer.final_status) == (Problem.UPSTREAM_FAILED, 502)
    [(task, error)] = observer.failures
    assert (task, type(error)) == ("attempt", Defect)


async def test_a_client_that_leaves_is_no_defect() -> None:
    body = IncomingBody(lambda: None)
    call, plan = call_of(body, (b"Transfer-Encoding", b"chunked"))
    observer = NotingObserver()
    asyncio.get_running_loop().call_soon(body.lose, "the client is gone")
    with pytest.raises(ClientGone):
        await Passage(call, plan, (), cast("Desk", None), SystemClock(), observer).run()
    assert not observer.failures
