"""What the engine answers, before it has a wire form: an upstream's answer, a stored one, or a problem of our own."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from gateway.core.decision import Label
from gateway.core.model import Headers, RecordKey, Status
from gateway.core.problems import Problem, Retry
from gateway.ports import Body, Remembered, Tunnel

LOOK_AGAIN = "The operation may have been executed; its outcome is being found out. Repeat this request later to learn it."


class Passed(NamedTuple):  # here and below: one for every request, and made in a third of a frozen dataclass's time
    """A whole response from the upstream, hop-by-hop fields already gone. `headers` carry no framing fields, but for what has no body."""

    status: int
    reason: bytes
    headers: Headers
    body: bytes | Body


class Streams(Protocol):
    """A body that goes out as it comes."""

    def pieces(self) -> AsyncIterator[bytes]:
        """Ends normally only if the answer may end normally; raises `RelayCut` otherwise. To be closed if it is not read to its end."""
        ...

    def close(self) -> None:
        """Nobody will read any (more) of it."""
        ...


@dataclass(frozen=True, slots=True)
class Relayed:
    """A response that goes out as it comes. `length` is the announced length of the body, None if it is not known beforehand."""

    status: int
    reason: bytes
    headers: Headers
    length: int | None
    body: Streams


class Replayed(NamedTuple):
    """A stored response, and the id of the request that it first answered. `remembered`: it is told from this process's memory."""

    status: int
    reason: bytes
    headers: Headers
    body: bytes | Body
    original_request: str
    expires_at_us: int | None = None
    remembered: Remembered | None = None


@dataclass(frozen=True, slots=True)
class Switched:
    """A 101 response: from here on the connection belongs to another protocol."""

    status: int
    reason: bytes
    headers: Headers
    tunnel: Tunnel


@dataclass(frozen=True, slots=True)
class Refused:
    """A problem document. `status` overrides the problem's usual one; `retry_after` is whole seconds; `members` are extension members.

    `cause` is the word of a `NotSentReason` or `DoubtReason` where the upstream is behind it. `challenges` are values of
    `WWW-Authenticate`. `original_request` is the request that a record was made for. `retry` overrides what the problem usually says.
    `allow` is the value of Allow beside a 405, if it is not that of every resource here. `fields` are further ones that say more of it.
    """

    problem: Problem
    status: int | None = None
    retry_after: int | None = None
    detail: str | None = None
    members: Mapping[str, object] = field(default_factory=dict)
    cause: str | None = None
    challenges: tuple[bytes, ...] = ()
    original_request: str | None = None
    retry: Retry | None = None
    allow: bytes | None = None
    fields: Headers = ()

    @property
    def final_status(self) -> int:
        return self.problem.value.status if self.status is None else self.status


@dataclass(frozen=True, slots=True)
class Promised:
    """The operation will be run, or is being run; where its client can look how it stands is told with it."""

    key: RecordKey
    status: Status
    retry_after: int


Answer: TypeAlias = Passed | Relayed | Replayed | Switched | Refused | Promised


@dataclass(slots=True)  # not frozen: one for every request, and that would cost three times as much
class Reply:
    """An answer and how it came about. The rest is for the observer; `settlement` is None while settling still goes on."""

    label: Label
    answer: Answer
    settlement: str | None = None
    reason: str | None = None
    attempt: int | None = None
    store_seconds: float = 0.0
    upstream_seconds: float | None = None
    upstream_status: int | None = None
    expires_at_us: int | None = None
    duplicate: bool = False
    upstream_started: float | None = None
