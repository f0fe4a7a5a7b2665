"""A request that is kept until it is run: what is left of it once its client has been answered, or as another process has kept it."""

from collections.abc import Mapping

from gateway.core.fingerprint import Content
from gateway.core.headers import Fields
from gateway.core.key_location import Parts
from gateway.core.model import Fingerprint, RecordKey
from gateway.core.splice import JsonText
from gateway.engine.request import Client, GuardedRequest
from gateway.plan import GuardPlan
from gateway.ports import Body
from gateway.ports.accepted import Taken
from gateway.ports.reconciliation import Sealer, Unsealable
from gateway.runtime.sealing import PackedRequest, unpack_request

_BODIES = frozenset({b"POST", b"PUT", b"PATCH"})


class KeptRequest:
    """A `GuardedRequest` whose way to the upstream is known byte for byte, and that holds nothing of a client's connection."""

    __slots__ = (
        "_packed",
        "captured",
        "content",
        "correlation",
        "fields",
        "guard",
        "key",
        "key_digest",
        "later",
        "meaning",
        "method",
        "origin_form",
        "original",
        "parts",
        "patience",
        "payload",
        "request_id",
        "sealed",
        "text",
    )

    def __init__(
        self,
        packed: PackedRequest,
        guard: GuardPlan,
        key: RecordKey,
        request_id: str,
        target: bytes,
        meaning: Fingerprint,
        *,
        captured: Mapping[str, str] | None,
        correlation: str | None,
        sealed: bytes,
    ) -> None:
        framed = ((b"Content-Length", b"0"),) if not packed.body and packed.method in _BODIES else ()
        self._packed = packed
        self.request_id = request_id
        self.guard = guard
        self.key = key
        self.method = packed.method.decode()
        self.origin_form = target
        self.fields = Fields((*packed.headers, *framed))
        self.key_digest: str | None = None
        self.payload: bytes | Body = packed.body
        self.parts: bytes | None = None
        self.text: JsonText | None = None
        self.original: str | None = None
        self.content: Content | None = None
        self.meaning = meaning
        self.captured = captured
        self.correlation = correlation
        self.sealed: bytes | None = sealed
        self.later = True
        self.patience = 0

    @property
    def host(self) -> bytes:
        return b""

    @property
    def client(self) -> Client | None:
        return None

    read_head = None

    def lines(self) -> bytes | None:
        return None

    def forward(self) -> Parts:
        return Parts(self._packed.headers, self._packed.target, self._packed.body, None)

    def capture(self) -> None:
        """It was captured when it came."""

    def close(self) -> None:
        """It holds nothing but itself."""


async def keep_request(request: GuardedRequest) -> KeptRequest:
    """What is to be kept of a request that has just come; a body on disk is brought into memory. Raises OSError where that is lost."""
    if request.sealed is None:
        raise OSError("the request could not be sealed")
    parts, body = request.forward(), request.payload
    whole = parts.body if parts.body is not None else body if isinstance(body, bytes) else await body.load()
    packed = PackedRequest(request.method.encode(), parts.target, parts.headers, whole)
    return KeptRequest(
        packed,
        request.guard,
        request.key,
        request.request_id,
        request.origin_form,
        request.meaning,
        captured=request.captured,
        correlation=request.correlation,
        sealed=request.sealed,
    )


def open_request(taken: Taken, guard: GuardPlan, sealer: Sealer | None) -> KeptRequest:
    """The request of a record that was taken. Raises `Unsealable`."""
    if sealer is None:
        raise Unsealable("no encryption key is configured")
    try:
        packed = unpack_request(sealer.open(taken.sealed, taken.lease.key.lookup_digest()))
    except ValueError as error:
        raise Unsealable(str(error)) from error
    return KeptRequest(
        packed,
        guard,
        taken.lease.key,
        taken.request_id,
        taken.target,
        taken.fingerprint,
        captured=taken.captured,
        correlation=taken.correlation,
        sealed=taken.sealed,
    )
