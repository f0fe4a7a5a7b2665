"""How a handler of the operators' API reaches the records: at the desk of its caller."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from gateway.operate.admin.guard import caller_of
from gateway.operate.admin.responses import problem
from gateway.operate.operations import Desk, Operator

Handler: TypeAlias = Callable[[Desk, web.Request], Awaitable[web.StreamResponse]]


def at_desk(operator: Operator | None, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of a route. Without an operator it answers 503."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if operator is None:
            return problem(503, "This listener has no way to the records.")
        return await handler(Desk(operator, caller_of(request)), request)

    return handle
