"""What an upstream's answer says of the execution, where the route trusts its word (`hints`)."""

from gateway.core.hints import LONGEST_READ, reads_body
from gateway.core.key_policy import ForwardKey
from gateway.core.model import Earlier
from gateway.core.packing import INLINE
from gateway.core.reconcile.found import Found, Names
from gateway.core.reconcile.policy import OWN_KEY
from gateway.core.upstream_answer import Heard, hear
from gateway.engine.dependencies import Dependencies
from gateway.engine.request import GuardedRequest
from gateway.ports import UpstreamResponse


def wants_body(request: GuardedRequest, status: int, length: int) -> bool:
    """Whether the body of an answer tells, and is short enough to be asked."""
    return length <= LONGEST_READ and reads_body(status, request.guard.policy.hints)


async def heard(deps: Dependencies, request: GuardedRequest, earlier: Earlier, response: UpstreamResponse, body: bytes | None) -> Heard:
    """`body` is None where nobody may read it. A long one is read off the event loop."""
    arguments = (request, earlier, Found(response.status, response.headers, body or b""), body is not None)
    if body is None or len(body) <= INLINE:
        return _hear(*arguments)
    told: Heard = await deps.offload(_hear, *arguments)
    return told


def _hear(request: GuardedRequest, earlier: Earlier, found: Found, readable: bool) -> Heard:  # noqa: FBT001 - `offload` passes positions
    return hear(found, request.guard.policy, earlier, lambda: _names(request), readable=readable)


def _names(request: GuardedRequest) -> Names:
    """What placeholders stand for."""
    captured = dict(request.captured or {})
    seen = request.key.key if request.guard.policy.forward_key is ForwardKey.AS_RECEIVED else ""
    return Names(captured.pop(OWN_KEY, seen), captured, request.request_id)
