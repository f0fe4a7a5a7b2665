"""A dialect, as its file says it: our own answers and marks in somebody else's words."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Situation(enum.StrEnum):
    """What a dialect may answer in its own words. Everything else is a problem document."""

    MISSING = "missing"
    INVALID = "invalid"
    MISMATCH = "mismatch"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    NOT_STORED = "not_stored"
    STORE_UNAVAILABLE = "store_unavailable"
    REPLAYED = "replayed"


class Replay(enum.StrEnum):
    """What a retry of a completed operation gets: the stored answer, or the dialect's answer for `replayed`."""

    VERBATIM = "verbatim"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Template:
    """One answer of a dialect. `{placeholders}` in header values and in the body are filled in, escaped for where they
    stand.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The wire form of the gateway's own answers and marks. What is left out has the default form.

    `first_headers` are added to answers that come from the upstream, `replay_headers` to replays instead of the default
    marks (None).
    """

    name: str = "ietf"
    answers: Mapping[Situation, Template] = field(default_factory=dict)
    replay: Replay = Replay.VERBATIM
    first_headers: tuple[tuple[str, str], ...] = ()
    replay_headers: tuple[tuple[str, str], ...] | None = None
