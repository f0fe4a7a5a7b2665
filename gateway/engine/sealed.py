"""The original request, encrypted for a later look that sends it again (`probe: resend`)."""

from gateway.core.model import Headers
from gateway.core.packing import INLINE
from gateway.engine.dependencies import Dependencies
from gateway.engine.request import GuardedRequest
from gateway.ports.reconciliation import Sealer
from gateway.runtime.sealing import pack_request


async def seal(deps: Dependencies, request: GuardedRequest) -> None:
    """Put the sealed request into `request.sealed`: its route resends. A body on disk is brought into memory for it.

    A disk that has lost the body costs the look, not the request: the record is a person's turn then, should its outcome be in doubt.
    """
    sealer = deps.sealer
    if sealer is None:
        return
    parts, body = request.forward(), request.payload
    try:
        whole = parts.body if parts.body is not None else body if isinstance(body, bytes) else await body.load()
    except OSError as error:
        deps.observer.background_failed("seal", error)
        return
    arguments = (sealer, request.method, parts.target, parts.headers, whole, request.key.lookup_digest())
    request.sealed = _sealed(*arguments) if len(whole) <= INLINE else await deps.offload(_sealed, *arguments)


def _sealed(sealer: Sealer, method: str, target: bytes, headers: Headers, body: bytes, bound_to: bytes) -> bytes:
    return sealer.seal(pack_request(method.encode(), target, headers, body), bound_to)
