"""The closed sets that label values come from. Anything else is counted under `other`, so that no series grows with its input."""

from collections.abc import Iterator, Sequence

from gateway.core.decision import Label
from gateway.core.policy import Policy, Route
from gateway.core.principal_source import ForwardAuthPrincipal, JwtPrincipal
from gateway.ports import DoubtReason, NotSentReason

OTHER = "other"
UNMATCHED = "unmatched"
"""The route of requests that no line of the route map takes."""

ENFORCE = "enforce"
OFF = "off"
"""The mode of requests that nothing guards."""
MODES = frozenset({ENFORCE, "observe", OFF})

CODE_CLASSES = ("2xx", "3xx", "4xx", "5xx", OTHER, "none")
"""Classes of final upstream statuses; `none` when no response came."""

STORE_OPERATIONS = {
    "postgres": (
        *("reserve", "claim", "lapse", "find", "complete", "release", "doubt", "restore", "renew", "sweep", "reap", "purge", "counts"),
        *("deletions", "purge_deletions", "scopes"),
        *(
            "clock",
            "connect",
            "ready",
            "due_routes",
            "take_due",
            "abandon",
            "accept",
            "take",
            "cancel",
            "verdict",
            "find_captured",
            "event",
            "note",
            "operate",
            "progress",
        ),
    ),
    "redis": ("connect", "acquire", "get", "extend", "complete", "fill", "delete", "forget", "admit", "hold", "leave", "undo"),
    "local": ("replay",),
}
STORE_REASONS = ("refused", "timeout", "disconnected", "overloaded", "not_ready", "error")
"""The words of `gateway.ports.StoreUnavailable`."""
REDIS_REFUSALS = (
    *("replica", "cluster", "sentinel", "no_permission", "writes_refused"),
    *("no_sentinel", "no_primary", "no_cluster"),
)
"""Why a Redis server that answers cannot serve: the words of `gateway.store.redis.server` beside those."""
BATCHED = ("reserve", "complete", "release", "doubt", "accept", "redis")
FENCED = (
    *("complete", "release", "doubt", "park", "renew", "verdict", "progress"),
    *("redis_extend", "redis_complete", "redis_fill", "redis_delete"),
)
TASKS = (
    "attempt",
    "replay",
    "spill",
    "sweep",
    "reap",
    "count",
    "renew",
    "reconcile",
    "webhook",
    "seal",
    "take_back",
    "wait",
    "progress",
    "accepted",
    "trace",
)
ROUNDS = ("sweep", "reap", "count", "reconcile")
"""Those of `TASKS` that go round for ever, whatever else happens."""
REFUSALS = ("header_timeout", "too_many_connections", "overloaded")
"""Why a connection is closed before a request is whole, but for what is malformed."""

RECONCILED = ("scheduled", "resolved", "failed", "dead_lettered")
"""Steps of finding out what an unknown attempt did: a look was begun, gave a verdict, gave none, was the last."""
WEBHOOK_RESULTS = (
    "applied",
    "attached",
    "already",
    "duplicate",
    "unmatched",
    "ambiguous",
    "no_verdict",
    "too_early",
    "bad_signature",
    "out_of_tolerance",
    "too_large",
    "malformed",
    "store_unavailable",
)
"""What became of a webhook's event."""

CLOCK_DIRECTIONS = ("forward", "back")

_FIRST = (Label.EXECUTE, Label.REPLAY, Label.IN_PROGRESS, Label.KEY_MISUSE, Label.UNKNOWN, Label.STORE_UNAVAILABLE)
_STATUS = "status_"
STATUS_OTHER = "status_other"
RESPONDED = "responded"
HINTED = "hinted"
SETTLEMENTS = {
    "complete": (RESPONDED,),
    "release": tuple(reason.value for reason in NotSentReason),
    "doubt": tuple(reason.value for reason in DoubtReason),
}
"""What attempts come to, and the reasons that need no route to be known."""


def first_decisions(policy: Policy | None) -> Iterator[tuple[str, Label]]:
    """The (mode, decision) pairs whose counters are there before the first request: the usual ones, and those that alerts compare."""
    if policy is None:
        yield OFF, Label.BYPASS
    else:
        yield from ((policy.mode.value, decision) for decision in _FIRST)
        if any(isinstance(source, JwtPrincipal | ForwardAuthPrincipal) for source in policy.principal):  # others can always be told
            yield policy.mode.value, Label.PRINCIPAL_UNAVAILABLE


def first_looks(policy: Policy) -> Sequence[str]:
    """The results of looks whose counters are there before the first look."""
    return RECONCILED if policy.reconcilable else ()


def first_events(policy: Policy) -> Sequence[str]:
    """The results of webhook events whose counters are there before the first event."""
    return () if policy.webhook is None else ("applied", "bad_signature", "out_of_tolerance")


def settlements_of(route: Route) -> Iterator[tuple[str, str]]:
    """The (settlement, reason) pairs that attempts of a route can end in."""
    if route.policy is None:
        return
    yield "complete", RESPONDED
    hinted = (HINTED,) if route.policy.hints else ()
    for reason in (*SETTLEMENTS["release"], *hinted, *_statuses(route.policy.release_on), OTHER):
        yield "release", reason
    for reason in (*SETTLEMENTS["doubt"], *hinted, *_statuses(route.policy.doubt_on), OTHER):
        yield "doubt", reason
    if route.policy.repeats:  # there a release is a doubt, too
        for reason in (*SETTLEMENTS["release"], *_statuses(route.policy.release_on)):
            yield "doubt", reason


def _statuses(listed: frozenset[int]) -> Iterator[str]:
    for status in sorted(listed):
        yield f"{_STATUS}{status}"
    yield STATUS_OTHER


def bounded_settlement(settlement: str, reason: str) -> tuple[str, str]:
    """Where a pair that the route's lists do not know is counted."""
    if settlement not in SETTLEMENTS:
        return OTHER, OTHER
    if reason in SETTLEMENTS[settlement] or reason == HINTED:
        return settlement, reason
    return settlement, STATUS_OTHER if reason.startswith(_STATUS) else OTHER


def code_class(status: int | None) -> str:
    """The class of a status as a label."""
    if status is None:
        return "none"
    return f"{status // 100}xx" if 200 <= status < 600 else OTHER
