"""The webhooks' own listener: nothing but the endpoints."""

from gateway.http.request import Request, RequestFactory
from gateway.http.response import WireResponse
from gateway.webhook.outcome import NOWHERE
from gateway.webhook.receiver import WebhookReceiver


class WebhookListener:
    """The handler of a listener that has the endpoints alone; everything else is 404. It answers with `WireResponse`s, as the proxy."""

    make_request: RequestFactory[Request] = Request

    def __init__(self, receiver: WebhookReceiver) -> None:
        self._receiver = receiver

    async def handle(self, request: Request) -> WireResponse:
        """Answer one request."""
        route = self._receiver.match(request.target)
        if route is not None:
            return await self._receiver.handle(request, route)
        return self._receiver.answer(NOWHERE)
