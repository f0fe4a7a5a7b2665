"""A guarded request as the engine takes it: read whole, its key and scope found, its headers ready for the next hop."""

from dataclasses import dataclass

from gateway.core.fingerprint import Content
from gateway.core.model import Headers, RecordKey
from gateway.core.policy import Policy


@dataclass(frozen=True, slots=True)
class GuardedRequest:
    """One keyed request on a guarded route. `target` is the origin-form to forward; `upstream_headers` are what the upstream shall see."""

    request_id: str
    route_id: str
    upstream: str
    policy: Policy
    key: RecordKey
    method: str
    target: bytes
    headers: Headers
    upstream_headers: Headers
    body: bytes

    @property
    def content(self) -> Content:
        return Content(self.policy.scope, self.method, self.target, self.headers, self.body)
