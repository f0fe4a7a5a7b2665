"""Guarded requests without a client's connection, and the plan of their route."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.core.fingerprint import Content
from gateway.core.headers import Fields
from gateway.core.key_location import Parts
from gateway.core.model import Fingerprint, Headers, RecordKey
from gateway.core.policy import Policy, Route
from gateway.core.splice import JsonText
from gateway.engine.request import Client, Held
from gateway.plan import GuardPlan, make_guard_plan
from gateway.ports import Body, Receiver, Upstream, UpstreamRequest, UpstreamResponse


class NoUpstream:
    """Where nothing is ever sent."""

    async def send(self, request: UpstreamRequest, fence: Callable[[], bool]) -> UpstreamResponse:
        raise AssertionError("nothing is sent")

    def begin(self, request: UpstreamRequest, fence: Callable[[], bool], receiver: Receiver) -> None:
        raise AssertionError("nothing is sent")


def plan_of(policy: Policy, upstream: Upstream | None = None, secret: bytes = b"") -> GuardPlan:
    """The plan of a route `charge` to an upstream `payments`."""
    return make_guard_plan(Route("charge", "/v1/charges", "payments", policy=policy), policy, upstream or NoUpstream(), secret)


NOT_MADE = Fingerprint(0, b"", b"")


@dataclass(slots=True)
class StagedRequest:
    """Implements `gateway.engine.request.GuardedRequest`. `wire` are the field lines that the upstream shall see."""

    request_id: str
    guard: GuardPlan
    key: RecordKey
    payload: bytes | Body
    fields: Fields = field(default_factory=lambda: Fields(((b"Content-Type", b"application/json"),)))
    wire: Headers = ((b"Content-Type", b"application/json"),)
    method: str = "POST"
    origin_form: bytes = b"/v1/charges"
    host: bytes = b""
    key_digest: str | None = ""
    client: Client | None = None
    held: Held | None = None
    parts: bytes | None = None
    text: JsonText | None = None
    content: Content | None = None
    meaning: Fingerprint = NOT_MADE
    captured: Mapping[str, str] | None = None
    correlation: str | None = None
    sealed: bytes | None = None
    later: bool = False
    patience: int = 0
    original: str | None = None

    read_head = None

    def lines(self) -> bytes | None:
        return None

    def forward(self) -> Parts:
        return Parts(self.wire, self.origin_form, None)

    def capture(self) -> None:
        """It comes with what is captured."""

    def close(self) -> None:
        held, self.held, self.payload, self.content = self.held, None, b"", None
        if held is not None:
            held.close()
