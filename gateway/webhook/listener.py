"""The webhooks' own listener: nothing but the endpoints."""

from aiohttp import web
from aiohttp.web_request import BaseRequest

from gateway.webhook.outcome import NOWHERE
from gateway.webhook.receiver import WebhookReceiver


class WebhookListener:
    """The handler of a listener that has the endpoints alone; everything else is 404. It answers with `WireResponse`s, as the proxy."""

    def __init__(self, receiver: WebhookReceiver) -> None:
        self._receiver = receiver

    async def handle(self, request: BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        route = self._receiver.match(request.raw_path.encode("utf-8", "surrogateescape"))
        if route is not None:
            return await self._receiver.handle(request, route)
        return self._receiver.answer(NOWHERE)
