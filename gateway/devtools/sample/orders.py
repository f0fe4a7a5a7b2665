"""One request to execute something, answered as its headers ask."""

import asyncio

from aiohttp import web

from gateway.devtools.sample.desk import Desk, Order
from gateway.devtools.sample.ledger import Outcome
from gateway.devtools.sample.responses import answer, error, half, hang_up, reset_when_closed
from gateway.devtools.sample.variants import FAIL, Fail, variant_of


async def carry_out(request: web.Request, desk: Desk, order: Order) -> web.StreamResponse:
    """Execute and answer. The answer to a closed connection is never sent. Raises OperationRefused."""
    variant = variant_of(request)
    desk.require_up(lookup=False)
    known, met = desk.arrived(order.key, variant)
    if known is not None:
        return respond(order, known)
    fail = None if met else variant.fail
    match fail:
        case Fail.BEFORE:
            return hang_up(request)
        case Fail.INTERNAL_ERROR | Fail.UNAVAILABLE | Fail.TOO_MANY:
            await asyncio.sleep(variant.delay)
            headers = {"Retry-After": "1"} if fail is Fail.TOO_MANY else {}
            return error(int(fail), "asked_for", f"{FAIL} asked for this; nothing was executed", headers)
        case Fail.LATE:
            desk.start(order, variant)
            return hang_up(request)
        case _:
            return await deliver(request, respond(order, await asyncio.shield(desk.start(order, variant))), fail)


async def deliver(request: web.Request, response: web.Response, fail: Fail | None) -> web.StreamResponse:
    """The answer to what was executed, or what comes of it."""
    match fail:
        case Fail.AFTER:
            return error(500, "asked_for", f"{FAIL} asked for this; the operation was executed")
        case Fail.DROP:
            return hang_up(request)
        case Fail.RESET:
            reset_when_closed(request)
            return hang_up(request)
        case Fail.TRUNCATE:
            return await half(request, response)
        case _:
            return response


def respond(order: Order, outcome: Outcome) -> web.Response:
    """An outcome as an answer."""
    headers = {"Location": f"/v1/{order.kind}s/{outcome.body['id']}"} if outcome.status == 201 else None
    return answer(outcome.body, status=outcome.status, headers=headers)
