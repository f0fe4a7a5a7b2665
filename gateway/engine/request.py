"""A guarded request as the engine takes it: read whole, its key and scope found, its headers ready for the next hop."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.core.fingerprint import Content
from gateway.core.model import Headers, RecordKey
from gateway.core.policy import Policy


@dataclass(slots=True)  # not frozen: one for every request, and that would cost three times as much; nobody changes it
class GuardedRequest:
    """One keyed request on a guarded route. `target` is the origin-form to forward; `forward` makes the fields that the upstream shall see,
    which only a request that executes needs.
    """

    request_id: str
    route_id: str
    upstream: str
    policy: Policy
    key: RecordKey
    method: str
    target: bytes
    headers: Headers
    forward: Callable[[], Headers]
    body: bytes

    @property
    def content(self) -> Content:
        return Content(self.policy.scope, self.method, self.target, self.headers, self.body)
