"""What requests, stores and background work report, for metrics and logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from gateway.core.decision import Label
from gateway.core.headers import Fields
from gateway.core.scope import Scope
from gateway.core.trace_context import Trace
from gateway.ports.store import Counts, Swept
from gateway.ports.upstream import WebhookExchange


class FinishedRequest(Protocol):
    """One finished request, reported once. The observer reads what it wants at once and keeps nothing; so a fact that
    costs something, such as `client_address`, may be a property. Durations are seconds; `status` is that of the answer
    to the client.

    `route` is a configured id, or `unmatched`. `key_digest` is keyed (`gateway.core.scope.key_digest`).
    `client_address` is the nearest address that is no trusted proxy. `settlement` and `reason` are None if no attempt
    ran, or while the gateway still settles it. `started` and `upstream_started` are instants of CLOCK_BOOTTIME, `original`
    is the request whose record was found. `trace_id` is that of the client's trace, or of ours where requests are traced.
    No key, credential or body is told of; of the head's `fields` only what the client calls itself.
    """

    @property
    def request_id(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def decision(self) -> Label: ...
    @property
    def method(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def total_seconds(self) -> float: ...
    @property
    def store_seconds(self) -> float: ...
    @property
    def upstream_seconds(self) -> float | None: ...
    @property
    def upstream_status(self) -> int | None: ...
    @property
    def settlement(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def key_digest(self) -> str | None: ...
    @property
    def attempt(self) -> int | None: ...
    @property
    def request_bytes(self) -> int: ...
    @property
    def response_bytes(self) -> int: ...
    @property
    def client_gone(self) -> bool: ...
    @property
    def client_address(self) -> str | None: ...
    @property
    def scope(self) -> Scope | None: ...
    @property
    def fields(self) -> Fields: ...
    @property
    def started(self) -> float: ...
    @property
    def upstream_started(self) -> float | None: ...
    @property
    def original(self) -> str | None: ...
    @property
    def trace(self) -> Trace | None: ...
    @property
    def trace_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class FinishedAttempt:
    """One attempt of accepted work that has ended after its client was told 202. Fields are those of a `FinishedRequest`, of the request
    that was accepted; `record_id` names its record, `total_seconds` began when the work was taken, `waited` is how long it
    had waited before. `settlement` None: the gateway still settles it. `traceparent` is what the upstream was told.
    """

    request_id: str
    route: str
    decision: Label
    method: str
    record_id: UUID
    scope_id: str
    key_digest: str | None
    attempt: int
    settlement: str | None
    reason: str | None
    waited: float
    total_seconds: float
    started: float
    upstream_started: float | None
    upstream_seconds: float | None
    upstream_status: int | None
    traceparent: bytes | None


class StoreObserver(Protocol):
    """What stores report. Label values come from closed sets. Stores call these methods synchronously on the hot path:
    an implementation is cheap and never raises.
    """

    def store_operation(self, store: str, operation: str, seconds: float) -> None: ...

    def store_error(self, store: str, operation: str, reason: str) -> None: ...

    def store_batch(self, operation: str, size: int) -> None: ...

    def stale_write(self, operation: str) -> None: ...

    def redis_breaker(self, *, is_open: bool) -> None: ...

    def clock_stepped(self, seconds: float) -> None:
        """The authority's clock jumped forward, or back if `seconds` is negative."""
        ...

    def clock_disagrees(self, seconds: float) -> None:
        """At its first reading the authority's clock was so far ahead of this host's, or behind it if `seconds` is
        negative, that one of the two is wrong.
        """
        ...

    def clock_suspended(self, judgements: Mapping[str, bool]) -> None:
        """From now on the marked ones of `gateway.core.timeline.JUDGEMENTS` do not go by the authority's clock."""
        ...


class Observer(StoreObserver, Protocol):
    """Counts and logs what happens. An observer never changes an answer."""

    def request_started(self, route: str) -> None: ...

    def request_ended(self, request: FinishedRequest) -> None: ...

    def settled(self, route: str, settlement: str, reason: str) -> None: ...

    def upstream_answered(self, route: str, status: int | None, seconds: float) -> None: ...

    def upstream_unreachable(self, upstream: str, reason: str, cause: str | None) -> None:
        """The gateway could send nothing of a request, for `reason`. `cause` is the message of the system or of TLS."""
        ...

    def key_noticed(self, route: str, kind: str, key_digest: str) -> None:
        """A key looks guessable or personal; `kind` is a word of `gateway.core.weak_keys`."""
        ...

    def duplicate_seen(self, route: str, key_digest: str) -> None:
        """A caller sent an equal request under another key not long ago."""
        ...

    def swept(self, swept: Sequence[Swept]) -> None: ...

    def reconciled(self, route: str, result: str) -> None:
        """The reconciler took a step; `result` is scheduled, resolved, failed or dead_lettered."""
        ...

    def webhook_event(self, event: WebhookExchange) -> None:
        """The gateway answered a webhook request, or its sender left."""
        ...

    def conflicting_execution(self, route: str, request_id: str) -> None:
        """There is evidence that an operation ran twice."""
        ...

    def answer_differs(self, route: str, request_id: str) -> None:
        """The upstream's answer over HTTP is not the one that it committed, which counts."""
        ...

    def record_lost(self, route: str, request_id: str) -> None:
        """The authority had lost the record of an attempt that was under way, and the gateway put it back."""
        ...

    def work_began(self, route: str, seconds: float) -> None:
        """Accepted work is sent, so many seconds after its acceptance."""
        ...

    def attempt_ended(self, attempt: FinishedAttempt) -> None:
        """Accepted work was tried, and no client waits for its answer."""
        ...

    def abandoned(self, route: str) -> None:
        """Accepted work was given up before it was run."""
        ...

    def reaped(self, count: int) -> None: ...

    def counted(self, counts: Counts) -> None: ...

    def reloaded(self, *, successful: bool) -> None: ...

    def background_failed(self, task: str, error: BaseException) -> None: ...

    def background_ran(self, task: str) -> None:
        """A round of a task that runs for ever has ended well."""
        ...
